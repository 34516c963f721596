package zerobusfake

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// committer owns the commits of one table: what all streams have waiting becomes one version (docs/design.md, decision 4).
type committer struct {
	name     string
	t        *deltalog.Table
	interval time.Duration
	limits   limits
	idle     sync.Pool     // of *idleRows, of streams that have ended
	pending  atomic.Int64  // bytes of rows that wait, of all streams
	work     chan struct{} // capacity 1: some stream has rows
	quit     chan struct{}
	once     sync.Once

	mu      sync.Mutex
	waiting []*ephemeral // in the order they came
	dirty   map[*ephemeral]bool
	broken  error         // a sync failed, or the table is gone: nothing more is committed here
	freed   chan struct{} // closed, and made anew, when rows were taken

	ended chan struct{} // closed: run has returned
}

// Spacing of commits, unless told otherwise (docs/decisions/0004). A lone record is not kept waiting for company that does not come; where
// more than one waits, every reader of the log gains by fewer, larger commits.
const (
	loneSpacing  = 4 * time.Millisecond
	groupSpacing = 20 * time.Millisecond
)

// limits bound what waits in memory, in bytes of rows: of the text or message they came as, and what a row takes in columns whatever is
// in it. Clients are slowed down by flow control, nothing is dropped; each may be exceeded by one message a stream.
type limits struct {
	stream int // waiting on one stream
	table  int // waiting on all streams of a table
	group  int // in one commit, beyond what the last stream brings
}

var defaultLimits = limits{stream: 32 << 20, table: 128 << 20, group: 128 << 20}

// committer finds or starts the committer of a table.
func (s *Server) committer(name string, t *deltalog.Table) (*committer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, errShuttingDown()
	}
	c := s.committers[t]
	if c == nil {
		c = &committer{
			name: name, t: t, interval: s.cfg.CommitInterval, limits: s.limits, work: make(chan struct{}, 1), quit: make(chan struct{}),
			dirty: map[*ephemeral]bool{}, freed: make(chan struct{}), ended: make(chan struct{}),
		}
		s.committers[t] = c
		s.running.Go(c.run)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return nil, c.broken
	}
	return c, nil
}

// idleRows are columns with the memory that a stream made them grow to, which a new one would have to find and clear anew.
type idleRows struct {
	schema string
	rows   *rows
}

// keep takes the rows of a stream that has ended, with all that it accepted committed.
func (c *committer) keep(st *ephemeral) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, r := range []*rows{st.rows, st.spare} {
		if r != nil && r.root.n == 0 {
			c.idle.Put(&idleRows{st.schema, r})
		}
	}
	st.rows, st.spare = nil, nil
}

// reuse gives rows of an earlier stream for the schema, or else fresh.
func (c *committer) reuse(schema string, fresh *rows) *rows {
	if old, ok := c.idle.Get().(*idleRows); ok && old.schema == schema {
		return old.rows
	}
	return fresh
}

// stop ends the committer when nothing waits any more.
func (c *committer) stop() { c.once.Do(func() { close(c.quit) }) }

// refuse makes err the answer to whatever waits or comes, and returns when nothing is being committed any more.
func (c *committer) refuse(err error) {
	c.mu.Lock()
	c.broken = err
	c.mu.Unlock()
	c.stop()
	<-c.ended
}

// fullFor is nil if st may take another message, and else a channel that is closed when that may have changed.
func (c *committer) fullFor(st *ephemeral) <-chan struct{} {
	full := func() bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.failed == nil && (st.bytes > c.limits.stream || c.pending.Load() > int64(c.limits.table))
	}
	if !full() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil || !full() { // a message to a broken table ends its stream; what waits for it is taken no more
		return nil
	}
	return c.freed
}

// offer says that st has rows waiting.
func (c *committer) offer(st *ephemeral) {
	c.mu.Lock()
	broken := c.broken
	if broken == nil && !c.dirty[st] {
		c.dirty[st] = true
		c.waiting = append(c.waiting, st)
	}
	c.mu.Unlock()
	if broken != nil {
		c.end([]taken{{st: st}}, broken)
		return
	}
	notify(c.work)
}

func (c *committer) run() {
	defer close(c.ended)
	var last time.Time
	for {
		select {
		case <-c.work:
		case <-c.quit:
			for c.commitOnce() {
			}
			return
		}
		for c.someWaiting() {
			c.holdBack(last)
			last = time.Now()
			c.commitOnce()
		}
	}
}

// someWaiting reports whether a stream has rows waiting. Without any the last commit stays the one to space from: an empty turn would put off
// the record that comes next.
func (c *committer) someWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) > 0
}

// holdBack returns when the spacing from the last commit is over, or at the end. Company that comes while a lone record is held back
// makes the wait longer, so it looks again.
func (c *committer) holdBack(last time.Time) {
	for {
		wait := time.Until(last.Add(c.spacing()))
		if wait <= 0 {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.quit:
			timer.Stop()
			return
		}
	}
}

// spacing is the time from one commit to the next.
func (c *committer) spacing() time.Duration {
	if c.interval > 0 {
		return c.interval
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 1 {
		st := c.waiting[0]
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.accepted-st.acked <= 1 {
			return loneSpacing
		}
	}
	return groupSpacing
}

// taken is the rows of one stream that go into a commit.
type taken struct {
	st     *ephemeral
	rows   *rows
	offset int64
}

// take collects what waits, in the order of the streams.
func (c *committer) take() []taken {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []taken
	size, n := 0, 0
	for _, st := range c.waiting {
		if size > c.limits.group {
			break
		}
		n++
		delete(c.dirty, st)
		st.mu.Lock()
		if st.failed == nil && st.accepted > st.acked {
			out = append(out, taken{st, st.rows, st.accepted})
			size += st.bytes
			st.rows, st.spare = st.spare, nil
		} else if st.rows != nil { // of a stream that failed; one that ended may be offered late, with nothing
			st.rows.root.reset()
		}
		c.pending.Add(-int64(st.bytes))
		st.bytes = 0
		st.mu.Unlock()
	}
	if n > 0 {
		close(c.freed)
		c.freed = make(chan struct{})
	}
	c.waiting = append(c.waiting[:0:0], c.waiting[n:]...)
	return out
}

// commitOnce commits what waits; false if nothing did.
func (c *committer) commitOnce() bool {
	group := c.take()
	if len(group) == 0 {
		return false
	}
	c.mu.Lock()
	broken := c.broken
	c.mu.Unlock()
	if broken != nil {
		c.end(group, broken)
		return true
	}
	group, err := c.commit(group)
	if err != nil {
		c.fail(group, err)
		return true
	}
	for _, g := range group {
		g.rows.root.reset()
		g.st.mu.Lock()
		g.st.acked = g.offset
		g.st.spare = g.rows
		g.st.mu.Unlock()
		notify(g.st.wake)
	}
	return true
}

// commit commits a group, and returns the part of it that the outcome is for: streams whose table changed under them fail by
// themselves, and the others go on.
func (c *committer) commit(group []taken) ([]taken, error) {
	// What a client handed over is committed whether its stream is still there or not.
	ctx := context.Background()
	for attempt := 0; ; attempt++ {
		snap := c.t.Cached()
		group = c.dropOutdated(group, snap)
		batches := make([]arrow.RecordBatch, 0, len(group))
		for _, g := range group {
			if g.rows.root.n > 0 {
				batches = append(batches, g.rows.batch())
			}
		}
		if len(batches) == 0 {
			return group, nil // only empty batches
		}
		adds, err := c.t.WriteFiles(ctx, snap, batches)
		if err != nil {
			return group, err
		}
		_, err = c.t.Commit(ctx, deltalog.Transaction{
			Base: snap, Operation: "STREAMING UPDATE", Adds: adds,
			Parameters: map[string]any{"outputMode": "Append", "source": "zerobus"},
		})
		if errors.Is(err, deltalog.ErrConflict) && attempt == 0 {
			continue // the metadata changed: look again
		}
		return group, err
	}
}

// dropOutdated fails the streams that were made for another schema: their clients come back with a new stream, which is checked anew.
func (c *committer) dropOutdated(group []taken, snap *deltalog.Snapshot) []taken {
	var kept, outdated []taken
	for _, g := range group {
		if g.st.meta == snap.Metadata().ID && g.st.schema == snap.Metadata().SchemaString {
			kept = append(kept, g)
		} else {
			outdated = append(outdated, g)
		}
	}
	c.end(outdated, status.Errorf(codes.Unavailable, "the schema of table %s changed: open a new stream", c.name))
	return kept
}

// fail ends the streams of a group that could not be committed. Nothing of it was acknowledged, so the clients send it again, unless the table is
// gone or damaged.
func (c *committer) fail(group []taken, err error) {
	st := tableStatus(c.name, err)
	if errors.Is(err, store.ErrSyncFailed) {
		st = status.Errorf(codes.Unavailable, "commit to table %s failed and its state on disk is unknown, restart the server: %v", c.name, err)
	}
	if errors.Is(err, store.ErrSyncFailed) || status.Code(st) == codes.NotFound {
		c.mu.Lock()
		c.broken = st
		c.mu.Unlock()
	}
	timer := time.NewTimer(pace)
	select {
	case <-timer.C:
	case <-c.quit:
		timer.Stop()
	}
	c.end(group, st)
}

// end fails the streams of a group.
func (c *committer) end(group []taken, err error) {
	for _, g := range group {
		g.st.mu.Lock()
		g.st.failed = err
		g.st.mu.Unlock()
		notify(g.st.wake)
	}
}
