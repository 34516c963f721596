package deltabus

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/deltabus/deltabus-local/cdf"
)

// firstPoll is the pause after the first look that finds nothing new; it doubles up to the poll interval.
const firstPoll = 5 * time.Millisecond

// loop reads what there is to read until something ends it.
func (c *Consumer) loop(ctx context.Context) error {
	if err := c.remember(ctx); err != nil {
		return err
	}
	for {
		err := c.insistOnReading(ctx)
		if !c.earliest || !errors.Is(err, cdf.ErrExpired) {
			return err
		}
		// The log has every version, but not every file is there any more: OPTIMIZE replaced them, and VACUUM removed them. Their rows are in
		// the table; those that were handled before are in the dedup window.
		now, err := insistOn(ctx, c, "read messages", func() (head, error) { return c.bus.backend.head(ctx) })
		if err != nil {
			return err
		}
		c.startBackfill(now.version)
		if err := c.save(ctx); err != nil {
			return err
		}
	}
}

// insistOnReading follows until something else fails than a read, or reads fail too often without an event between them.
func (c *Consumer) insistOnReading(ctx context.Context) error {
	for {
		var err error
		before := c.at
		read := c.insist(ctx, "read messages", func(int) error {
			var failed *readError
			if err = c.follow(ctx); errors.As(err, &failed) && samePlace(&before, &c.at) {
				return err
			}
			return nil
		})
		var failed *readError
		if read != nil || !errors.As(err, &failed) || isFinal(err) {
			return err
		}
	}
}

// follow does the backfill, if one is due, and then one version after the other.
func (c *Consumer) follow(ctx context.Context) error {
	if c.at.Backfill != nil {
		if err := c.backfill(ctx); err != nil {
			return err
		}
	}
	feed := c.bus.backend.follow(c.at.Version, messageNames())
	wait, idle, checked := firstPoll, false, c.bus.cfg.Clock()
	for {
		if c.stopped() || c.o.until && c.at.Version >= c.untilDone {
			return errStop
		}
		v, err := feed.Next(ctx)
		if err != nil {
			return &readError{err}
		}
		// Looking for the next version does not notice that the last one is no longer the one that was read.
		if now := c.bus.cfg.Clock(); v != nil && idle || v == nil && now.Sub(checked) >= c.o.idleEvery {
			if err := c.checkRecreated(ctx, c.at.Version); err != nil {
				return err
			}
			checked = now
		}
		if idle = v == nil; idle {
			if err := c.rest(ctx, wait); err != nil {
				return err
			}
			wait = min(2*wait, c.o.poll)
			continue
		}
		wait = min(firstPoll, c.o.poll)
		if err := c.events(ctx, c.decode(v)); err != nil {
			return err
		}
		c.at.Version, c.at.Position = v.Version, 0
		c.pendingSince()
		if err := c.maybeSave(ctx); err != nil {
			return err
		}
	}
}

// rest waits for the next poll, and writes the checkpoint that is due meanwhile.
func (c *Consumer) rest(ctx context.Context, wait time.Duration) error {
	if err := c.maybeSave(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.stopping:
		return errStop
	}
}

// decode turns the rows of a version into events.
func (c *Consumer) decode(v *cdf.Version) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for batch, err := range v.Inserts() {
			if err != nil {
				yield(Event{}, &readError{err})
				return
			}
			if !c.decodeRows(batch.Rows, v.Version, yield) {
				return
			}
		}
	}
}

// decodeRows yields the rows of a batch; of those that are not wanted only the order counts.
func (c *Consumer) decodeRows(rec arrow.RecordBatch, version int64, yield func(Event, error) bool) bool {
	if c.stopped() { // a huge version is not read to its end for nothing
		yield(Event{}, errStop)
		return false
	}
	for i := range int(rec.NumRows()) {
		e, err := messageRow(rec, 0, i)
		e.Version = version
		if !c.wants(&e) {
			replayTo := e.Headers[HeaderReplayTo]
			e.Payload, e.Headers = nil, nil
			if replayTo != "" {
				e.Headers = map[string]string{HeaderReplayTo: replayTo}
			}
		}
		if !yield(e, err) || err != nil {
			return false
		}
	}
	return true
}

// backfill reads the rows of a snapshot in the order of one version.
func (c *Consumer) backfill(ctx context.Context) error {
	version := *c.at.Backfill
	rows := func(yield func(Event, error) bool) {
		for rec, err := range c.bus.backend.rows(ctx, version, messageNames()) {
			if err != nil {
				yield(Event{}, &readError{err})
				return
			}
			if !c.decodeRows(rec, version, yield) {
				return
			}
		}
	}
	if err := c.events(ctx, rows); err != nil {
		return err
	}
	c.at.Backfill, c.at.Version, c.at.Position = nil, version, 0
	return c.save(ctx)
}

// events handles the events of one version, from the position on.
func (c *Consumer) events(ctx context.Context, source iter.Seq2[Event, error]) error {
	n := int64(0)
	for e, err := range sortedEvents(source, c.o.sortRows, c.o.sortBytes) {
		if err != nil {
			return err
		}
		n++
		if n <= c.at.Position { // settled before this start
			if c.wants(e) && e.Version > c.at.Since {
				c.seen.add(e.ID)
			}
			continue
		}
		if c.stopped() {
			return errStop
		}
		dead := false
		if c.wants(e) && !c.seen.has(e.ID) {
			if dead, err = c.settle(ctx, e); err != nil {
				return err
			}
			c.seen.add(e.ID)
			c.pending++
			c.settled++
			c.first = false
		}
		c.at.Position = n
		c.pendingSince()
		if dead { // so that it is not tried again
			err = c.save(ctx)
		} else {
			err = c.maybeSave(ctx)
		}
		if err != nil {
			return err
		}
		if c.o.maxEvents > 0 && c.settled >= c.o.maxEvents {
			return errStop
		}
	}
	return nil
}
