package zerobus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
)

// Stream appends records to one table. Each Ingest gets the next offset, from 0; an acknowledgement says that
// everything up to an offset is durable. After a loss the stream opens a new session by itself and sends again what
// is not acknowledged (so rows may appear twice), unless Options.NoRecovery. Safe for concurrent use; the order of
// concurrent Ingests is the order of their offsets. It must be closed.
type Stream struct {
	dialer *dialer
	opts   Options
	life   context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the stream has ended and err is final
	wake   chan struct{} // capacity 1: there may be something to send, or to end

	mu      sync.Mutex
	queue   []item // not acknowledged; queue[i] has offset base+i
	base    int64
	bytes   int64 // of the queue
	records int   // of the queue
	closing bool  // Close was called
	err     error // why the stream ended
	changed chan struct{}

	// Of the current session:
	wireBase int64       // the offset whose wire offset is 0
	sent     int         // queue[:sent] are sent
	acked    bool        // something was acknowledged
	paused   bool        // CloseStreamSignal: nothing more is sent
	pauseEnd bool        // and the wait for acknowledgements is over
	lack     *time.Timer // fires when acknowledgements stay away
}

// item is one Ingest.
type item struct {
	records [][]byte
	batch   bool
	bytes   int64
}

// Pending is one Ingest that is not acknowledged.
type Pending struct {
	Offset  int64
	Records [][]byte
	// Batch tells IngestBatch from Ingest.
	Batch bool
	// Sent reports whether it was handed to the last session, and so may be durable all the same.
	Sent bool
}

// Check reports what is wrong with a configuration, without connecting.
func Check(cfg Config) error {
	if _, err := newDialer(cfg); err != nil {
		return fmt.Errorf("open zerobus stream: %w", err)
	}
	return nil
}

// Open sets a stream up and returns when the server has accepted it. It tries 1 + RecoveryRetries times, until ctx
// ends. Errors of the configuration are plain; all others are *Error.
func Open(ctx context.Context, cfg Config) (*Stream, error) {
	cfg.Options = cfg.withDefaults()
	d, err := newDialer(cfg)
	if err != nil {
		return nil, fmt.Errorf("open zerobus stream: %w", err)
	}
	life, cancel := context.WithCancelCause(context.Background())
	s := &Stream{
		dialer: d, opts: cfg.Options, life: life, cancel: cancel,
		done: make(chan struct{}), wake: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	for try := 0; ; try++ {
		sess, err := d.open(ctx, life)
		if err == nil {
			go s.run(sess)
			return s, nil
		}
		if e := asError("open", err); !e.Retryable() || try >= s.opts.RecoveryRetries || ctx.Err() != nil {
			cancel(nil)
			return nil, e
		}
		if err := wait(ctx, s.opts.RecoveryBackoff); err != nil {
			cancel(nil)
			return nil, asError("open", err)
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Ingest queues one record and returns its offset; it does not wait for the acknowledgement, only for room below the
// in-flight bound. The stream keeps record until it is acknowledged: do not change it.
func (s *Stream) Ingest(ctx context.Context, record []byte) (int64, error) {
	return s.ingest(ctx, item{records: [][]byte{record}})
}

// IngestBatch queues records under one offset; the server takes or refuses them together. An empty batch is refused.
func (s *Stream) IngestBatch(ctx context.Context, records [][]byte) (int64, error) {
	if len(records) == 0 {
		return 0, errors.New("ingest: empty batch")
	}
	return s.ingest(ctx, item{records: records, batch: true})
}

func (s *Stream) ingest(ctx context.Context, it item) (int64, error) {
	for i, r := range it.records {
		it.bytes += int64(len(r))
		if s.dialer.cfg.RecordType == JSON && !utf8.Valid(r) {
			return 0, fmt.Errorf("ingest: record %d is not valid UTF-8", i)
		}
	}
	if it.bytes > MaxPayload {
		return 0, fmt.Errorf("ingest: %d bytes exceed the limit of %d: %w", it.bytes, MaxPayload, ErrTooLarge)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.err != nil:
			return 0, s.err
		case s.closing:
			return 0, ErrClosed
		case len(s.queue) == 0,
			s.bytes+it.bytes <= s.opts.MaxInFlightBytes && s.records+len(it.records) <= s.opts.MaxInFlightRecords:
			s.queue = append(s.queue, it)
			s.bytes += it.bytes
			s.records += len(it.records)
			s.wakeUp()
			return s.base + int64(len(s.queue)) - 1, nil
		}
		if err := s.waitChange(ctx); err != nil {
			return 0, fmt.Errorf("ingest: wait for room: %w", err)
		}
	}
}

// waitChange releases mu until something changed.
func (s *Stream) waitChange(ctx context.Context) error {
	ch := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Stream) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Stream) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Acked is the highest offset that is durable, with all below it; -1 for none.
func (s *Stream) Acked() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base - 1
}

// WaitFor returns when offset is durable: nil. Else the reason the stream ended, or ctx's.
func (s *Stream) WaitFor(ctx context.Context, offset int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.base <= offset {
		if s.err != nil {
			return s.err
		}
		if err := s.waitChange(ctx); err != nil {
			return fmt.Errorf("wait for offset %d: %w", offset, err)
		}
	}
	return nil
}

// Flush waits until everything queued so far is durable.
func (s *Stream) Flush(ctx context.Context) error {
	s.mu.Lock()
	last := s.base + int64(len(s.queue)) - 1
	s.mu.Unlock()
	return s.WaitFor(ctx, last)
}

// Done is closed when the stream has ended and nothing of it runs any more.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Err is why the stream ended: nil while it lives, ErrClosed after a clean Close, else an *Error.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Unacked returns what is not acknowledged, in order. Once Done is closed it is final.
func (s *Stream) Unacked() []Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Pending, len(s.queue))
	for i, it := range s.queue {
		out[i] = Pending{Offset: s.base + int64(i), Records: it.records, Batch: it.batch, Sent: i < s.sent}
	}
	return out
}

// Close takes no more records, waits for all acknowledgements, half-closes and ends. When ctx ends first the stream
// is broken off: the error says so and Unacked has the rest. With nothing in flight it does not wait for the
// server longer than 500 ms. A second Close gives the same answer.
func (s *Stream) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.wakeUp()
	select {
	case <-s.done:
	case <-ctx.Done():
		s.cancel(&Error{Op: "stream", Code: codes.Canceled, Message: "closed before everything was acknowledged: " + context.Cause(ctx).Error(), Cause: context.Cause(ctx)})
		<-s.done
	}
	if err := s.Err(); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}
