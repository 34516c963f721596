package deltabus

import (
	"context"
	"errors"
	"time"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// A consumer does not end for a failure of the storage that is over in a moment: it tries again so often, with pauses that double.
const (
	insistAttempts = 6
	insistPause    = 50 * time.Millisecond
)

// insist calls f until it succeeds, or fails in a way that another attempt would not change, or has failed too often. f is told the attempt, from 0:
// what an earlier one did may be there although it failed.
func (c *Consumer) insist(ctx context.Context, what string, f func(attempt int) error) error {
	pause := insistPause
	for attempt := 0; ; attempt++ {
		err := f(attempt)
		if err == nil || isFinal(err) || attempt+1 == insistAttempts {
			return err
		}
		c.bus.cfg.Logger.Warn(what+" failed, trying again", "consumer", c.id, "attempt", attempt+1, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		pause *= 2
	}
}

// insistOn is insist for what gives a value.
func insistOn[T any](ctx context.Context, c *Consumer, what string, f func() (T, error)) (v T, err error) {
	err = c.insist(ctx, what, func(int) error {
		v, err = f()
		return err
	})
	return v, err
}

// isFinal reports whether err would be the same again.
func isFinal(err error) bool {
	for _, final := range []error{
		errStop, ErrFenced, ErrFilterChanged, ErrTableRecreated, ErrTableDropped, cdf.ErrExpired, cdf.ErrRewritten, cdf.ErrNotEnabled, cdf.ErrIncompatibleSchema, deltalog.ErrUnsupported,
		deltalog.ErrCorrupt, deltalog.ErrNotTable, deltalog.ErrRecreated, deltalog.ErrNotNull, deltalog.ErrInvalidValue, store.ErrSyncFailed, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// readError marks a failure to read messages: nothing happened, and the consumer goes on from where it is.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }
