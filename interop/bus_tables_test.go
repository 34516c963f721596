package interop

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// messageRow is a row of the messages table as a foreign writer makes it.
func messageRow(topic, producer string, seq int) (id string, row map[string]any) {
	id = uuid.Must(uuid.NewV7()).String()
	return id, map[string]any{
		"message_id": id, "topic": topic, "source": "foreign", "payload": fmt.Sprintf(`{"n":%d}`, seq), "producer_id": producer,
		"producer_seq": seq, "published_at": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"),
	}
}

// consumedIDs are the message_ids that a consumer of the command line prints, until it is current.
func consumedIDs(t *testing.T, dataDir, id, topic string) []string {
	t.Helper()
	var out []string
	for _, l := range lines(cli(t, "", "consume", "--data-dir", dataDir, "--id", id, "--topic", topic)) {
		var e struct {
			ID string `json:"message_id"`
		}
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatalf("consume printed %q: %v", l, err)
		}
		out = append(out, e.ID)
	}
	return out
}

// TestJudgesReadTheBus: delta-rs and Spark read the three tables of a bus that was used, as we do, and what they append to messages is
// delivered.
func TestJudgesReadTheBus(t *testing.T) {
	s := serve(t)
	var events strings.Builder
	for i := range 60 {
		topic := "orders.created"
		if i%20 == 7 {
			topic = "orders.poison"
		}
		fmt.Fprintf(&events, `{"topic":%q,"key":"k%d","payload":"{\"n\":%d}","headers":{"h":"%d"}}`+"\n", topic, i, i, i)
	}
	cli(t, events.String(), "publish", "--data-dir", s.dir)
	handler := `read line; case "$line" in *orders.poison*) echo poison >&2; exit 65;; esac`
	cli(t, "", "consume", "--data-dir", s.dir, "--id", "billing", "--topic", "orders.>", "--exec", handler)
	cli(t, "", "consume", "--data-dir", s.dir, "--id", "audit", "--topic", "orders.created")
	cli(t, "", "deadletters", "--data-dir", s.dir, "discard", "--consumer", "billing")

	bus := filepath.Join(s.dir, "tables", "main", "deltabus")
	key := map[string]string{"messages": "message_id", "checkpoints": "consumer_id", "dead_letters": "dead_letter_id"}
	count := map[string]int{"messages": 60, "checkpoints": 2, "dead_letters": 3}
	for table, k := range key {
		dir := filepath.Join(bus, table)
		want := ours(t, dir, -1)
		if len(want) != count[table] {
			t.Errorf("%s has %d rows, want %d", table, len(want), count[table])
		}
		for _, j := range judges {
			equalRows(t, j.script+" "+table, j.rows(t, dir, -1), want, k)
		}
	}
	messages := filepath.Join(bus, "messages")
	newest := wholeLog(t, messages)
	for _, j := range judges {
		equalRows(t, j.script+" feed of messages", j.changes(t, messages, 1, newest), ourChanges(t, messages, 1, newest), "message_id")
	}

	// Consumers go on with what others append.
	for _, j := range judges {
		var ids []string
		var rows []any
		for seq := range 5 {
			id, row := messageRow("orders.created", j.script, seq)
			ids, rows = append(ids, id), append(rows, row)
		}
		j.must(t, "insert", map[string]any{"path": messages, "rows": rows}, nil)
		if got := consumedIDs(t, s.dir, "audit", "orders.created"); strings.Join(got, " ") != strings.Join(ids, " ") {
			t.Errorf("after an append by %s the consumer got %v, want %v", j.script, got, ids)
		}
	}
	for table := range key {
		cli(t, "", "table", "verify", filepath.Join(bus, table))
	}
}
