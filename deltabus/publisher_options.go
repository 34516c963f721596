package deltabus

import (
	"fmt"
	"time"
)

// PublisherOption configures Bus.Publisher.
type PublisherOption func(*publisherOptions) error

// publisherOptions holds every setting with its default.
type publisherOptions struct {
	source        string
	spool         string
	failWhenFull  bool
	maxMessages   int
	maxBytes      int64
	batchInterval time.Duration
	batchMessages int
	batchBytes    int64
	recovery      time.Duration
	ackTimeout    time.Duration
	settleDelay   time.Duration
	probeFirst    time.Duration
	probeMax      time.Duration
}

func defaultPublisherOptions() publisherOptions {
	return publisherOptions{
		source:        "deltabus",
		maxMessages:   100_000,
		maxBytes:      64 << 20,
		batchInterval: 5 * time.Second,
		batchMessages: 50_000,
		batchBytes:    32 << 20,
		recovery:      3 * time.Second,
		ackTimeout:    10 * time.Second,
		settleDelay:   time.Second,
		probeFirst:    time.Second,
		probeMax:      30 * time.Second,
	}
}

// WithSource sets the source of messages that name none; default "deltabus".
func WithSource(source string) PublisherOption {
	return func(o *publisherOptions) error {
		if source == "" {
			return fmt.Errorf("publisher: the source may not be empty")
		}
		o.source = source
		return nil
	}
}

// WithSpool keeps accepted messages in a file (SQLite) until they are durable in the table: PublishAsync returns when
// the message is on disk and synced, and a publisher that is killed loses nothing that it accepted. The file keeps
// the producer_id and the next producer_seq as well; it is made if missing, and belongs to one publisher at a time
// (ErrSpoolInUse). Messages older than the table's transaction retention are refused (ErrSpoolExpired).
func WithSpool(path string) PublisherOption {
	return func(o *publisherOptions) error {
		if path == "" {
			return fmt.Errorf("publisher: the spool needs a path")
		}
		o.spool = path
		return nil
	}
}

// WithBuffer bounds the messages that are accepted and not yet durable, in number and bytes; defaults 100,000 and 64
// MiB. A single message larger than the bound passes when the buffer is empty.
func WithBuffer(messages int, bytes int64) PublisherOption {
	return func(o *publisherOptions) error {
		if messages < 1 || bytes < 1 {
			return fmt.Errorf("publisher: the buffer needs room for a message: %d messages, %d bytes", messages, bytes)
		}
		o.maxMessages, o.maxBytes = messages, bytes
		return nil
	}
}

// FailWhenFull answers ErrBufferFull at once when the buffer is full; the default is to wait for room.
func FailWhenFull() PublisherOption {
	return func(o *publisherOptions) error { o.failWhenFull = true; return nil }
}

// WithBatches says when buffered messages are written while Zerobus is not there: when the oldest has waited for
// interval, or so many messages or bytes have come together, or at Flush and Close. Defaults 5 s, 50,000 and 32 MiB.
func WithBatches(interval time.Duration, messages int, bytes int64) PublisherOption {
	return func(o *publisherOptions) error {
		if interval <= 0 || messages < 1 || bytes < 1 {
			return fmt.Errorf("publisher: batches need positive bounds: %s, %d messages, %d bytes", interval, messages, bytes)
		}
		o.batchInterval, o.batchMessages, o.batchBytes = interval, messages, bytes
		return nil
	}
}

// WithRecovery says how long a lost Zerobus endpoint may take to come back before messages go the other way; default
// 3 s. 0 switches at the first failure.
func WithRecovery(d time.Duration) PublisherOption {
	return func(o *publisherOptions) error {
		if d < 0 {
			return fmt.Errorf("publisher: negative recovery time %s", d)
		}
		o.recovery = d
		return nil
	}
}

// WithAckTimeout says how long Zerobus may leave messages unacknowledged before its connection counts as lost; default
// 10 s.
func WithAckTimeout(d time.Duration) PublisherOption {
	return func(o *publisherOptions) error {
		if d <= 0 {
			return fmt.Errorf("publisher: the acknowledgement timeout must be positive: %s", d)
		}
		o.ackTimeout = d
		return nil
	}
}

// WithSettleDelay says how long after losing a Zerobus connection with messages in flight the publisher waits before it
// looks up which of them are in the table: a server that was cut off, not killed, may take so long to write what it
// had received. Default 1 s. What such a server writes later than that appears twice, under the same message_id.
func WithSettleDelay(d time.Duration) PublisherOption {
	return func(o *publisherOptions) error {
		if d < 0 {
			return fmt.Errorf("publisher: negative settle delay %s", d)
		}
		o.settleDelay = d
		return nil
	}
}

// WithProbe says how often a lost Zerobus endpoint is tried again while messages go the other way: first after first,
// then with doubled pauses up to max. Defaults 1 s and 30 s.
func WithProbe(first, max time.Duration) PublisherOption {
	return func(o *publisherOptions) error {
		if first <= 0 || max < first {
			return fmt.Errorf("publisher: the pauses between probes must be positive and grow: %s to %s", first, max)
		}
		o.probeFirst, o.probeMax = first, max
		return nil
	}
}
