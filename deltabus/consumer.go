package deltabus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/deltalog"
)

// Handler handles one event. Its answers: nil (done), Skip, RetryAfter, Stop, or any other error (try again within the retry
// budget, then dead-letter). A panic is an error. ctx ends when a stop has waited for the handler long enough.
type Handler func(ctx context.Context, e Event) error

// Consumer delivers the events of a bus to a handler, one after the other, in the order of docs/design.md, from a stored
// checkpoint that moves only after success. Delivery is at-least-once; a message id that was handled is not handled again within
// the dedup window. Run it once.
type Consumer struct {
	bus     *Bus
	id      string
	filter  Filter
	handler Handler
	o       consumerOptions

	stopOnce   sync.Once
	cancelOnce sync.Once
	stopping   chan struct{} // closed: no further event
	cancelled  chan struct{} // closed: the running handler is cancelled

	// The state of Run:
	stored    checkpointFile // as it is in the table
	at        Checkpoint     // as far as we are
	tableID   string
	last      time.Time // when the checkpoint was written, or first needed
	pending   int       // events settled since
	settled   int       // events settled in this run
	first     bool      // no event was handled in this run yet
	cautious  bool      // the last start got stuck: a checkpoint after each event shows at which
	writes    int
	seen      *window
	untilDone int64
}

// Consumer makes the consumer with this id. filter is as for ParseFilter. Several consumers with different ids do not know of each
// other; a second instance with the same id takes over, and the first stops with ErrFenced.
func (b *Bus) Consumer(id, filter string, handler Handler, options ...ConsumerOption) (*Consumer, error) {
	if id == "" || len(id) > 200 || !utf8.ValidString(id) {
		return nil, fmt.Errorf("consumer id %q: it must be 1 to 200 bytes of UTF-8", id)
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

// Stop makes Run end without an error: the running handler may finish, then a checkpoint is written. A second call cancels the
// handler's context; its event is delivered again at the next start. Stop does not wait.
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
// error: ErrFenced, ErrFilterChanged, ErrTableRecreated, ErrPositionExpired, ErrHistoryRewritten, what a handler gave to Stop, or a failure of the tables.
func (c *Consumer) Run(ctx context.Context) error {
	stopOnEnd := context.AfterFunc(ctx, func() { c.stopOnce.Do(func() { close(c.stopping) }) })
	defer stopOnEnd()
	// What is under way is finished after ctx has ended: the tables are written, the handler has its grace.
	work := context.WithoutCancel(ctx)
	err := c.start(work)
	for range 10 {
		if !errors.Is(err, ErrFenced) {
			break
		}
		err = c.start(work) // somebody else started in the same moment: the later one takes over
	}
	if err != nil {
		return c.explain(err)
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
	if saveErr := c.finish(work); saveErr != nil {
		return errors.Join(c.explain(err), saveErr)
	}
	return c.explain(err)
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
	snap, err := c.bus.messages.Snapshot(ctx)
	if err != nil {
		return err
	}
	c.tableID = snap.Metadata().ID
	if c.stored, err = c.bus.loadCheckpoint(ctx, c.id); err != nil {
		return err
	}
	c.bus.sweep(ctx)
	old := c.stored.Checkpoint
	if len(c.stored.files) == 0 || c.o.reset {
		c.at = Checkpoint{Consumer: c.id, Filter: c.filter.String(), TableID: c.tableID}
		if err := c.begin(ctx, snap); err != nil {
			return err
		}
	} else {
		c.at = old
		switch {
		case old.TableID != c.tableID, old.Version > snap.Version():
			return fmt.Errorf("consumer %s: %w since version %d: start it anew from earliest or latest", c.id, ErrTableRecreated, old.Version)
		case old.Filter != c.filter.String() && !c.o.changeFilter:
			return fmt.Errorf("consumer %s: %w: %q is stored, %q is asked for: use the stored one, another id, or say that it changed", c.id, ErrFilterChanged, old.Filter, c.filter)
		}
		c.at.Filter = c.filter.String()
	}
	c.at.Epoch, c.at.Owner = old.Epoch+1, c.o.owner
	c.cautious = c.at.StalledStarts > 0
	if c.o.until {
		c.untilDone = snap.Version()
	}
	if err := c.write(ctx); err != nil {
		return err
	}
	if c.o.observer.Start != nil {
		c.o.observer.Start(c.at, c.o.retry.MaxAttempts)
	}
	return c.remember(ctx)
}

// begin sets the position of a consumer that has none.
func (c *Consumer) begin(ctx context.Context, snap *deltalog.Snapshot) error {
	switch c.o.from.kind {
	case "latest":
		c.at.Version = snap.Version()
	case "version":
		c.at.Version = c.o.from.version - 1
		if c.at.Version > snap.Version() {
			return fmt.Errorf("consumer %s: version %d is not there yet, the newest is %d", c.id, c.o.from.version, snap.Version())
		}
	default:
		c.at.Version = -1
		earliest, err := c.bus.messages.EarliestVersion(ctx)
		if err != nil {
			return err
		}
		if earliest > 0 { // the feed no longer has everything: read the table as it is, then the feed
			v := snap.Version()
			c.at.Version, c.at.Backfill = v, &v
		}
	}
	return nil
}

// explain turns the errors of the feed into the consumer's own.
func (c *Consumer) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cdf.ErrNotInsert):
		var n *cdf.NotInsertError
		errors.As(err, &n)
		return &HistoryRewrittenError{Consumer: c.id, Version: n.Version, Cause: err}
	case errors.Is(err, cdf.ErrExpired):
		earliest, e := c.bus.messages.EarliestVersion(context.Background())
		if e != nil {
			earliest = -1
		}
		return &PositionExpiredError{Consumer: c.id, Version: c.at.Version + 1, Earliest: earliest, Cause: err}
	}
	return err
}

func (c *Consumer) loop(ctx context.Context) error {
	if c.at.Backfill != nil {
		if err := c.backfill(ctx); err != nil {
			return err
		}
	}
	feed := cdf.Follow(c.bus.messages, c.at.Version, messageNames())
	wait := 5 * time.Millisecond
	for {
		if c.stopped() || c.o.until && c.at.Version >= c.untilDone {
			return errStop
		}
		v, err := feed.Next(ctx)
		if err != nil {
			return err
		}
		if v == nil {
			if id := c.bus.messages.Cached().Metadata().ID; id != c.tableID {
				return fmt.Errorf("consumer %s: %w", c.id, ErrTableRecreated)
			}
			if err := c.idle(ctx, wait); err != nil {
				return err
			}
			wait = min(2*wait, c.o.poll)
			continue
		}
		wait = 5 * time.Millisecond
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

// idle waits for the next poll, and writes the checkpoint that is due meanwhile.
func (c *Consumer) idle(ctx context.Context, wait time.Duration) error {
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

// decode turns the rows of a version into events; of those that are not wanted only the order counts.
func (c *Consumer) decode(v *cdf.Version) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for batch, err := range v.Batches {
			if err != nil {
				yield(Event{}, err)
				return
			}
			for i := range int(batch.Rows.NumRows()) {
				e, err := messageRow(batch.Rows, 0, i)
				e.Version = v.Version
				if !c.wants(&e) {
					e.Payload, e.Headers = nil, map[string]string{HeaderReplayTo: e.Headers[HeaderReplayTo]}
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// backfill reads the rows of a snapshot in the order of one version.
func (c *Consumer) backfill(ctx context.Context) error {
	version := *c.at.Backfill
	snap, err := c.bus.messages.SnapshotAt(ctx, version)
	if err != nil {
		return &PositionExpiredError{Consumer: c.id, Version: version, Earliest: -1, Cause: err}
	}
	rows := func(yield func(Event, error) bool) {
		for rec, err := range c.bus.messages.Scan(ctx, snap, messageNames(), nil) {
			if err != nil {
				yield(Event{}, err)
				return
			}
			for i := range int(rec.NumRows()) {
				e, err := messageRow(rec, 0, i)
				e.Version = version
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
	if err := c.events(ctx, rows); err != nil {
		return err
	}
	c.at.Backfill, c.at.Version, c.at.Position = nil, version, 0
	return c.save(ctx)
}

// wants reports whether this consumer is to handle e: by its filter, unless it is a replay, which is for the one it names.
func (c *Consumer) wants(e *Event) bool {
	if to, ok := e.Headers[HeaderReplayTo]; ok && to != "" {
		return to == c.id
	}
	return c.filter.Match(e.Topic)
}

// events handles the events of one version, from the position on.
func (c *Consumer) events(ctx context.Context, source iter.Seq2[Event, error]) error {
	n := int64(0)
	for e, err := range sortedEvents(source, c.o.runRows, c.o.runB) {
		if err != nil {
			return err
		}
		n++
		if n <= c.at.Position {
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

// pendingSince notes since when there is something to write.
func (c *Consumer) pendingSince() {
	if c.last.IsZero() {
		c.last = c.bus.cfg.Clock()
	}
}

// maybeSave writes the checkpoint if it is due: after so many events, or so long after the first that is not in it; where nothing
// but the version moved, every few seconds.
func (c *Consumer) maybeSave(ctx context.Context) error {
	if c.last.IsZero() || samePlace(&c.at, &c.stored.Checkpoint) {
		return nil
	}
	since := c.bus.cfg.Clock().Sub(c.last)
	switch {
	case c.pending >= c.o.everyEvents, c.pending > 0 && since >= c.o.everyTime, c.pending > 0 && c.cautious, since >= c.o.idleEvery:
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
	if c.pending > 0 { // moved past what the last start was stuck at
		c.at.StalledStarts = 0
	}
	stored, err := c.bus.saveCheckpoint(ctx, c.stored, c.at)
	if err != nil {
		return err
	}
	c.stored, c.at = stored, stored.Checkpoint
	c.pending, c.last = 0, time.Time{}
	if c.writes++; c.writes%1000 == 0 {
		c.bus.sweep(ctx)
	}
	return nil
}

// finish writes the last checkpoint of a graceful end: the next start is no stalled one.
func (c *Consumer) finish(ctx context.Context) error {
	if c.at.StalledStarts == 0 && samePlace(&c.at, &c.stored.Checkpoint) {
		return nil
	}
	c.at.StalledStarts = 0
	return c.save(ctx)
}

// remember fills the dedup window with what was handled before the checkpoint.
func (c *Consumer) remember(ctx context.Context) error {
	const versions = 1000
	if c.o.dedup == 0 || c.at.Backfill != nil {
		return nil
	}
	earliest := max(0, c.at.Version-versions+1)
	var ids [][]string // newest version first
	total := 0
	for v := c.at.Version; v >= earliest && total < c.o.dedup; v-- {
		got, err := c.idsOf(ctx, v, -1)
		if err != nil {
			if errors.Is(err, cdf.ErrExpired) || errors.Is(err, cdf.ErrNotInsert) || errors.Is(err, cdf.ErrNotEnabled) || errors.Is(err, deltalog.ErrVersionNotFound) {
				break // as far back as the feed goes
			}
			return err
		}
		ids = append(ids, got)
		total += len(got)
	}
	for i := len(ids) - 1; i >= 0; i-- {
		for _, id := range ids[i] {
			c.seen.add(id)
		}
	}
	if c.at.Position == 0 {
		return nil
	}
	got, err := c.idsOf(ctx, c.at.Version+1, c.at.Position)
	if err != nil {
		return err
	}
	for _, id := range got {
		c.seen.add(id)
	}
	return nil
}

// idsOf is the ids that this consumer wants among the first n events of a version; all if n is negative.
func (c *Consumer) idsOf(ctx context.Context, version, n int64) ([]string, error) {
	v, err := cdf.Follow(c.bus.messages, version-1, messageNames()).Next(ctx)
	if err != nil || v == nil {
		return nil, err
	}
	var out []string
	i := int64(0)
	for e, err := range sortedEvents(c.decode(v), c.o.runRows, c.o.runB) {
		if err != nil {
			return nil, err
		}
		if i++; n >= 0 && i > n {
			break
		}
		if c.wants(e) {
			out = append(out, e.ID)
		}
	}
	return out, nil
}

// window remembers the last ids.
type window struct {
	ids  map[string]struct{}
	ring []string
	next int
}

func newWindow(n int) *window { return &window{ids: map[string]struct{}{}, ring: make([]string, 0, n)} }

func (w *window) has(id string) bool {
	_, ok := w.ids[id]
	return ok
}

func (w *window) add(id string) {
	if cap(w.ring) == 0 || w.has(id) {
		return
	}
	if len(w.ring) < cap(w.ring) {
		w.ring = append(w.ring, id)
	} else {
		delete(w.ids, w.ring[w.next])
		w.ring[w.next] = id
		w.next = (w.next + 1) % cap(w.ring)
	}
	w.ids[id] = struct{}{}
}
