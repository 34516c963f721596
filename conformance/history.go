package conformance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Kind is what a Record tells of.
type Kind string

// The kinds of records.
const (
	// KindPublish: a producer handed over an event (PhaseInvoke), was told that it is durable (PhaseOK), was told that
	// it is not (PhaseFail), or could not learn which (PhaseInfo).
	KindPublish Kind = "publish"
	// KindRow: a row of the messages table, read back by the harness at the end, in the order of the log.
	KindRow Kind = "row"
	// KindStart: a consumer started from the checkpoint in Version, Position and Epoch.
	KindStart Kind = "start"
	// KindDeliver: the handler was called (PhaseInvoke) and answered (PhaseOK, PhaseFail).
	KindDeliver Kind = "deliver"
	// KindCheckpoint: a consumer checkpoint was written.
	KindCheckpoint Kind = "checkpoint"
	// KindDeadLetter: an event was dead-lettered, with Attempt attempts.
	KindDeadLetter Kind = "dead_letter"
	// KindReplay: a dead letter was replayed.
	KindReplay Kind = "replay"
	// KindCrash: the process was killed.
	KindCrash Kind = "crash"
	// KindStop: the process ended by itself; Error says why, if not gracefully.
	KindStop Kind = "stop"
)

// Phase is how far an operation came.
type Phase string

// The phases of an operation.
const (
	PhaseInvoke Phase = "invoke"
	PhaseOK     Phase = "ok"
	PhaseFail   Phase = "fail"
	PhaseInfo   Phase = "info"
)

// Record is one line of a history. Which fields count depends on Kind.
type Record struct {
	// Index numbers the records of a history from 0.
	Index int `json:"index"`
	// Time is when it was recorded.
	Time time.Time `json:"time"`
	// Process is the worker that it happened in: "producer-1", "consumer-1b". A restarted worker is a new process.
	Process string `json:"process"`
	Kind    Kind   `json:"kind"`
	Phase   Phase  `json:"phase,omitempty"`
	// Consumer is the consumer_id.
	Consumer string `json:"consumer,omitempty"`
	// Filter is the consumer's topic filter, on KindStart.
	Filter string `json:"filter,omitempty"`
	Topic  string `json:"topic,omitempty"`
	// ID is the message_id.
	ID string `json:"id,omitempty"`
	// Producer and Seq are the producer_id and producer_seq.
	Producer string `json:"producer,omitempty"`
	Seq      int64  `json:"seq,omitempty"`
	// Version is the Delta version of a row, or of a checkpoint.
	Version int64 `json:"version,omitempty"`
	// Position is the row's place within its version, or the checkpoint's position.
	Position int64 `json:"position,omitempty"`
	// Backfill is the checkpoint's backfill_version, if it has one.
	Backfill *int64 `json:"backfill,omitempty"`
	Epoch    int64  `json:"epoch,omitempty"`
	Attempt  int    `json:"attempt,omitempty"`
	// Replay is the replay number of a replayed event; Origin is the dead letter it came from; ReplayTo is the one consumer it is for.
	Replay   int    `json:"replay,omitempty"`
	Origin   string `json:"origin,omitempty"`
	ReplayTo string `json:"replay_to,omitempty"`
	Error    string `json:"error,omitempty"`
}

// History collects records. Safe for concurrent use.
type History struct {
	mu      sync.Mutex
	records []Record
	now     func() time.Time
}

// NewHistory makes an empty history; now may be nil for time.Now.
func NewHistory(now func() time.Time) *History {
	if now == nil {
		now = time.Now
	}
	return &History{now: now}
}

// Add appends r, numbering it; a zero Time becomes now.
func (h *History) Add(r Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Index = len(h.records)
	if r.Time.IsZero() {
		r.Time = h.now()
	}
	h.records = append(h.records, r)
}

// Records returns a copy of what was recorded, in order.
func (h *History) Records() []Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Record(nil), h.records...)
}

// Count is the number of records so far that match.
func (h *History) Count(match func(Record) bool) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, r := range h.records {
		if match(r) {
			n++
		}
	}
	return n
}

// WriteTo writes the history as JSON lines.
func (h *History) WriteTo(w io.Writer) (int64, error) {
	var n int64
	for _, r := range h.Records() {
		line, err := json.Marshal(r)
		if err != nil {
			return n, fmt.Errorf("write history: %w", err)
		}
		k, err := w.Write(append(line, '\n'))
		n += int64(k)
		if err != nil {
			return n, fmt.Errorf("write history: %w", err)
		}
	}
	return n, nil
}

// ReadRecords reads JSON lines, as a worker process prints them, and gives each to add. A last line that was cut off, as a
// killed process leaves it, is passed over.
func ReadRecords(r io.Reader, add func(Record)) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read history: %w", err)
		}
		var rec Record
		if err := json.Unmarshal(line, &rec); err != nil {
			return fmt.Errorf("read history: line %q: %w", line, err)
		}
		add(rec)
	}
}
