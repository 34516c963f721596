package deltabus

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// From says where a new consumer begins.
type From struct {
	kind    string
	version int64
}

// Earliest begins with the first event there is: where the feed no longer reaches back to the table's beginning, the rows of the
// table are read first, in the order of one version. The default.
func Earliest() From { return From{kind: "earliest"} }

// Latest begins with the events that are committed after the start.
func Latest() From { return From{kind: "latest"} }

// FromVersion begins with the events of Delta version v.
func FromVersion(v int64) From { return From{kind: "version", version: v} }

// String is "earliest", "latest" or "version:N".
func (f From) String() string {
	if f.kind == "version" {
		return fmt.Sprintf("version:%d", f.version)
	}
	return f.kind
}

// ParseFrom reads what String writes.
func ParseFrom(s string) (From, error) {
	switch s {
	case "earliest", "latest":
		return From{kind: s}, nil
	}
	var v int64
	if n, err := fmt.Sscanf(s, "version:%d", &v); n == 1 && err == nil && v >= 0 && FromVersion(v).String() == s {
		return FromVersion(v), nil
	}
	return From{}, fmt.Errorf("start %q: use earliest, latest or version:N", s)
}

// RetryPolicy says how often and how soon a failed event is tried again.
type RetryPolicy struct {
	// MaxAttempts is the retry budget: so many attempts, then the event is a dead letter. Default 5. An attempt that ends with RetryAfter
	// does not count.
	MaxAttempts int
	// Backoff is the first pause; it doubles up to MaxBackoff, and each pause is cut by up to half at random. Defaults 100 ms, 30 s (or
	// Backoff, if that is longer).
	Backoff, MaxBackoff time.Duration
}

// Observer is told what a consumer does; every function may be nil. They are called in the consumer's goroutine and hold it up.
type Observer struct {
	// Start: the consumer has written its first checkpoint, with its epoch; retries is its budget.
	Start func(c Checkpoint, retries int)
	// Deliver: the handler is about to be called. Outcome: it has answered.
	Deliver func(e Event)
	Outcome func(e Event, err error)
	// Checkpoint: a checkpoint is durable.
	Checkpoint func(c Checkpoint)
	// DeadLetter: an event is durable as a dead letter.
	DeadLetter func(d DeadLetter)
}

type consumerOptions struct {
	from         From
	reset        bool
	changeFilter bool
	until        bool
	maxEvents    int
	retry        RetryPolicy
	everyEvents  int
	everyTime    time.Duration
	dedup        int
	poll         time.Duration
	owner        string
	observer     Observer
	handlerGrace time.Duration
	// idleEvery is how often the checkpoint of a consumer that gets no event moves, and it is checked that the table is still the same.
	idleEvery           time.Duration
	sortRows, sortBytes int
}

// ConsumerOption changes a consumer.
type ConsumerOption func(*consumerOptions)

// WithFrom says where a new consumer begins; one that has a checkpoint goes on from there. Default Earliest.
func WithFrom(f From) ConsumerOption { return func(o *consumerOptions) { o.from = f } }

// WithReset forgets the stored position and begins at f.
func WithReset(f From) ConsumerOption {
	return func(o *consumerOptions) { o.from, o.reset = f, true }
}

// WithChangedFilter accepts that the stored checkpoint is for another topic filter: events before it are not looked at again.
func WithChangedFilter() ConsumerOption { return func(o *consumerOptions) { o.changeFilter = true } }

// UntilCurrent ends Run without an error once all that was committed when it started is done.
func UntilCurrent() ConsumerOption { return func(o *consumerOptions) { o.until = true } }

// WithMaxEvents ends Run without an error after n events that were handled or dead-lettered.
func WithMaxEvents(n int) ConsumerOption { return func(o *consumerOptions) { o.maxEvents = n } }

// WithRetry sets the retry policy; zero fields keep their defaults.
func WithRetry(p RetryPolicy) ConsumerOption { return func(o *consumerOptions) { o.retry = p } }

// WithCheckpointEvery writes a checkpoint after so many events or so much time, whichever is first, also while a handler runs or an
// event waits to be tried again. Defaults 100 and 1 s.
func WithCheckpointEvery(events int, d time.Duration) ConsumerOption {
	return func(o *consumerOptions) { o.everyEvents, o.everyTime = events, d }
}

// WithDedupWindow sets how many message ids are remembered, so that a message that comes again is not handled again.
// Default 100,000; 0: none. A start reads back at most 10,000 versions for it.
func WithDedupWindow(n int) ConsumerOption { return func(o *consumerOptions) { o.dedup = n } }

// WithPollInterval sets how often the log is looked at when nothing is new; a look costs one stat. The first looks come sooner, at 5, 10,
// 20, … ms. Default 1 s.
func WithPollInterval(d time.Duration) ConsumerOption { return func(o *consumerOptions) { o.poll = d } }

// WithOwner names this instance in the checkpoint, for people; a random part is added. Default host and process id.
func WithOwner(s string) ConsumerOption { return func(o *consumerOptions) { o.owner = s } }

// WithObserver tells o what the consumer does.
func WithObserver(o Observer) ConsumerOption { return func(c *consumerOptions) { c.observer = o } }

// WithHandlerGrace sets how long a stop waits for the running handler before its context is cancelled. Default 30 s.
func WithHandlerGrace(d time.Duration) ConsumerOption {
	return func(o *consumerOptions) { o.handlerGrace = d }
}

func newConsumerOptions(options []ConsumerOption) (consumerOptions, error) {
	o := consumerOptions{
		from: Earliest(), everyEvents: 100, everyTime: time.Second, dedup: 100_000, poll: time.Second,
		handlerGrace: 30 * time.Second, idleEvery: 5 * time.Second, sortRows: sortRows, sortBytes: sortBytes,
	}
	for _, f := range options {
		f(&o)
	}
	if o.retry.MaxAttempts == 0 {
		o.retry.MaxAttempts = 5
	}
	if o.retry.Backoff == 0 {
		o.retry.Backoff = 100 * time.Millisecond
	}
	if o.retry.MaxBackoff == 0 {
		o.retry.MaxBackoff = max(30*time.Second, o.retry.Backoff)
	}
	if o.owner == "" {
		host, _ := os.Hostname() // a name for people; empty is fine
		o.owner = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	switch {
	case o.retry.MaxAttempts < 1:
		return o, errors.New("MaxAttempts must be at least 1")
	case o.retry.Backoff < 0 || o.retry.MaxBackoff < o.retry.Backoff:
		return o, errors.New("backoff must not be negative, nor above MaxBackoff")
	case o.everyEvents < 1 || o.everyTime <= 0:
		return o, errors.New("a checkpoint must be written after at least 1 event, or some time")
	case o.dedup < 0, o.maxEvents < 0, o.poll <= 0, o.handlerGrace < 0:
		return o, errors.New("the dedup window and the number of events must not be negative, nor the handler grace, and the poll interval must be positive")
	}
	return o, nil
}
