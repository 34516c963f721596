package interop

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestBusPastACheckpoint: delta-rs and Spark read the three tables of a bus before and after our own checkpoint of their logs:
// appended messages, checkpoints whose partitions were replaced, dead letters whose status was changed, of consumers with odd names.
func TestBusPastACheckpoint(t *testing.T) {
	ctx := t.Context()
	root := t.TempDir()
	st, err := store.NewLocal(root, false)
	if err != nil {
		t.Fatal(err)
	}
	bus, err := deltabus.Init(ctx, deltabus.Config{Workspace: deltabus.OnStore(st)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := bus.Publisher(deltabus.WithBatches(10*time.Millisecond, 1000, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		m := deltabus.Message{Topic: fmt.Sprintf("orders.%d", i%3), Payload: []byte(texts[i%len(texts)]), Headers: map[string]string{"n": fmt.Sprint(i)}}
		if i%2 == 0 {
			m.ContentType, m.Payload = "application/octet-stream", []byte{0, 0xff, byte(i)}
		}
		if _, err := p.Publish(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"billing", "audit/ship +1%", "ü"} {
		seen := 0
		c, err := bus.Consumer(id, ">", func(context.Context, deltabus.Event) error {
			if seen++; seen%5 == 0 {
				return deltabus.Skip(fmt.Errorf("event %d is bad", seen))
			}
			return nil
		}, deltabus.UntilCurrent(), deltabus.WithCheckpointEvery(2, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bus.DeadLetters().Discard(ctx, deltabus.DeadLetterFilter{Consumer: "billing"}); err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{
		deltabus.MessagesTable: "message_id", deltabus.CheckpointsTable: "consumer_id", deltabus.DeadLettersTable: "dead_letter_id",
	}
	rows := map[string]int{deltabus.MessagesTable: 30, deltabus.CheckpointsTable: 3, deltabus.DeadLettersTable: 18}
	for name, key := range keys {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(root, "main", "deltabus", name)
			table := openTable(t, dir)
			want := ours(t, dir, -1)
			if len(want) != rows[name] {
				t.Errorf("%d rows, want %d", len(want), rows[name])
			}
			agree := func() {
				t.Helper()
				equalRows(t, "deltalog", ours(t, dir, -1), want, key)
				for _, j := range judges {
					equalRows(t, j.script, j.rows(t, dir, -1), want, key)
				}
			}
			agree()
			snap, err := table.Snapshot(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := table.Checkpoint(ctx, snap); err != nil {
				t.Fatal(err)
			}
			dir = withoutCommitsBeforeCheckpoint(t, dir)
			agree()
			cli(t, "", "table", "verify", dir)
		})
	}
}
