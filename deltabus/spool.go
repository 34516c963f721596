package deltabus

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// openSpool takes over what the last publisher with this spool left: its identity, its numbers and its messages. What it has kept for longer than
// retention, for which the messages table remembers a producer's last batch (0: for ever), cannot be settled any more.
func (p *Publisher) openSpool(retention time.Duration) error {
	if p.opts.spool == "" {
		return nil
	}
	s, err := openSpool(p.opts.spool, p.bus)
	if err != nil {
		return fmt.Errorf("open spool %s: %w", p.opts.spool, err)
	}
	if n := len(s.left); n > 0 && retention > 0 {
		if oldest := s.left[0].queued; p.clock().Sub(oldest) > retention {
			s.close()
			return &SpoolExpiredError{Path: p.opts.spool, Oldest: oldest, Retention: retention}
		}
	}
	p.spool = s
	p.id, p.nextSeq, p.lastAt = s.state.producerID, s.state.nextSeq, s.state.lastAt
	p.queue, s.left = s.left, nil
	for _, e := range p.queue {
		e.receipt.ProducerID = p.id
		p.count++
		p.bytes += e.bytes
	}
	if s.state.mark.version >= 0 {
		p.marks = []mark{s.state.mark}
	}
	return nil
}

// writeSpool returns when everything numbered so far is on the spool and in the queue. One caller writes for all that wait.
func (p *Publisher) writeSpool() error {
	p.spoolTurn <- struct{}{}
	defer func() { <-p.spoolTurn }()
	p.mu.Lock()
	batch := slices.Clone(p.spooling)
	broken := p.broken
	state := p.spool.state
	state.nextSeq, state.lastAt = p.nextSeq, p.lastAt
	p.mu.Unlock()
	if len(batch) == 0 { // the caller before has written it, or failed to
		return broken
	}
	err := broken
	if err == nil {
		if err = p.spool.write(batch, state); err != nil {
			err = fmt.Errorf("publish: %w: %w; what was accepted before is safe, make a new publisher once the disk is well", ErrSpoolFailed, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.broken = err
		for _, e := range p.spooling {
			p.complete(e, "", err)
		}
		p.spooling = nil
		p.notify()
		p.wakeUp()
		return err
	}
	if p.gone == nil { // else they are completed already, and the next publisher's
		p.queue = append(p.queue, batch...)
		p.spooling = p.spooling[len(batch):]
	}
	return nil
}

// trimSpool removes what is done, and remembers where to look up what is not.
func (p *Publisher) trimSpool(ctx context.Context) {
	if p.spool == nil || ctx.Err() != nil {
		return
	}
	p.spoolTurn <- struct{}{}
	defer func() { <-p.spoolTurn }()
	p.trim()
}

// trim has the turn.
func (p *Publisher) trim() {
	p.mu.Lock()
	first := p.unsentSeq(0)
	state := p.spool.state
	for _, m := range p.marks {
		if m.seq <= first {
			state.mark = m
		}
	}
	p.mu.Unlock()
	if first == p.spool.trimmed && state == p.spool.state {
		return
	}
	if err := p.spool.trim(first, state); err != nil {
		p.log.Warn("trim the spool: what is done stays on it, and is looked up at the next start", "error", err)
	}
}

// closeSpool removes what is done and releases the file.
func (p *Publisher) closeSpool() error {
	if p.spool == nil {
		return nil
	}
	p.spoolTurn <- struct{}{}
	defer func() { <-p.spoolTurn }()
	if p.spool.db == nil {
		return nil
	}
	if p.gone == nil {
		p.trim()
	}
	return p.spool.close()
}
