package deltabus

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
)

// contendAttempts bounds how often a batch is rebuilt because others wrote to the table meanwhile.
const contendAttempts = 20

// runBatches writes messages to the table until the Zerobus endpoint is back (it returns the open stream) or the
// publisher has ended (nil). When it returns, no batch is in doubt.
func (p *Publisher) runBatches() *stream {
	opened, stop := p.probe()
	defer stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !p.ended() {
		select {
		case st := <-opened:
			return st
		default:
		}
		n, wait := p.batchReady()
		if n > 0 {
			if p.writeBatch(n) != nil {
				return nil
			}
			p.trimSpool(p.ctx)
			continue
		}
		timer.Reset(wait)
		select {
		case st := <-opened:
			return st
		case <-p.wake:
		case <-timer.C:
		case <-p.ctx.Done():
		}
	}
	return nil
}

// batchReady says how many messages to write now, or how long to wait.
func (p *Publisher) batchReady() (n int, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return 0, time.Hour // a message wakes the engine up
	}
	first := p.queue[0]
	n, size := firstBatch(p.queue, p.opts.batchMessages, p.opts.batchBytes)
	full := n == p.opts.batchMessages || size >= p.opts.batchBytes || n < len(p.queue) ||
		!p.roomFor(1, 1) // those that wait for room must not wait for the interval
	wait = p.opts.batchInterval - p.clock().Sub(first.queued)
	if full || p.closing || first.receipt.ProducerSeq < p.flushTo || wait <= 0 {
		return n, 0
	}
	return 0, min(wait, p.opts.batchInterval)
}

// writeBatch commits the first n messages as one version and completes them. It tries until the outcome is known; the
// error is the reason to give up.
func (p *Publisher) writeBatch(n int) error {
	p.mu.Lock()
	batch := slices.Clone(p.queue[:n])
	p.sent = n
	for _, e := range batch {
		e.handed = true
	}
	p.mu.Unlock()
	attempts := 0
	err := p.retry("write a batch", func() error {
		for {
			since := int64(-1)
			if p.contend {
				// A Zerobus server that was cut off may still be writing some of these: commit only if nobody has
				// added anything since the look-up.
				if err := p.lookUp(p.ctx); err != nil {
					return err
				}
				if batch = slices.DeleteFunc(batch, (*entry).completed); len(batch) == 0 {
					return nil
				}
				if attempts++; attempts < contendAttempts { // else the table is too busy for that
					since = p.marks[0].version
				}
			}
			err := p.table.append(p.ctx, p.id, batch, since)
			switch {
			case errors.Is(err, deltalog.ErrTxnAlreadyCommitted): // an earlier try went through after all
				return nil
			case since >= 0 && errors.Is(err, deltalog.ErrConflict):
				continue
			}
			return err
		}
	})
	if err != nil {
		return err
	}
	p.contend = false
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range batch {
		p.complete(e, PathBatch, nil)
	}
	clear(p.queue[:len(batch)])
	p.queue = p.queue[len(batch):]
	p.sent = 0
	p.isolate = max(0, p.isolate-len(batch))
	p.notify()
	return nil
}

// probe tries to open a stream again and again until it is stopped. stop closes a stream that nobody took.
func (p *Publisher) probe() (opened <-chan *stream, stop func()) {
	if p.endpoint == nil {
		return nil, func() {}
	}
	ctx, cancel := context.WithCancel(p.ctx)
	ch, done := make(chan *stream), make(chan struct{})
	pause := p.probing
	go func() {
		defer close(done)
		for p.sleep(ctx, pause) == nil {
			if st, err := p.openStream(ctx); err == nil {
				select {
				case ch <- st:
				case <-ctx.Done():
					_ = st.z.Close(ctx) // nothing was handed to it
				}
				return
			}
			pause = min(2*pause, p.opts.probeMax)
		}
	}()
	return ch, func() { cancel(); <-done }
}
