package deltabus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// Attempt is one failed attempt at an event.
type Attempt struct {
	At        time.Time
	Error     string
	ErrorType string
}

// settle brings an event to its end: handled, or dead. An error means neither: the event stays.
func (c *Consumer) settle(ctx context.Context, e *Event) (dead bool, err error) {
	if c.first {
		if crashed, err := c.mark(ctx, e); crashed || err != nil {
			return crashed, err
		}
	}
	var log []Attempt
	for e.Attempt = 1; ; {
		answer, err := c.call(ctx, *e)
		if err != nil || answer == nil {
			return false, err
		}
		var skip *skipError
		var stop *stopError
		var retry *retryError
		switch {
		case errors.As(answer, &stop):
			return false, answer
		case c.aborted():
			return false, errStop // the handler was cut off: that says nothing about the event
		case errors.As(answer, &retry):
			if err := c.pause(ctx, retry.after); err != nil {
				return false, err
			}
			continue
		}
		log = append(log, Attempt{c.bus.cfg.Clock(), answer.Error(), errorType(answer)})
		if errors.As(answer, &skip) || e.Attempt >= c.o.retry.MaxAttempts {
			return true, c.deadLetter(ctx, e, log, answer)
		}
		if err := c.pause(ctx, c.backoff(e.Attempt)); err != nil {
			return false, err
		}
		e.Attempt++
	}
}

// mark notes in the checkpoint that this start is about to handle its first event, so that one that kills the process is seen. At
// the retry budget the event is dead-lettered as crashed. One that the last process dead-lettered just before it was killed is done.
func (c *Consumer) mark(ctx context.Context, e *Event) (dead bool, err error) {
	if !c.o.reset {
		if dead, err := c.isDead(ctx, e); dead || err != nil {
			return dead, err
		}
	}
	if c.at.StalledStarts >= c.o.retry.MaxAttempts {
		cause := fmt.Errorf("the process ended %d times in a row while it handled this event", c.at.StalledStarts)
		log := []Attempt{{c.bus.cfg.Clock(), cause.Error(), "crashed"}}
		e.Attempt = c.at.StalledStarts
		return true, c.deadLetter(ctx, e, log, &crashError{cause})
	}
	c.at.StalledStarts++
	return false, c.save(ctx)
}

// isDead looks for e among the dead letters, and tells the observer of it: the process that wrote it may not have come so far.
func (c *Consumer) isDead(ctx context.Context, e *Event) (bool, error) {
	id := deadLetterID(c.id, e.ID, e.Replay)
	var known []DeadLetter
	err := c.insist(ctx, "read dead letters", func(int) (err error) {
		known, err = c.bus.backend.deadLetters(ctx, c.id, func(d *DeadLetter) bool { return d.ID == id })
		return err
	})
	if err != nil || len(known) == 0 {
		return false, err
	}
	if c.o.observer.DeadLetter != nil {
		c.o.observer.DeadLetter(known[0])
	}
	return true, nil
}

// crashError is the cause of a dead letter whose event killed the process.
type crashError struct{ err error }

func (e *crashError) Error() string { return e.err.Error() }
func (e *crashError) Unwrap() error { return e.err }

// backoff is the pause after an attempt.
func (c *Consumer) backoff(attempt int) time.Duration {
	d := c.o.retry.MaxBackoff
	if shift := attempt - 1; shift < 30 && c.o.retry.Backoff < d>>shift {
		d = c.o.retry.Backoff << shift
	}
	return d/2 + time.Duration(rand.Int64N(int64(d/2)+1))
}

// pause waits before the next attempt; a stop ends it.
func (c *Consumer) pause(ctx context.Context, d time.Duration) error {
	if c.stopped() {
		return errStop
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	due, done := c.due()
	defer done()
	for {
		select {
		case <-timer.C:
			return nil
		case <-c.stopping:
			return errStop
		case <-due:
			if err := c.save(ctx); err != nil {
				return err
			}
		}
	}
}

// due fires when the checkpoint is to be written because of what was settled before the event that is under way; done ends it.
func (c *Consumer) due() (fires <-chan time.Time, done func()) {
	if c.pending == 0 {
		return nil, func() {}
	}
	timer := time.NewTimer(c.o.everyTime - c.bus.cfg.Clock().Sub(c.last))
	return timer.C, func() { timer.Stop() }
}

// call calls the handler and waits for its answer. After a stop it has its grace; then, or at the second stop, its context ends. A checkpoint
// that becomes due meanwhile is written; if that tells that another instance has taken over, the handler is cancelled, and failure says so.
func (c *Consumer) call(ctx context.Context, e Event) (answer, failure error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.o.observer.Deliver != nil {
		c.o.observer.Deliver(e)
	}
	answered := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() { answered <- err }()
		err = c.protect(ctx, e)
	}()
	due, done := c.due()
	defer done()
	stopping, cancelled := c.stopping, c.cancelled
	var grace <-chan time.Time
	for {
		select {
		case answer := <-answered:
			if c.o.observer.Outcome != nil {
				c.o.observer.Outcome(e, answer)
			}
			return answer, failure
		case <-due:
			// Any other failure is left to the checkpoint after this event.
			if err := c.save(context.WithoutCancel(ctx)); errors.Is(err, ErrFenced) {
				failure = err
				cancel()
			}
		case <-stopping:
			stopping = nil
			timer := time.NewTimer(c.o.handlerGrace)
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			c.cancelOnce.Do(func() { close(c.cancelled) })
		case <-cancelled:
			cancelled = nil
			cancel()
		}
	}
}

func (c *Consumer) aborted() bool {
	select {
	case <-c.cancelled:
		return true
	default:
		return false
	}
}

func (c *Consumer) protect(ctx context.Context, e Event) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, string(debug.Stack())}
		}
	}()
	return c.handler(ctx, e)
}

// errorType is the Go type of an error, without what the bus wrapped around it.
func errorType(err error) string {
	for {
		switch e := err.(type) {
		case *skipError:
			err = e.err
			continue
		case *retryError:
			err = e.err
			continue
		case *crashError:
			return "crashed"
		case *PanicError:
			return "panic"
		}
		return fmt.Sprintf("%T", err)
	}
}

func errorStack(err error) string {
	var p *PanicError
	if errors.As(err, &p) {
		return p.Stack
	}
	return ""
}
