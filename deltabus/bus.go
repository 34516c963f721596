package deltabus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
)

// DefaultSchema is where a bus lives unless told otherwise.
const DefaultSchema = "main.deltabus"

// ErrNoBus says that the schema has no bus; Init makes one.
var ErrNoBus = errors.New("no bus here")

// Config says where a bus is.
type Config struct {
	// Workspace finds the tables. Required.
	Workspace Workspace
	// Schema is catalog.schema; default DefaultSchema.
	Schema string
	// Zerobus is the endpoint that publishers use; nil: they write batches.
	Zerobus *ZerobusConfig
	// Clock gives the time; default time.Now.
	Clock func() time.Time
	// Logger; default: nothing.
	Logger *slog.Logger
}

// ZerobusConfig is a Zerobus endpoint and how to be let in.
type ZerobusConfig struct {
	// Endpoint is http://host:port or https://host:port.
	Endpoint string
	// UnityCatalogURL issues tokens for ClientID and ClientSecret; default Endpoint.
	UnityCatalogURL        string
	ClientID, ClientSecret string
	// Token, if set, is used as it is.
	Token string
}

// Bus is an open bus: a messages, a checkpoints and a dead_letters table. Safe for concurrent use.
type Bus struct {
	cfg      Config
	messages *deltalog.Table
	backend  backend
}

func (c Config) withDefaults() (Config, error) {
	if c.Workspace == nil {
		return c, errors.New("a bus needs a workspace: OnStore, OnHost, or an emulator")
	}
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if catalog, schema, ok := strings.Cut(c.Schema, "."); !ok || catalog == "" || schema == "" || strings.Contains(schema, ".") {
		return c, fmt.Errorf("schema %q: write it as catalog.schema", c.Schema)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Open opens the bus of a schema. ErrNoBus if it is not there, or not whole.
func Open(ctx context.Context, cfg Config) (*Bus, error) {
	return open(ctx, cfg, func(name string, _ deltalog.TableSpec) (*deltalog.Table, error) {
		t, err := cfg.Workspace.Table(ctx, name)
		if errors.Is(err, deltalog.ErrNotTable) {
			err = fmt.Errorf("%w: %w", ErrNoBus, err)
		}
		return t, err
	})
}

// Init opens the bus of a schema and makes what is missing of its tables. It may be called again and by several at once.
func Init(ctx context.Context, cfg Config) (*Bus, error) {
	return open(ctx, cfg, func(name string, spec deltalog.TableSpec) (*deltalog.Table, error) {
		t, err := cfg.Workspace.Table(ctx, name)
		if !errors.Is(err, deltalog.ErrNotTable) {
			return t, err
		}
		t, err = cfg.Workspace.CreateTable(ctx, name, spec)
		if errors.Is(err, deltalog.ErrTableExists) { // somebody was quicker
			return cfg.Workspace.Table(ctx, name)
		}
		return t, err
	})
}

func open(_ context.Context, cfg Config, table func(string, deltalog.TableSpec) (*deltalog.Table, error)) (*Bus, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("open bus: %w", err)
	}
	specs := TableSpecs()
	tables := map[string]*deltalog.Table{}
	for _, name := range []string{MessagesTable, CheckpointsTable, DeadLettersTable} {
		full := cfg.Schema + "." + name
		t, err := table(full, specs[name])
		if err == nil {
			err = checkShape(full, specs[name], t.Cached())
		}
		if err != nil {
			return nil, fmt.Errorf("open bus %s: %w", cfg.Schema, err)
		}
		tables[name] = t
	}
	return &Bus{cfg: cfg, messages: tables[MessagesTable], backend: &onTables{
		schema:   cfg.Schema,
		messages: tables[MessagesTable], checkpointTable: tables[CheckpointsTable], deadLetterTable: tables[DeadLettersTable], clock: cfg.Clock,
	}}, nil
}

// Schema is the bus's catalog.schema.
func (b *Bus) Schema() string { return b.cfg.Schema }

// Messages is the table of events.
func (b *Bus) Messages() *deltalog.Table { return b.messages }
