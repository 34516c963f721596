package deltabus

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/deltabus/deltabus-local/internal/zerobus"
)

// entry is a message between acceptance and completion.
type entry struct {
	Delivery
	msg    Message
	bytes  int64
	queued time.Time // when it was accepted; published_at may be later
	handed bool      // it was given to a path at least once
}

// prepare checks a message and fills in its defaults.
func (p *Publisher) prepare(msg Message) (*entry, error) {
	if err := ValidTopic(msg.Topic); err != nil {
		return nil, fmt.Errorf("publish: %w: %w", ErrInvalidMessage, err)
	}
	for name := range msg.Headers {
		if strings.HasPrefix(name, reservedPrefix) {
			return nil, invalidMessage("header %q: names that begin with %q belong to the bus", name, reservedPrefix)
		}
	}
	if msg.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("publish: make a message id: %w", err)
		}
		msg.ID = id.String()
	}
	if msg.Source == "" {
		msg.Source = p.opts.source
	}
	for _, f := range [...]struct{ name, value string }{
		{"ID", msg.ID},
		{"Topic", msg.Topic},
		{"Key", msg.Key},
		{"Source", msg.Source},
		{"Type", msg.Type},
		{"Subject", msg.Subject},
		{"CorrelationID", msg.CorrelationID},
		{"ContentType", msg.ContentType},
	} {
		if !utf8.ValidString(f.value) {
			return nil, invalidMessage("%s is not valid UTF-8", f.name)
		}
	}
	for name, value := range msg.Headers {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, invalidMessage("header %q is not valid UTF-8", name)
		}
	}
	size := messageSize(&msg)
	if size > zerobus.MaxPayload {
		return nil, invalidMessage("%d bytes exceed the limit of %d; put large content elsewhere and publish where it is", size, zerobus.MaxPayload)
	}
	// The caller may go on with theirs.
	msg.Headers, msg.Payload = maps.Clone(msg.Headers), bytes.Clone(msg.Payload)
	return &entry{Delivery: Delivery{done: make(chan struct{})}, msg: msg, bytes: size}, nil
}

// messageSize bounds the bytes of a message's encoded record, and is what it counts in the buffer.
func messageSize(m *Message) int64 {
	const overhead = 256 // identifiers, numbers, tags and lengths
	n := overhead + len(m.Payload) + len(m.ID) + len(m.Topic) + len(m.Key) + len(m.Source) + len(m.Type) + len(m.Subject) + len(m.CorrelationID) + len(m.ContentType)
	for name, value := range m.Headers {
		n += len(name) + len(value) + 20
	}
	return int64(n)
}

// accept takes messages in order. It returns what it accepted: everything, or with an error nothing, or the first of
// them if the wait for room ended.
func (p *Publisher) accept(ctx context.Context, msgs []Message) ([]*entry, error) {
	entries := make([]*entry, len(msgs))
	for i, m := range msgs {
		e, err := p.prepare(m)
		if err != nil {
			return nil, err
		}
		entries[i] = e
	}
	for accepted := 0; accepted < len(entries); {
		n, err := p.enqueue(ctx, entries[accepted:])
		if err == nil && p.spool != nil {
			err = p.writeSpool()
		}
		if err != nil {
			return entries[:accepted], err
		}
		accepted += n
		p.wakeUp() // now, for those that wait for room behind it
	}
	return entries, nil
}

// enqueue waits for room for the first of entries, numbers as many as there is room for, and puts them into the
// queue, or into the spool's. With FailWhenFull it takes all or none.
func (p *Publisher) enqueue(ctx context.Context, entries []*entry) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.broken != nil {
			return 0, p.broken
		}
		if p.closing {
			return 0, fmt.Errorf("publish: %w", ErrPublisherClosed)
		}
		if p.opts.failWhenFull {
			var total int64
			for _, e := range entries {
				total += e.bytes
			}
			if !p.roomFor(len(entries), total) {
				return 0, fmt.Errorf("publish: %w: %d messages are waiting; try again later", ErrBufferFull, p.count)
			}
			break
		}
		if p.roomFor(1, entries[0].bytes) {
			break
		}
		ch := p.changed
		p.mu.Unlock()
		select {
		case <-ch:
			p.mu.Lock()
		case <-ctx.Done():
			p.mu.Lock()
			return 0, fmt.Errorf("publish: wait for room: %w", context.Cause(ctx))
		}
	}
	for i, e := range entries {
		if !p.roomFor(1, e.bytes) {
			return i, nil
		}
		p.number(e)
		p.count++
		p.bytes += e.bytes
		if p.spool != nil {
			p.spooling = append(p.spooling, e)
		} else {
			p.queue = append(p.queue, e)
		}
	}
	return len(entries), nil
}

// roomFor reports whether n messages fit; p.mu is held. Any one fits into an empty buffer.
func (p *Publisher) roomFor(n int, size int64) bool {
	return p.count == 0 && n <= 1 || p.count+n <= p.opts.maxMessages && p.bytes+size <= p.opts.maxBytes
}

// number gives e its producer_seq and its time, which never goes back; p.mu is held.
func (p *Publisher) number(e *entry) {
	e.queued = p.clock()
	at := e.queued.UTC().Truncate(time.Microsecond)
	if at.Before(p.lastAt) {
		at = p.lastAt
	}
	p.lastAt = at
	e.receipt = Receipt{MessageID: e.msg.ID, ProducerID: p.id, ProducerSeq: p.nextSeq, PublishedAt: at}
	p.nextSeq++
}

func (e *entry) completed() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// complete ends e's delivery; p.mu is held, and e is out of the queue.
func (p *Publisher) complete(e *entry, path Path, err error) {
	p.count--
	p.bytes -= e.bytes
	e.receipt.Path, e.err = path, err
	close(e.done)
}
