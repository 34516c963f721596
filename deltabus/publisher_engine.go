package deltabus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/deltabus/deltabus-local/internal/zerobus"
)

// journal is what a publisher needs of the messages table.
type journal interface {
	// version is the table's newest version.
	version(ctx context.Context) (int64, error)
	// own finds this producer's rows.
	own(ctx context.Context, q ownQuery) (ownRows, error)
	// append commits messages as one version with the txn (producer, seq of the last). With since >= 0 it fails with
	// deltalog.ErrConflict if anyone added rows after version since. It fails with deltalog.ErrTxnAlreadyCommitted if the table has that txn.
	append(ctx context.Context, producer string, msgs []*entry, since int64) error
}

// ownQuery asks for rows of producer with seq >= fromSeq, in versions above after (-1: in the whole table).
type ownQuery struct {
	producer string
	after    int64
	fromSeq  int64
}

// ownRows is the answer: as of version upTo, these rows are there, and all up to txn (-1: none) that are not are
// nowhere.
type ownRows struct {
	seqs map[int64]bool
	txn  int64
	upTo int64
}

// mark says that no message with producer_seq >= seq is in a version <= version.
type mark struct{ seq, version int64 }

// markInterval is how often the table's version is noted while messages flow through Zerobus: it bounds the
// commits that a look-up reads.
const markInterval = 10 * time.Second

// run moves the messages until the publisher is closed and empty, or given up. One path at a time: the next begins
// only when the fate of all that was handed to the last one is known.
func (p *Publisher) run(inherited bool) {
	defer close(p.done)
	defer p.giveUp()
	p.probing = p.opts.probeFirst
	if inherited { // messages from the spool: the last process may have handed them over
		if p.settle(false) != nil {
			return
		}
	} else if p.endpoint != nil {
		p.note(p.ctx) // a failure costs a longer look-up later
	}
	if p.endpoint == nil {
		p.runBatches()
		return
	}
	for away := false; !p.ended(); {
		var st *stream
		if !away {
			st = p.reopen()
		}
		if st == nil && !p.ended() {
			p.setPath(PathBatch)
			if st = p.runBatches(); st != nil {
				p.setPath(PathZerobus)
			}
		}
		if st == nil {
			return
		}
		end := p.runStream(st)
		if end == nil || p.afterStream(end) != nil {
			return
		}
		away = end.away
	}
}

// reopen tries to open a stream for the recovery time, at least once, or until the endpoint says that it makes no
// sense. nil: it is not there.
func (p *Publisher) reopen() *stream {
	deadline := time.Now().Add(p.opts.recovery)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithTimeout(p.ctx, max(time.Until(deadline), time.Second))
		st, err := p.openStream(ctx)
		cancel()
		if err == nil {
			return st
		}
		var e *zerobus.Error
		if !errors.As(err, &e) || !e.Retryable() || time.Until(deadline) < pause || p.sleep(p.ctx, pause) != nil {
			if p.ctx.Err() == nil {
				p.log.Warn("zerobus endpoint is not there: messages go by batch writes", "error", err)
			}
			return nil
		}
	}
}

// afterStream finds out what became of the messages of a stream that ended: it settles them, and singles out one that
// was refused.
func (p *Publisher) afterStream(end *streamEnd) error {
	if end.unacked == 0 { // everything that was handed over is acknowledged, or never left
		p.mu.Lock()
		for _, e := range p.queue[:p.sent] {
			e.handed = false
		}
		p.sent = 0
		p.mu.Unlock()
		return p.ctx.Err()
	}
	if end.refusal() {
		p.mu.Lock()
		if end.unacked == 1 {
			p.refused, p.refusal = p.queue[0], end.cause // unless the table has it
		} else {
			p.isolate = end.unacked // it is one of these: send them one by one
		}
		p.mu.Unlock()
	} else {
		p.log.Info("zerobus stream ended with messages in flight: looking them up", "error", end.cause)
	}
	return p.settle(end.settled())
}

// settle learns which of the messages that were handed over are in the table and completes them; the rest is to be
// sent again. It tries until it knows. over: the server is known to have ended the stream itself.
func (p *Publisher) settle(over bool) error {
	if !over {
		if err := p.sleep(p.ctx, p.opts.settleDelay); err != nil {
			return err
		}
	}
	err := p.retry("look up what was written", func() error { return p.lookUp(p.ctx) })
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.contend = !over && len(p.queue) > 0
	p.sent = 0
	if p.refused != nil {
		if e := p.refused; !e.completed() {
			p.queue = p.queue[1:]
			p.complete(e, PathZerobus, &RefusedError{MessageID: e.msg.ID, Cause: p.refusal})
			p.notify()
		}
		p.refused, p.refusal = nil, nil
	}
	for _, e := range p.queue {
		e.handed = false
	}
	return nil
}

// lookUp completes the messages at the head of the queue that are in the table.
func (p *Publisher) lookUp(ctx context.Context) error {
	p.mu.Lock()
	if len(p.queue) == 0 {
		p.mu.Unlock()
		return nil
	}
	first := p.queue[0].receipt.ProducerSeq
	p.mu.Unlock()
	q := ownQuery{producer: p.id, after: -1, fromSeq: first}
	for _, m := range p.marks {
		if m.seq <= first {
			q.after = m.version
		}
	}
	rows, err := p.table.own(ctx, q)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.queue[:0:0]
	for i, e := range p.queue {
		if seq := e.receipt.ProducerSeq; rows.seqs[seq] || seq <= rows.txn {
			p.complete(e, p.path, nil)
			if i < p.isolate {
				p.isolate--
			}
		} else {
			kept = append(kept, e)
		}
	}
	p.queue = kept
	p.notify()
	p.marks = []mark{{seq: p.unsentSeq(0), version: rows.upTo}}
	return nil
}

// note remembers that nothing that is still to be sent is in the table's versions so far.
func (p *Publisher) note(ctx context.Context) {
	v, err := p.table.version(ctx)
	if err != nil {
		p.log.Debug("read the table's version", "error", err)
		return
	}
	p.mu.Lock()
	m := mark{seq: p.unsentSeq(p.sent), version: v}
	first := p.unsentSeq(0)
	p.mu.Unlock()
	marks := p.marks
	for len(marks) > 1 && marks[1].seq <= first {
		marks = marks[1:]
	}
	p.marks = append(marks, m)
	p.trimSpool(ctx)
}

// unsentSeq is the producer_seq of queue[i], or the next one to be given; p.mu is held.
func (p *Publisher) unsentSeq(i int) int64 {
	switch {
	case i < len(p.queue):
		return p.queue[i].receipt.ProducerSeq
	case len(p.spooling) > 0:
		return p.spooling[0].receipt.ProducerSeq
	}
	return p.nextSeq
}

// retry calls f with growing pauses until it succeeds; the error is the reason to give up. That the table was dropped is one, once it is so for
// the recovery time: a workspace that starts may not know its tables at first.
func (p *Publisher) retry(what string, f func() error) error {
	var gone time.Time // since when
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := f()
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrTableDropped) {
			gone = time.Time{}
		} else if gone.IsZero() {
			gone = time.Now()
		}
		if !gone.IsZero() && time.Since(gone) >= p.opts.recovery {
			err = fmt.Errorf("publish: %w: make it again with Init, and publish what was not delivered to the new one", err)
			p.mu.Lock()
			p.broken, p.lastErr = err, nil
			p.mu.Unlock()
			p.cancel(err)
			return err
		}
		if p.ctx.Err() == nil {
			p.log.Warn("publisher: "+what+": trying again", "error", err, "pause", pause)
		}
		p.mu.Lock()
		p.lastErr = err
		p.mu.Unlock()
		if err := p.sleep(p.ctx, pause); err != nil {
			return err
		}
	}
}

func (p *Publisher) sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ended reports whether there is nothing left to do.
func (p *Publisher) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ctx.Err() != nil || p.closing && p.count == 0
}

// giveUp fails what is left when the engine ends.
func (p *Publisher) giveUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closing = true
	if p.count > 0 {
		p.gone = context.Cause(p.ctx)
		if p.lastErr != nil {
			p.gone = fmt.Errorf("%w: %w", p.gone, p.lastErr)
		}
	}
	for _, e := range slices.Concat(p.queue, p.spooling) {
		p.complete(e, "", p.gone)
	}
	p.queue, p.spooling = nil, nil
	p.notify()
	p.cancel(nil)
}

func (p *Publisher) setPath(path Path) {
	p.mu.Lock()
	changed := p.path != path
	p.path = path
	p.mu.Unlock()
	if changed {
		p.log.Info("publisher changes its path", "to", path)
	}
}

// firstBatch is the number of messages, and their bytes, that one batch takes: as many as the bounds allow, at least one.
func firstBatch(queue []*entry, messages int, bytes int64) (n int, size int64) {
	for n < len(queue) && n < messages && (n == 0 || size+queue[n].bytes <= bytes) {
		size += queue[n].bytes
		n++
	}
	return n, size
}
