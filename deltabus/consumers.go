package deltabus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltabus/deltabus-local/cdf"
)

// The states of a consumer, by its stored checkpoint; whether a process runs is not stored.
const (
	// StateCurrent: everything committed is done.
	StateCurrent = "current"
	// StateBehind: there is more to read.
	StateBehind = "behind"
	// StateBackfilling: it reads the table's rows before the feed.
	StateBackfilling = "backfilling"
	// StateStalled: its last start had an event to handle and ended without moving past it.
	StateStalled = "stalled"
	// StateExpired: the feed no longer reaches back to it.
	StateExpired = "expired"
	// StateRecreated: the messages table is not the one that it read.
	StateRecreated = "recreated"
)

// ConsumerStatus is how a consumer is doing. A nil lag is unknown, which is not zero.
type ConsumerStatus struct {
	Checkpoint
	State string
	// LagVersions is how many versions are not wholly done, LagEvents how many events that the filter wants are not, LagTime how long ago the
	// oldest of those versions was committed.
	LagVersions *int64
	LagEvents   *int64
	LagTime     *time.Duration
	// KeptUntil is until when our own maintenance keeps what the position has yet to read, if it does not move: the retention and ConsumerHold
	// after the oldest of it was committed. nil: it has nothing to read, or its state says that it cannot, or it is unknown.
	KeptUntil *time.Time
}

// maxLagVersions bounds how many versions are read to count the events that a consumer lags.
const maxLagVersions = 2000

// Consumers returns the status of every consumer, by id.
func (b *Bus) Consumers(ctx context.Context) ([]ConsumerStatus, error) {
	// The checkpoints first: what is committed between the two reads counts as lag, and no consumer seems to be ahead.
	stored, err := b.backend.checkpoints(ctx)
	if err != nil {
		return nil, fmt.Errorf("consumers of %s: %w", b.Schema(), err)
	}
	now, err := b.backend.head(ctx)
	if err != nil {
		return nil, fmt.Errorf("consumers of %s: %w", b.Schema(), err)
	}
	out := make([]ConsumerStatus, len(stored))
	for i, c := range stored {
		s := &out[i]
		s.Checkpoint = c
		if now.recreated || s.TableID != now.tableID || s.Version > now.version {
			s.State = StateRecreated
			continue
		}
		if err := b.lag(ctx, s, now); err != nil {
			return nil, fmt.Errorf("lag of consumer %s: %w", c.Consumer, err)
		}
	}
	return out, nil
}

func (b *Bus) lag(ctx context.Context, s *ConsumerStatus, now head) error {
	versions := now.version - s.Version
	s.LagVersions = &versions
	zero := time.Duration(0)
	switch {
	case s.Backfill != nil:
		s.State = StateBackfilling
		if v, err := b.backend.follow(*s.Backfill-1, []string{"topic"}).Next(ctx); err == nil && v != nil {
			s.keptFrom(v.Timestamp, now)
		}
		return nil
	case versions == 0:
		s.State, s.LagEvents, s.LagTime = StateCurrent, new(int64), &zero
		return nil
	}
	s.State = StateBehind
	if s.StalledStarts > 0 {
		s.State = StateStalled
	}
	filter, err := ParseFilter(s.Filter)
	if err != nil {
		return nil // written past us: unknown
	}
	c := &Consumer{bus: b, id: s.Consumer, filter: filter, at: s.Checkpoint}
	feed := b.backend.follow(s.Version, []string{"topic", "headers"})
	var events int64
	for n := 0; ; n++ {
		v, err := feed.Next(ctx)
		if errors.Is(err, cdf.ErrExpired) {
			s.State, s.KeptUntil = StateExpired, nil
			return nil
		}
		if err != nil {
			return err
		}
		if v == nil {
			break
		}
		if s.LagTime == nil {
			age := max(0, b.cfg.Clock().Sub(v.Timestamp))
			s.LagTime = &age
			s.keptFrom(v.Timestamp, now)
		}
		if n >= maxLagVersions {
			return nil // too many to count
		}
		got, err := c.count(ctx, v, s.Position)
		if errors.Is(err, cdf.ErrRewritten) {
			return nil // the consumer will say so
		}
		if errors.Is(err, cdf.ErrExpired) {
			s.State, s.KeptUntil = StateExpired, nil
			return nil
		}
		if err != nil {
			return err
		}
		events += got
	}
	s.LagEvents = &events
	return nil
}

func (s *ConsumerStatus) keptFrom(committed time.Time, now head) {
	until := committed.Add(now.held)
	s.KeptUntil = &until
}

// count is how many rows of a version are wanted; of the one behind the checkpoint, only those behind its position, which takes the order.
func (c *Consumer) count(ctx context.Context, v *cdf.Version, position int64) (n int64, err error) {
	if v.Version == c.at.Version+1 && position > 0 {
		whole, err := c.bus.backend.follow(c.at.Version, messageNames()).Next(ctx)
		if err != nil || whole == nil {
			return 0, err
		}
		row := int64(0)
		for e, err := range sortedEvents(c.decode(whole), sortRows, sortBytes) {
			if err != nil {
				return 0, err
			}
			if row++; row > position && c.wants(e) {
				n++
			}
		}
		return n, nil
	}
	for batch, err := range v.Inserts() {
		if err != nil {
			return 0, err
		}
		for i := range int(batch.Rows.NumRows()) {
			if c.wantsRow(batch.Rows, i) {
				n++
			}
		}
	}
	return n, nil
}
