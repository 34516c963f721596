package deltabus

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// appendEvents commits events as they are, as one version: what a foreign writer does.
func appendEvents(t *testing.T, b *Bus, events ...Event) {
	t.Helper()
	commitRows(t, b, deltalog.Transaction{Operation: "WRITE"}, events...)
}

// commitRows commits tx with the events added.
func commitRows(t *testing.T, b *Bus, tx deltalog.Transaction, events ...Event) {
	t.Helper()
	snap, err := b.messages.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx.Base = snap
	if len(events) > 0 {
		rec, err := buildRows(snap.Schema(), messageColumns, func(rows *array.RecordBuilder) {
			for i := range events {
				e := &events[i]
				appendMessage(rows, 0, &e.Message, e.ProducerID, e.ProducerSeq, e.PublishedAt)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if tx.Adds, err = b.messages.WriteFiles(t.Context(), snap, []arrow.RecordBatch{rec}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.messages.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
}

// event is one of producer "p" whose payload is its id.
func event(id, topic string, seq int64) Event {
	return Event{
		Message:    Message{ID: id, Topic: topic, Source: "test", Payload: []byte(id)},
		ProducerID: "p", ProducerSeq: seq, PublishedAt: time.Unix(1_700_000_000, 0),
	}
}

// process is a client process that can be killed: from then on nothing that it does reaches the store.
type process struct {
	*Bus
	dead atomic.Bool
}

func newProcess(t *testing.T, st store.Store) *process {
	t.Helper()
	p := &process{}
	doomed := store.WithFaults(st, func(store.Op) store.Fault {
		if p.dead.Load() {
			return store.FailBefore
		}
		return store.None
	})
	var err error
	if p.Bus, err = Open(t.Context(), Config{Workspace: OnStore(doomed)}); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) kill() { p.dead.Store(true) }

// running is a consumer that runs in the background.
type running struct {
	*Consumer
	done chan error
}

func start(t *testing.T, b *Bus, id, filter string, h Handler, o ...ConsumerOption) *running {
	t.Helper()
	c, err := b.Consumer(id, filter, h, o...)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{c, make(chan error, 1)}
	go func() { r.done <- c.Run(context.WithoutCancel(t.Context())) }()
	return r
}

// stored is the checkpoint of a consumer as it is in the table.
func stored(t *testing.T, b *Bus, id string) Checkpoint {
	t.Helper()
	c, err := b.backend.checkpoint(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
