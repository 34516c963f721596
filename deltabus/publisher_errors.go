package deltabus

import (
	"errors"
	"fmt"
	"time"
)

// Sentinels of a Publisher; test with errors.Is.
var (
	// ErrBufferFull: the buffer is full, and the publisher was made with FailWhenFull. Nothing was accepted.
	ErrBufferFull = errors.New("publisher buffer is full")
	// ErrPublisherClosed: Close was called. Nothing was accepted.
	ErrPublisherClosed = errors.New("publisher is closed")
	// ErrInvalidMessage: the message breaks a rule of the bus; the text says which. Nothing was accepted.
	ErrInvalidMessage = errors.New("invalid message")
	// ErrUndelivered: the message was accepted but is not known to be durable. *UndeliveredError lists them.
	ErrUndelivered = errors.New("not delivered")
	// ErrRefused: the bus refused the message for good; *RefusedError has the reason. It is not durable.
	ErrRefused = errors.New("message refused")
	// ErrSpoolInUse: another publisher has this spool open.
	ErrSpoolInUse = errors.New("spool is in use")
	// ErrSpoolExpired: the spool holds messages that are older than what the table remembers; *SpoolExpiredError says
	// which.
	ErrSpoolExpired = errors.New("spooled messages are too old")
	// ErrSpoolFailed: the spool could not be written; the publisher accepts nothing more.
	ErrSpoolFailed = errors.New("spool failed")
)

// RefusedError is the answer to one message that the bus refuses for good. It matches ErrRefused.
type RefusedError struct {
	MessageID string
	// Cause is the refusal as it came.
	Cause error
}

// Error names the message and the reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("publish message %s: refused: %v", e.MessageID, e.Cause)
}

// Unwrap returns ErrRefused and the cause.
func (e *RefusedError) Unwrap() []error { return []error{ErrRefused, e.Cause} }

// Undelivered is one message that is not known to be durable.
type Undelivered struct {
	Message     Message
	ProducerSeq int64
	// Unclear: it had been handed over, so it may be in the table all the same. Publish it again under the same ID,
	// and consumers handle it once.
	Unclear bool
	// Spooled: it is on the spool, and the next publisher with that spool delivers it.
	Spooled bool
	// Err is what keeps it.
	Err error
}

// UndeliveredError lists the messages of a call that are not known to be durable, in the order they were published.
// It matches ErrUndelivered and what kept each of them.
type UndeliveredError struct{ Messages []Undelivered }

// Error says how many there are, how many of them the spool keeps, and why the first one is.
func (e *UndeliveredError) Error() string {
	if len(e.Messages) == 0 {
		return "publish: " + ErrUndelivered.Error()
	}
	first := e.Messages[0]
	spooled, kept := 0, ""
	for _, m := range e.Messages {
		if m.Spooled {
			spooled++
		}
	}
	if spooled > 0 {
		kept = fmt.Sprintf(" (%d kept on the spool)", spooled)
	}
	return fmt.Sprintf("publish: %d messages not delivered%s, the first of them %s: %v", len(e.Messages), kept, first.Message.ID, first.Err)
}

// Unwrap returns ErrUndelivered and the messages' errors.
func (e *UndeliveredError) Unwrap() []error {
	errs := []error{ErrUndelivered}
	for _, m := range e.Messages {
		errs = append(errs, m.Err)
	}
	return errs
}

// SpoolExpiredError refuses a spool: the table may have forgotten whether its messages were written, so neither
// publishing nor dropping them would be right. It matches ErrSpoolExpired.
type SpoolExpiredError struct {
	Path string
	// Oldest is when the oldest message was accepted; Retention is how long the table remembers.
	Oldest    time.Time
	Retention time.Duration
}

// Error says what to do next.
func (e *SpoolExpiredError) Error() string {
	return fmt.Sprintf("open spool %s: %v: the oldest was accepted at %s, and the table remembers writers for %s; compare its table \"outbox\" with the messages table by producer_id and producer_seq, then move the file away",
		e.Path, ErrSpoolExpired, e.Oldest.UTC().Format(time.RFC3339), e.Retention)
}

// Unwrap returns ErrSpoolExpired.
func (e *SpoolExpiredError) Unwrap() error { return ErrSpoolExpired }

func invalidMessage(format string, args ...any) error {
	return fmt.Errorf("publish: %w: %s", ErrInvalidMessage, fmt.Sprintf(format, args...))
}
