package deltabus

import (
	"errors"
	"fmt"
	"time"
)

// Sentinels of a Consumer; test with errors.Is.
var (
	// ErrFenced: another instance with the same consumer id has started and taken over. Do not restart this one.
	ErrFenced = errors.New("another instance of this consumer has taken over")
	// ErrFilterChanged: the stored checkpoint is for another topic filter. WithChangedFilter goes on from there with the new
	// one; another consumer id starts anew.
	ErrFilterChanged = errors.New("the consumer's topic filter is another one")
	// ErrTableRecreated: the messages table is not the one that the checkpoint is for. Choose another consumer id, or reset this one.
	ErrTableRecreated = errors.New("the messages table was created anew")
	// ErrPositionExpired: the change feed no longer reaches back to the checkpoint. The choices are in PositionExpiredError.
	ErrPositionExpired = errors.New("the consumer's position has expired")
	// ErrHistoryRewritten: a version of messages does more than append. The choices are in HistoryRewrittenError.
	ErrHistoryRewritten = errors.New("the history of messages was rewritten")
	// ErrNoSuchDeadLetter: there is no dead letter with that id.
	ErrNoSuchDeadLetter = errors.New("no such dead letter")
)

// PositionExpiredError says how far back the feed reaches. It matches ErrPositionExpired. The choices: start anew from earliest (a
// backfill of the table's rows, then the feed) or from latest, with WithReset.
type PositionExpiredError struct {
	Consumer string
	// Version is the next version wanted; Earliest is the first that the log has, -1 if that is not known.
	Version, Earliest int64
	Cause             error
}

func (e *PositionExpiredError) Error() string {
	begins := "is not known to begin anywhere"
	if e.Earliest >= 0 {
		begins = fmt.Sprintf("begins at %d", e.Earliest)
	}
	return fmt.Sprintf("consumer %s: %v: version %d is wanted, the log %s, or a data file is gone: start it anew from earliest (which reads the table's rows, then the feed) or from latest",
		e.Consumer, ErrPositionExpired, e.Version, begins)
}

// Unwrap returns ErrPositionExpired and the cause.
func (e *PositionExpiredError) Unwrap() []error {
	if e.Cause == nil {
		return []error{ErrPositionExpired}
	}
	return []error{ErrPositionExpired, e.Cause}
}

// HistoryRewrittenError names the version. It matches ErrHistoryRewritten. The choices: go on behind it with WithReset from that
// version plus one, if what it changed does not matter to this consumer.
type HistoryRewrittenError struct {
	Consumer string
	Version  int64
	Cause    error
}

func (e *HistoryRewrittenError) Error() string {
	return fmt.Sprintf("consumer %s: %v: version %d does not only append (%v): start it anew from version:%d to pass over it", e.Consumer, ErrHistoryRewritten, e.Version, e.Cause, e.Version+1)
}

// Unwrap returns ErrHistoryRewritten and the cause.
func (e *HistoryRewrittenError) Unwrap() []error { return []error{ErrHistoryRewritten, e.Cause} }

// Answers of a handler, besides nil (done) and any other error (try again, up to the retry budget, then dead-letter).
type (
	skipError  struct{ err error }
	stopError  struct{ err error }
	retryError struct {
		err   error
		after time.Duration
	}
)

// Skip makes the event a dead letter at once: trying again would not help.
func Skip(err error) error { return &skipError{orUnknown(err)} }

// RetryAfter tries the event again after d, as often as the handler asks for it: it does not use up the retry budget, and the events
// behind wait. For what is not the event's fault, such as a service that is down.
func RetryAfter(d time.Duration, err error) error { return &retryError{orUnknown(err), d} }

// Stop stops the consumer before this event: Run returns err, and the next start delivers the event again.
func Stop(err error) error { return &stopError{orUnknown(err)} }

func orUnknown(err error) error {
	if err == nil {
		return errors.New("no reason given")
	}
	return err
}

func (e *skipError) Error() string  { return e.err.Error() }
func (e *skipError) Unwrap() error  { return e.err }
func (e *stopError) Error() string  { return e.err.Error() }
func (e *stopError) Unwrap() error  { return e.err }
func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// PanicError is a handler's panic, which counts as an error.
type PanicError struct {
	Value any
	Stack string
}

// errGoexit is the answer of a handler that ended its goroutine, as testing.T's FailNow does.
var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit) instead of returning")

func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }
