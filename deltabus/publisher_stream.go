package deltabus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/deltabus/deltabus-local/internal/zerobus"
)

// streamOpener opens a Zerobus stream for the messages table that does not recover by itself: the publisher does, since
// it alone can look up what is in the table.
type streamOpener func(ctx context.Context, o streamOptions) (*zerobus.Stream, error)

type streamOptions struct {
	onAck      func(acked int64)
	ackTimeout time.Duration
}

// opener opens streams for one table.
func (c *ZerobusConfig) opener(table string) (streamOpener, error) {
	cfg := zerobus.Config{
		Endpoint: c.Endpoint, Token: c.Token, Table: table, RecordType: zerobus.Proto, Descriptor: messageDescriptor(), UserAgent: "deltabus",
		Options: zerobus.Options{
			NoRecovery: true,
			// The publisher's own buffer is the bound.
			MaxInFlightBytes: math.MaxInt64, MaxInFlightRecords: math.MaxInt,
		},
	}
	if c.Token == "" && c.ClientID != "" {
		url := c.UnityCatalogURL
		if url == "" {
			url = c.Endpoint
		}
		cfg.OAuth = zerobus.NewOAuth(url, c.ClientID, c.ClientSecret, nil)
	}
	if err := zerobus.Check(cfg); err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	return func(ctx context.Context, o streamOptions) (*zerobus.Stream, error) {
		cfg := cfg
		cfg.OnAck, cfg.LackOfAckTimeout = o.onAck, o.ackTimeout
		return zerobus.Open(ctx, cfg)
	}, nil
}

// One message on the wire carries at most so many messages of ours, and bytes: large enough to be fast, small enough to
// be acknowledged soon.
const (
	wireMessages = 500
	wireBytes    = 1 << 20
)

// stream is a Zerobus stream and what was handed to it.
type stream struct {
	z      *zerobus.Stream
	counts []int // of messages for each offset above acked; Publisher.mu guards this and all below
	acked  int64
	since  time.Time // the last acknowledgement, or when a message was handed over with none in flight
}

// streamEnd is why a stream ended, and what it left.
type streamEnd struct {
	cause error
	// unacked is the number of messages in the first wire message that was sent and not acknowledged; 0 if there is none.
	unacked int
	// away: for the recovery time or longer, messages were handed over and none was acknowledged.
	away bool
}

// refusal reports whether the server refused a message, not the stream.
func (e *streamEnd) refusal() bool {
	var z *zerobus.Error
	return errors.As(e.cause, &z) && z.Op == "stream" && !z.Protocol && (z.Code == codes.InvalidArgument || z.Code == codes.OutOfRange)
}

func (e *streamEnd) settled() bool {
	var z *zerobus.Error
	return errors.As(e.cause, &z) && z.Settled()
}

func (p *Publisher) openStream(ctx context.Context) (*stream, error) {
	st := &stream{acked: -1}
	z, err := p.endpoint(ctx, streamOptions{ackTimeout: p.opts.ackTimeout, onAck: func(acked int64) { p.onAck(st, acked) }})
	if err != nil {
		p.mu.Lock()
		p.lastErr = err
		p.mu.Unlock()
		return nil, err
	}
	st.z = z
	return st, nil
}

// onAck completes what an acknowledgement covers.
func (p *Publisher) onAck(st *stream, acked int64) {
	p.mu.Lock()
	n := 0
	for _, c := range st.counts[:acked-st.acked] {
		n += c
	}
	st.counts, st.acked = st.counts[acked-st.acked:], acked
	for _, e := range p.queue[:n] {
		p.complete(e, PathZerobus, nil)
	}
	clear(p.queue[:n])
	p.queue = p.queue[n:]
	p.sent -= n
	p.isolate = max(0, p.isolate-n)
	st.since = time.Now()
	p.notify()
	p.mu.Unlock()
	p.wakeUp()
}

// runStream hands messages to st until it ends. nil: the publisher has ended.
func (p *Publisher) runStream(st *stream) *streamEnd {
	ticker := time.NewTicker(markInterval)
	defer ticker.Stop()
	sent := false // since the last mark
	for {
		if records := p.take(st); len(records) > 0 {
			sent = true
			if p.ingest(st, records) == nil {
				continue // else the stream has ended, or the publisher
			}
		}
		if p.ended() || p.ctx.Err() != nil {
			p.closeStream(st)
			return nil
		}
		select {
		case <-st.z.Done():
			return p.streamEnded(st)
		case <-p.wake:
		case <-ticker.C:
			if sent {
				p.note(p.ctx)
				sent = false
			}
		case <-p.ctx.Done():
		}
	}
}

func (p *Publisher) ingest(st *stream, records [][]byte) error {
	if len(records) == 1 {
		_, err := st.z.Ingest(p.ctx, records[0])
		return err
	}
	_, err := st.z.IngestBatch(p.ctx, records)
	return err
}

// take marks the next messages as handed to st and encodes them.
func (p *Publisher) take(st *stream) [][]byte {
	p.mu.Lock()
	limit := wireMessages
	if p.sent < p.isolate {
		limit = 1
	}
	n, _ := firstBatch(p.queue[p.sent:], limit, wireBytes)
	entries := slices.Clone(p.queue[p.sent : p.sent+n]) // acknowledgements clear the queue
	for _, e := range entries {
		e.handed = true
	}
	if n > 0 {
		if p.sent == 0 {
			st.since = time.Now()
		}
		st.counts = append(st.counts, n)
		p.sent += n
	}
	p.mu.Unlock()
	records := make([][]byte, n)
	for i, e := range entries {
		records[i] = appendMessageProto(make([]byte, 0, e.bytes), e)
	}
	return records
}

// streamEnded collects what is left of a stream whose end is known.
func (p *Publisher) streamEnded(st *stream) *streamEnd {
	end := &streamEnd{cause: st.z.Err()}
	if left := st.z.Unacked(); len(left) > 0 && left[0].Sent {
		end.unacked = len(left[0].Records)
	}
	switch {
	case end.unacked == 0 || end.refusal():
		p.lostAt = time.Time{}
	case st.acked >= 0 || p.lostAt.IsZero():
		p.lostAt = st.since
	}
	end.away = !p.lostAt.IsZero() && time.Since(p.lostAt) >= p.opts.recovery
	if st.acked >= 0 {
		p.probing, p.contend = p.opts.probeFirst, false
	} else { // an endpoint that accepts streams and fails them is tried less and less often
		p.probing = min(2*p.probing, p.opts.probeMax)
	}
	return end
}

// closeStream ends a stream with nothing in flight, or breaks it off when the publisher gives up.
func (p *Publisher) closeStream(st *stream) {
	if err := st.z.Close(p.ctx); err != nil {
		p.log.Debug("close zerobus stream", "error", err)
	}
}
