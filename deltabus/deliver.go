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
	var last error
	for attempt := 1; attempt <= c.o.retry.MaxAttempts; attempt++ {
		e.Attempt = attempt
		err := c.call(ctx, *e)
		if err == nil {
			return false, nil
		}
		var skip *skipError
		var stop *stopError
		var retry *retryError
		switch {
		case errors.As(err, &stop):
			return false, err
		case c.aborted():
			return false, errStop // the handler was cut off: that says nothing about the event
		}
		last = err
		log = append(log, Attempt{c.bus.cfg.Clock(), err.Error(), errorType(err)})
		if errors.As(err, &skip) {
			break
		}
		if attempt == c.o.retry.MaxAttempts {
			break
		}
		pause := c.pause(attempt)
		if errors.As(err, &retry) {
			pause = retry.after
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-c.stopping:
			timer.Stop()
			return false, errStop
		}
	}
	return true, c.deadLetter(ctx, e, log, last)
}

// mark notes in the checkpoint that this start is about to handle its first event, so that one that kills the process is seen. At
// the retry budget the event is dead-lettered as crashed.
func (c *Consumer) mark(ctx context.Context, e *Event) (crashed bool, err error) {
	if c.at.StalledStarts >= c.o.retry.MaxAttempts {
		cause := fmt.Errorf("the process ended %d times in a row while it handled this event", c.at.StalledStarts)
		log := []Attempt{{c.bus.cfg.Clock(), cause.Error(), "crashed"}}
		e.Attempt = c.at.StalledStarts
		return true, c.deadLetter(ctx, e, log, &crashError{cause})
	}
	c.at.StalledStarts++
	return false, c.save(ctx)
}

// crashError is the cause of a dead letter whose event killed the process.
type crashError struct{ err error }

func (e *crashError) Error() string { return e.err.Error() }
func (e *crashError) Unwrap() error { return e.err }

func (c *Consumer) pause(attempt int) time.Duration {
	d := c.o.retry.Backoff << min(attempt-1, 30)
	if d <= 0 || d > c.o.retry.MaxBackoff {
		d = c.o.retry.MaxBackoff
	}
	if d <= 1 {
		return d
	}
	return d/2 + time.Duration(rand.Int64N(int64(d/2)+1))
}

// call calls the handler. After a stop it has its grace; then, or at the second stop, its context ends.
func (c *Consumer) call(ctx context.Context, e Event) (err error) {
	hctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go c.watch(done, cancel)
	if c.o.observer.Deliver != nil {
		c.o.observer.Deliver(e)
	}
	err = c.protect(hctx, e)
	if c.o.observer.Outcome != nil {
		c.o.observer.Outcome(e, err)
	}
	return err
}

// watch cancels a handler that a stop has waited for long enough.
func (c *Consumer) watch(done <-chan struct{}, cancel func()) {
	var grace <-chan time.Time
	stopping := c.stopping
	for {
		select {
		case <-done:
			return
		case <-c.cancelled:
			cancel()
			return
		case <-stopping:
			stopping = nil
			timer := time.NewTimer(c.o.handlerGrace)
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			c.cancelOnce.Do(func() { close(c.cancelled) })
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
