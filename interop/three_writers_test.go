package interop

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/emulator"
)

// TestThreeWriters: an emulator process with an SDK stream, a bus client straight on the tables and delta-rs append to one
// messages table at once. No commit is lost, every row is there once, and the feed has them all.
func TestThreeWriters(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := serve(t)
	w, err := emulator.OpenDir(ctx, s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deltabus.Init(ctx, deltabus.Config{Workspace: w}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	tables := filepath.Join(s.dir, "tables")
	dir := messagesDir(tables)

	const fromSDK, fromBus, deltaRSAppends, each = 2000, 2000, 40, 10
	expected := map[string]bool{}
	// The SDK's records; the first are committed before delta-rs copies their shape.
	sdk := startWorker(t, python(t), append([]string{source(t, "python", "messages.py")}, arguments{
		"url": s.HTTP, "client_id": s.ClientID, "client_secret": s.ClientSecret, "table": "main.deltabus.messages", "count": fromSDK, "prefix": "sdk",
	}.words()...)...)
	for i := range fromSDK {
		expected[fmt.Sprintf("sdk-%d", i)] = true
	}
	sdk.until(time.Minute, func(lines [][]byte) bool { return len(lines) > 0 })

	for i := range deltaRSAppends * each {
		expected[fmt.Sprintf("delta-rs-%d", i)] = true
	}
	appends := startWorker(t, python(t), append([]string{source(t, "python", "deltars_messages.py")},
		arguments{"path": dir, "times": deltaRSAppends, "each": each}.words()...)...)
	for i := range fromBus {
		expected[fmt.Sprintf("bus-%d", i)] = true
	}
	if err := publishBatches(t, tables, fromBus); err != nil {
		t.Fatalf("bus client: %v", err)
	}
	sent(t, appends, deltaRSAppends*each)
	sent(t, sdk, fromSDK)

	want := len(expected)
	ids := func(rows []string) map[string]int {
		out := map[string]int{}
		for _, r := range rows {
			var m struct {
				ID string `json:"message_id"`
			}
			if err := json.Unmarshal([]byte(r), &m); err != nil {
				t.Fatal(err)
			}
			if !expected[m.ID] {
				t.Fatalf("row that nobody wrote: %s", r)
			}
			out[m.ID]++
		}
		return out
	}
	version := wholeLog(t, dir)
	for what, rows := range map[string][]string{"deltalog": ours(t, dir, -1), "delta-rs": deltaRS.rows(t, dir, -1), "our feed": ourChanges(t, dir, 0, version)} {
		if got := ids(rows); len(got) != want || len(rows) != want {
			t.Errorf("%s: %d rows with %d ids, want %d", what, len(rows), len(got), want)
		}
	}

	// All three must have met each other: commits alternate.
	writers, changes, before := map[string]int{}, 0, ""
	start := int64(1)
	for b, err := range cdf.Read(ctx, openTable(t, dir), cdf.Range{StartVersion: &start}, []string{"source"}) {
		if err != nil {
			t.Fatal(err)
		}
		writer := b.Rows.Column(0).ValueStr(0)
		if writers[writer]++; writer != before {
			changes++
		}
		before = writer
	}
	t.Logf("%d versions, batches by writer %v, %d turns", version, writers, changes)
	if len(writers) != 3 || changes < 10 {
		t.Errorf("the writers hardly met: %v, %d turns", writers, changes)
	}
	if out := command(t, must(binary()), "table", "verify", dir); len(out) == 0 {
		t.Error("table verify said nothing")
	}
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}

// publishBatches publishes n events straight on the tables, in many small batch writes.
func publishBatches(t *testing.T, tables string, n int) error {
	ctx := t.Context()
	bus, err := openBus(ctx, tables, deltabus.Open)
	if err != nil {
		return err
	}
	p, err := bus.Publisher(deltabus.WithSource("bus"), deltabus.WithBatches(20*time.Millisecond, 50, 1<<20))
	if err != nil {
		return err
	}
	for i := range n {
		if _, err := p.PublishAsync(ctx, deltabus.Message{ID: fmt.Sprintf("bus-%d", i), Topic: "three.bus", Payload: []byte("x")}); err != nil {
			return err
		}
		if i%20 == 0 {
			time.Sleep(20 * time.Millisecond) // the writers are to take turns
		}
	}
	return p.Close(ctx)
}
