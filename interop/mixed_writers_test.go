package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/emulator"
)

// TestThreeWritersOfOneTable: the emulator's process (for an SDK), a bus client straight on the tables and delta-rs append to messages
// at once. Every event is there once, and a consumer that follows gets each.
func TestThreeWritersOfOneTable(t *testing.T) {
	const each, rounds = 600, 20
	s := serve(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	messages := filepath.Join(s.dir, "tables", "main", "deltabus", "messages")

	var mu sync.Mutex
	written := map[string]string{} // message_id to who wrote it
	note := func(id, who string) {
		mu.Lock()
		defer mu.Unlock()
		written[id] = who
	}

	// The emulator's process, for the SDK.
	var input []byte
	for i := range each {
		id, row := messageRow("mixed.sdk", "sdk", i)
		row["published_at"] = time.Now().UnixMicro()
		b, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		input = append(append(input, b...), '\n')
		note(id, "sdk")
	}
	path := filepath.Join(t.TempDir(), "messages.jsonl")
	if err := os.WriteFile(path, input, 0o600); err != nil {
		t.Fatal(err)
	}
	w := s.ingest("main.deltabus.messages", path, arguments{"pause": 0.005})
	w.until(time.Minute, func(lines [][]byte) bool { return len(lines) > 0 }) // it is writing

	// A bus client of this process, which knows the directory only.
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := publishOnTables(ctx, s.dir, each/rounds, rounds, note); err != nil {
			t.Error(err)
		}
	})
	// delta-rs, some rows a commit.
	wg.Go(func() {
		for n := range rounds {
			var rows []any
			for i := range each / rounds {
				id, row := messageRow("mixed.deltars", "delta-rs", n*each/rounds+i)
				rows = append(rows, row)
				note(id, "delta-rs")
			}
			if err := deltaRS.ask(t, "insert", map[string]any{"path": messages, "rows": rows}, nil); err != nil {
				t.Errorf("delta-rs: %v", err)
			}
		}
	})
	wg.Wait()
	sent(t, w, each)

	if len(written) != 3*each {
		t.Fatalf("%d events were written, want %d", len(written), 3*each)
	}
	version := wholeLog(t, messages)
	for name, rows := range map[string][]string{"deltalog": ours(t, messages, -1), "delta-rs": deltaRS.rows(t, messages, -1)} {
		onceEach(t, name, rows, written)
	}
	var consumed []string
	for _, id := range consumedIDs(t, s.dir, "mixed", "mixed.>") {
		consumed = append(consumed, fmt.Sprintf(`{"message_id":%q}`, id))
	}
	onceEach(t, "the consumer", consumed, written)
	cli(t, "", "table", "verify", messages)
	t.Logf("%d events of three writers in %d versions", len(written), version)
}

// publishOnTables publishes straight to the tables of a data directory, n events in each batch write.
func publishOnTables(ctx context.Context, dir string, n, rounds int, note func(id, who string)) (err error) {
	ws, err := emulator.OpenDir(ctx, dir)
	if err != nil {
		return err
	}
	defer ws.Close()
	bus, err := deltabus.Open(ctx, deltabus.Config{Workspace: ws})
	if err != nil {
		return err
	}
	p, err := bus.Publisher(deltabus.WithBatches(10*time.Millisecond, n, 1<<20))
	if err != nil {
		return err
	}
	for range rounds {
		batch := make([]deltabus.Message, n)
		for i := range batch {
			batch[i] = deltabus.Message{Topic: "mixed.bus", Payload: []byte(`{}`)}
		}
		receipts, err := p.Publish(ctx, batch...)
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		for _, r := range receipts {
			note(r.MessageID, "bus")
		}
	}
	return p.Close(ctx)
}

// onceEach fails unless rows hold each message_id exactly once.
func onceEach(t *testing.T, what string, rows []string, written map[string]string) {
	t.Helper()
	seen := map[string]int{}
	for _, r := range rows {
		var v struct {
			ID string `json:"message_id"`
		}
		if err := json.Unmarshal([]byte(r), &v); err != nil {
			t.Fatal(err)
		}
		seen[v.ID]++
	}
	missing, twice := map[string]int{}, map[string]int{}
	for id, who := range written {
		switch seen[id] {
		case 0:
			missing[who]++
		case 1:
		default:
			twice[who]++
		}
	}
	if len(missing)+len(twice) > 0 || len(seen) != len(written) {
		t.Errorf("%s: %d ids of %d; missing by writer %v, twice %v", what, len(seen), len(written), missing, twice)
	}
}
