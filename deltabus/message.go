package deltabus

import "time"

// Message is what a producer publishes. Topic is required; everything else has a default.
type Message struct {
	// ID is the message_id; default a new UUIDv7. A message published again with the same ID is the same event.
	ID string
	// Topic: segments of letters, digits, _ and -, parted by dots, at most 255 bytes.
	Topic string
	// Key, Source, Type, Subject, CorrelationID are CloudEvents' and the bus's columns; "" is null (Source defaults
	// to the publisher's).
	Key, Source, Type, Subject, CorrelationID string
	// ContentType of Payload; "" is null.
	ContentType string
	// Payload is kept byte for byte: in the column payload if it is valid UTF-8 and ContentType is empty, text/* or
	// JSON, else in payload_bytes.
	Payload []byte
	// Headers may not begin with "deltabus-".
	Headers map[string]string
}

// Event is a message as a consumer gets it.
type Event struct {
	Message
	// ProducerID and ProducerSeq say who published it, as its how-manieth.
	ProducerID  string
	ProducerSeq int64
	PublishedAt time.Time
	// Version is the Delta version that committed it.
	Version int64
	// Attempt is 1 at the first delivery.
	Attempt int
	// Replay is the number of times it was replayed from a dead letter; 0 for an original.
	Replay int
	// DeadLetterID is the dead letter that a replayed event came from, or "".
	DeadLetterID string
}
