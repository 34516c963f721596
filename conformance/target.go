package conformance

import (
	"context"

	"github.com/deltabus/deltabus-local/deltabus"
)

// Target is what scenarios run against.
type Target interface {
	// Name is a word for reports.
	Name() string
	// Start makes a fresh workspace with a bus.
	Start(ctx context.Context) (Instance, error)
}

// Instance is one fresh workspace.
type Instance interface {
	// Bus is the harness's own view of the bus. It does not go through the server, so it outlives it.
	Bus() *deltabus.Bus
	// Spawn starts a worker. What it records goes to record, until it ends or is killed.
	Spawn(ctx context.Context, spec WorkerSpec, record func(Record)) (Worker, error)
	// KillServer ends the server without a warning; StartServer starts it again on the same data and address.
	KillServer(ctx context.Context) error
	StartServer(ctx context.Context) error
	// Close ends everything and removes it.
	Close() error
}

// Worker is a running producer or consumer.
type Worker interface {
	// Kill ends it without a warning, in the middle of whatever it does, and waits until it is gone.
	Kill() error
	// Wait waits until it has ended by itself, and returns why, if not as it should.
	Wait() error
}

// WorkerSpec says what a worker does; it travels to other processes as JSON.
type WorkerSpec struct {
	// Name is the process name in the history.
	Name    string       `json:"name"`
	Produce *ProduceSpec `json:"produce,omitempty"`
	Consume *ConsumeSpec `json:"consume,omitempty"`
	// Host, Token and Schema are the target's; scenarios leave them empty.
	Host   string `json:"host,omitempty"`
	Token  string `json:"token,omitempty"`
	Schema string `json:"schema,omitempty"`
}

// ProduceSpec is a producer: it publishes Count events, round robin over Topics.
type ProduceSpec struct {
	Count  int      `json:"count"`
	Topics []string `json:"topics"`
	// Prefix begins the message ids, which are numbered from First: PREFIX-0, PREFIX-1, …
	Prefix string `json:"prefix"`
	First  int    `json:"first,omitempty"`
	// Zerobus publishes through the endpoint; otherwise batches are written.
	Zerobus bool `json:"zerobus,omitempty"`
	// Spool is the path of a spool, or "".
	Spool string `json:"spool,omitempty"`
	// Headers go on every event; see Behaviour.
	Headers map[string]string `json:"headers,omitempty"`
	// PauseMicros is the time between two events.
	PauseMicros int `json:"pause_micros,omitempty"`
}

// ConsumeSpec is a consumer.
type ConsumeSpec struct {
	ID     string `json:"id"`
	Filter string `json:"filter"`
	From   string `json:"from,omitempty"`
	// Follow goes on after the current end.
	Follow bool `json:"follow,omitempty"`
	// Retries is the budget; 0: 3.
	Retries int `json:"retries,omitempty"`
	// Every is how many events there are between checkpoints; 0: 10.
	Every int `json:"every,omitempty"`
	// Mended makes the headers that cause failures be passed over.
	Mended bool `json:"mended,omitempty"`
}

// Headers that tell a worker's handler what to do with an event.
const (
	// HeaderFail makes the handler fail that often ("2"), or "always".
	HeaderFail = "test-fail"
	// HeaderAnswer makes it answer "skip" or "panic".
	HeaderAnswer = "test-answer"
	// HeaderKill makes it kill its own process.
	HeaderKill = "test-kill"
)
