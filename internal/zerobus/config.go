// Package zerobus is a pure-Go client of the Zerobus Ingest protocol: one stream appends records to one Delta table
// and learns, cumulatively, which of them are durable. The generated wire types are in zerobuspb.
package zerobus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/deltabus/deltabus-local/internal/databricks"
)

// RecordType is how records are encoded.
type RecordType int

// The record types.
const (
	// JSON: a record is one JSON object as text.
	JSON RecordType = iota + 1
	// Proto: a record is an encoded message of Config.Descriptor.
	Proto
)

// MaxPayload is the most bytes that one Ingest may carry, all its records together: 10 MiB less 64 KiB, as in the
// official SDKs.
const MaxPayload = 10<<20 - 64<<10

// Config says where a stream goes.
type Config struct {
	// Endpoint is the Zerobus address: http://host:port speaks h2c, https://host[:port] TLS (port 443 if absent).
	Endpoint string
	// Token is a bearer token to use as it is. Without one, tokens come from OAuth; with neither, none is sent.
	Token string
	// OAuth fetches table-scoped tokens; streams may share one.
	OAuth *databricks.OAuth
	// Table is catalog.schema.table.
	Table string
	// RecordType of all records of the stream. Required.
	RecordType RecordType
	// Descriptor of the records; required for Proto, refused for JSON.
	Descriptor *descriptorpb.DescriptorProto
	// UserAgent; default "deltabus".
	UserAgent string
	// TLS for https endpoints; default: the system's roots, or the PEM file that SSL_CERT_FILE names.
	TLS *tls.Config
	// Dial makes the connection; default a net.Dialer on tcp. addr is host:port.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// OnAck, if set, is called with each new value of Acked, in order, and never after Done is closed. It must not
	// block, nor call the stream.
	OnAck func(acked int64)
	Options
}

// NewOAuth returns the token source for a workspace's URL (the SDKs' unity_catalog_url).
func NewOAuth(unityCatalogURL, clientID, clientSecret string, client *http.Client) *databricks.OAuth {
	return &databricks.OAuth{Host: unityCatalogURL, ClientID: clientID, ClientSecret: clientSecret, HTTP: client}
}

// Options are the limits and times of a stream. Zero values are the official SDKs' defaults.
type Options struct {
	// NoRecovery ends the stream at the first failure or announced close; the caller reads Unacked and opens another.
	NoRecovery bool
	// RecoveryTimeout bounds one attempt to set the stream up; default 15 s.
	RecoveryTimeout time.Duration
	// RecoveryBackoff is the pause between attempts; the first attempt after a loss is at once. Default 2 s.
	RecoveryBackoff time.Duration
	// RecoveryRetries is the number of attempts after the first, in a row, that no acknowledgement interrupts;
	// default 4, negative none.
	RecoveryRetries int
	// LackOfAckTimeout: with records in flight and no acknowledgement for so long, the connection counts as lost;
	// default 60 s.
	LackOfAckTimeout time.Duration
	// PausedMaxWait bounds the wait for acknowledgements after a CloseStreamSignal; default: the signal's duration.
	PausedMaxWait time.Duration
	// MaxInFlightBytes and MaxInFlightRecords bound what is not acknowledged; Ingest waits for room. Defaults
	// 64 MiB and 1,000,000. One Ingest larger than the bound passes when nothing else is in flight.
	MaxInFlightBytes   int64
	MaxInFlightRecords int
}

// drainTime is how long a half-closed stream is read for late acknowledgements.
const drainTime = 500 * time.Millisecond

func (o Options) withDefaults() Options {
	o.RecoveryTimeout = orDefault(o.RecoveryTimeout, 15*time.Second)
	o.RecoveryBackoff = orDefault(o.RecoveryBackoff, 2*time.Second)
	o.LackOfAckTimeout = orDefault(o.LackOfAckTimeout, 60*time.Second)
	o.MaxInFlightBytes = orDefault(o.MaxInFlightBytes, 64<<20)
	o.MaxInFlightRecords = orDefault(o.MaxInFlightRecords, 1_000_000)
	if o.RecoveryRetries == 0 {
		o.RecoveryRetries = 4
	}
	if o.RecoveryRetries < 0 || o.NoRecovery {
		o.RecoveryRetries = 0
	}
	return o
}

func orDefault[T int | int64 | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// endpoint is Config.Endpoint, parsed.
type endpoint struct {
	addr        string // host:port
	workspaceID string // first label of the host
	tls         bool
}

func parseEndpoint(s string) (endpoint, error) {
	u, err := url.Parse(s)
	if err != nil {
		return endpoint{}, fmt.Errorf("zerobus endpoint: %w", err)
	}
	var e endpoint
	port := u.Port()
	switch u.Scheme {
	case "http":
		port = orPort(port, "80")
	case "https":
		port, e.tls = orPort(port, "443"), true
	default:
		return endpoint{}, fmt.Errorf("zerobus endpoint %q: begin it with http:// (plain) or https:// (TLS)", s)
	}
	if u.Hostname() == "" {
		return endpoint{}, fmt.Errorf("zerobus endpoint %q: no host", s)
	}
	e.addr = net.JoinHostPort(u.Hostname(), port)
	e.workspaceID, _, _ = strings.Cut(u.Hostname(), ".")
	return e, nil
}

func orPort(port, def string) string {
	if port == "" {
		return def
	}
	return port
}

func (c *Config) check() error {
	if parts := strings.Split(c.Table, "."); len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return fmt.Errorf("table name %q: want catalog.schema.table", c.Table)
	}
	switch {
	case c.RecordType != JSON && c.RecordType != Proto:
		return errors.New("record type is not specified: choose JSON or Proto")
	case c.RecordType == Proto && c.Descriptor == nil:
		return errors.New("record type Proto needs a descriptor")
	case c.RecordType == JSON && c.Descriptor != nil:
		return errors.New("record type JSON takes no descriptor")
	case c.Token != "" && c.OAuth != nil:
		return errors.New("both a token and OAuth are given: choose one")
	}
	return nil
}
