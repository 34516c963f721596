package deltabus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/deltalog"
)

// Handler handles one event. Its answers: nil (done), Skip, RetryAfter, Stop, or any other error (try again within the retry
// budget, then dead-letter). A panic is an error. ctx ends when a stop has waited for the handler long enough, or another instance has taken
// over. It runs in a goroutine of its own, one call at a time.
type Handler func(ctx context.Context, e Event) error

// Consumer delivers the events of a bus to a handler, one after the other, in the order of docs/design.md, from a stored
// checkpoint that moves only after success. Delivery is at-least-once; a message id that was handled is not handled again within
// the dedup window. It runs once.
type Consumer struct {
	bus     *Bus
	id      string
	filter  Filter
	handler Handler
	o       consumerOptions
	ran     atomic.Bool

	stopOnce   sync.Once
	cancelOnce sync.Once
	stopping   chan struct{} // closed: no further event
	cancelled  chan struct{} // closed: the running handler is cancelled

	// The state of Run:
	stored    Checkpoint // as it is in the table; its Epoch is 0 if it is not
	at        Checkpoint // as far as we are
	tableID   string
	last      time.Time // since when something is to be written; zero: nothing
	pending   int       // events settled since the last checkpoint
	settled   int       // events settled in this run
	first     bool      // no event was settled in this run yet
	cautious  bool      // the last start got stuck: a checkpoint after each event shows at which
	earliest  bool      // it began at the earliest event in this run, and may turn to the table's rows
	writes    int
	seen      *window
	untilDone int64
}

// Consumer makes the consumer with this id, 1 to 200 bytes without control characters. filter is as for ParseFilter. Several
// consumers with different ids do not know of each other; a second instance with the same id takes over, and the first stops with ErrFenced.
func (b *Bus) Consumer(id, filter string, handler Handler, options ...ConsumerOption) (*Consumer, error) {
	if err := validConsumer(id); err != nil {
		return nil, err
	}
	f, err := ParseFilter(filter)
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", id, err)
	}
	if handler == nil {
		return nil, fmt.Errorf("consumer %s: a handler is required", id)
	}
	o, err := newConsumerOptions(options)
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", id, err)
	}
	return &Consumer{
		bus: b, id: id, filter: f, handler: handler, o: o, stopping: make(chan struct{}), cancelled: make(chan struct{}),
		seen: newWindow(o.dedup), first: true, untilDone: -1,
	}, nil
}

// validConsumer checks an id, which is part of the name of a directory.
func validConsumer(id string) error {
	size := 0
	for i := range len(id) {
		switch c := id[i]; {
		case c < 0x20 || c == 0x7f:
			return fmt.Errorf("consumer id %q: control characters are not allowed", id)
		case c < 0x80 && !validSegment(id[i:i+1]) && c != '.' && c != ' ' && c != '@' && c != '+':
			size += 3 // perhaps escaped in the name
		default:
			size++
		}
	}
	if id == "" || size > 200 || !utf8.ValidString(id) {
		return fmt.Errorf("consumer id %q: it must be 1 to 200 bytes of UTF-8, punctuation counting three", id)
	}
	return nil
}

// Stop makes Run end without an error: the running handler may finish, then a checkpoint is written. A second call cancels the
// handler's context; its event is delivered again at the next start. Stop does not wait. Safe for concurrent use.
func (c *Consumer) Stop() {
	again := true
	c.stopOnce.Do(func() { close(c.stopping); again = false })
	if again {
		c.cancelOnce.Do(func() { close(c.cancelled) })
	}
}

// errStop ends the loop without an error.
var errStop = errors.New("stop")

// Run consumes until Stop is called or ctx ends (both are graceful and return nil), until the end that an option sets, or until an
// error: ErrFenced, ErrFilterChanged, ErrTableRecreated, ErrTableDropped, ErrPositionExpired, ErrHistoryRewritten, what a handler gave to Stop, or a
// failure of the tables. A second call is refused.
func (c *Consumer) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return fmt.Errorf("consumer %s: it has run already: make another one", c.id)
	}
	stopOnEnd := context.AfterFunc(ctx, func() { c.stopOnce.Do(func() { close(c.stopping) }) })
	defer stopOnEnd()
	// What is under way is finished after ctx has ended: the tables are written, the handler has its grace.
	work := context.WithoutCancel(ctx)
	err := c.start(work)
	for i := 0; i < 10 && errors.Is(err, ErrFenced); i++ {
		err = c.start(work) // somebody else started in the same moment: the later one takes over
	}
	if err != nil {
		return c.explain(err)
	}
	if c.o.observer.Start != nil {
		c.o.observer.Start(c.at, c.o.retry.MaxAttempts)
	}
	err = c.loop(work)
	var stop *stopError
	switch {
	case errors.Is(err, errStop):
		err = nil
	case errors.As(err, &stop):
		err = stop.err
	case errors.Is(err, ErrFenced):
		return err // nothing more is ours to write
	}
	saveErr := c.finish(work)
	if saveErr == nil || errors.Is(err, ErrTableDropped) && errors.Is(saveErr, ErrTableDropped) { // which says the same again
		return c.explain(err)
	}
	return errors.Join(c.explain(err), saveErr)
}

func (c *Consumer) stopped() bool {
	select {
	case <-c.stopping:
		return true
	default:
		return false
	}
}

// start finds out where to begin and takes the next epoch.
func (c *Consumer) start(ctx context.Context) error {
	now, err := insistOn(ctx, c, "read messages", func() (head, error) { return c.bus.backend.head(ctx) })
	if err != nil {
		return err
	}
	c.tableID = now.tableID
	if now.recreated {
		return c.recreated()
	}
	c.stored, err = insistOn(ctx, c, "read checkpoint", func() (Checkpoint, error) { return c.bus.backend.checkpoint(ctx, c.id) })
	if err != nil {
		return err
	}
	c.tidy(ctx)
	old := c.stored
	switch {
	case old.Epoch == 0 || c.o.reset:
		c.at = Checkpoint{Consumer: c.id, TableID: c.tableID}
		if err := c.begin(ctx, now); err != nil {
			return err
		}
	case old.TableID != c.tableID, old.Version > now.version, old.Backfill != nil && *old.Backfill > now.version:
		return c.recreated()
	case old.Filter != c.filter.String() && !c.o.changeFilter:
		return fmt.Errorf("consumer %s: %w: %q is stored, %q is asked for: use the stored one, another id, or say that it changed", c.id, ErrFilterChanged, old.Filter, c.filter)
	default:
		if err := c.checkRecreated(ctx, old.Version); err != nil {
			return err
		}
		c.at = old
		if old.Filter != c.filter.String() {
			c.at.Since = lastTouched(&old) // the old filter did not let pass all that this one wants
		}
	}
	// The random part tells instances apart that were given the same name.
	c.at.Filter, c.at.Epoch, c.at.Owner = c.filter.String(), old.Epoch+1, c.o.owner+"/"+uuid.NewString()[:8]
	c.cautious = c.at.StalledStarts > 0
	if c.o.until {
		c.untilDone = now.version
	}
	return c.write(ctx)
}

// begin sets the position of a consumer that has none.
func (c *Consumer) begin(ctx context.Context, now head) error {
	c.earliest = false
	switch c.o.from.kind {
	case "latest":
		c.at.Version = now.version
	case "version":
		c.at.Version = c.o.from.version - 1
		if c.at.Version > now.version {
			return fmt.Errorf("consumer %s: %w: version %d is not there yet, the newest is %d: start from latest to get what comes next", c.id, deltalog.ErrVersionNotFound, c.o.from.version, now.version)
		}
	default:
		c.at.Version = -1
		whole, err := insistOn(ctx, c, "read messages", func() (bool, error) {
			v, feed, err := c.bus.backend.earliest(ctx)
			return v == 0 && feed, err
		})
		if err != nil {
			return err
		}
		if c.earliest = true; !whole { // the feed does not have everything: read the table as it is, then the feed
			c.startBackfill(now.version)
		}
	}
	c.at.Since = c.at.Version
	return nil
}

// lastTouched is the last version of which anything was done.
func lastTouched(c *Checkpoint) int64 {
	switch {
	case c.Backfill != nil:
		return *c.Backfill
	case c.Position > 0:
		return c.Version + 1
	}
	return c.Version
}

func (c *Consumer) startBackfill(version int64) {
	c.earliest = false
	c.at.Version, c.at.Position, c.at.Backfill = -1, 0, &version
}

// explain turns the errors of the feed into the consumer's own.
func (c *Consumer) explain(err error) error {
	var n *cdf.RewrittenError
	var read *readError
	switch {
	case errors.As(err, &read) && errors.Is(err, deltalog.ErrRecreated): // of messages, not of another table
		return c.recreated()
	case errors.As(err, &n):
		return &HistoryRewrittenError{Consumer: c.id, Version: n.Version, Cause: err}
	case errors.As(err, &read) && errors.Is(err, deltalog.ErrNotTable):
		return c.dropped(fmt.Errorf("table %s.%s: %w", c.bus.Schema(), MessagesTable, ErrTableDropped))
	case errors.Is(err, ErrTableDropped):
		return c.dropped(err)
	case errors.Is(err, cdf.ErrExpired):
		// What is missing may be missing with the whole table.
		if anew, err := c.bus.backend.recreated(context.Background(), max(0, c.at.Version)); anew {
			return c.recreated()
		} else if errors.Is(err, ErrTableDropped) {
			return c.dropped(err)
		}
		expired := &PositionExpiredError{Consumer: c.id, Version: c.at.Version + 1, Earliest: -1, Cause: err}
		if c.at.Backfill != nil {
			expired.Version = *c.at.Backfill
		}
		if earliest, _, e := c.bus.backend.earliest(context.Background()); e == nil {
			expired.Earliest = earliest
		}
		return expired
	}
	return err
}

func (c *Consumer) dropped(err error) error {
	return fmt.Errorf("consumer %s: %w: make it again with Init", c.id, err)
}

func (c *Consumer) recreated() error {
	return fmt.Errorf("consumer %s: %w: open the bus again, and start the consumer anew from earliest or latest", c.id, ErrTableRecreated)
}

// checkRecreated refuses to go on where the messages table that was read up to version is no longer there.
func (c *Consumer) checkRecreated(ctx context.Context, version int64) error {
	if version < 0 {
		return nil
	}
	gone, err := insistOn(ctx, c, "read messages", func() (bool, error) { return c.bus.backend.recreated(ctx, version) })
	if err == nil && gone {
		err = c.recreated()
	}
	return err
}

// pendingSince notes since when there is something to write.
func (c *Consumer) pendingSince() {
	if c.last.IsZero() {
		c.last = c.bus.cfg.Clock()
	}
}

// maybeSave writes the checkpoint if it is due: after so many events, or so long after the first that is not in it; where nothing
// but the version moved, every few seconds.
func (c *Consumer) maybeSave(ctx context.Context) error {
	if c.last.IsZero() || samePlace(&c.at, &c.stored) {
		return nil
	}
	since := c.bus.cfg.Clock().Sub(c.last)
	switch {
	case c.pending >= c.o.everyEvents, c.pending > 0 && since >= c.o.everyTime, c.pending > 0 && c.cautious, c.pending == 0 && since >= c.o.idleEvery:
		return c.save(ctx)
	}
	return nil
}

func samePlace(a, b *Checkpoint) bool {
	return a.Version == b.Version && a.Position == b.Position && (a.Backfill == nil) == (b.Backfill == nil)
}

// save writes the checkpoint and tells the observer.
func (c *Consumer) save(ctx context.Context) error {
	if err := c.write(ctx); err != nil {
		return err
	}
	if c.o.observer.Checkpoint != nil {
		c.o.observer.Checkpoint(c.at)
	}
	return nil
}

func (c *Consumer) write(ctx context.Context) error {
	next := c.at
	next.UpdatedAt = c.bus.cfg.Clock().UTC().Truncate(time.Microsecond)
	if c.pending > 0 { // moved past what the last start was stuck at
		next.StalledStarts = 0
	}
	err := c.insist(ctx, "write checkpoint", func(int) error { return c.bus.backend.saveCheckpoint(ctx, c.stored, next) })
	if err != nil {
		return err
	}
	c.stored, c.at = next, next
	c.pending, c.last = 0, time.Time{}
	if c.writes++; c.writes%1000 == 0 {
		c.tidy(ctx)
	}
	return nil
}

// tidy keeps the tables that are written here small. That it fails is no reason to stop.
func (c *Consumer) tidy(ctx context.Context) {
	if err := c.bus.backend.tidy(ctx); err != nil {
		c.bus.cfg.Logger.Warn("clean up checkpoints and dead letters", "consumer", c.id, "error", err)
	}
}

// finish writes the last checkpoint of a graceful end: the next start is no stalled one.
func (c *Consumer) finish(ctx context.Context) error {
	if c.at.StalledStarts == 0 && samePlace(&c.at, &c.stored) {
		return nil
	}
	c.at.StalledStarts = 0
	return c.save(ctx)
}
