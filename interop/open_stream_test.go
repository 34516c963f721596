package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOpenStream: a Zerobus stream that is open and writing while delta-rs and Spark append to its table goes on, and no row of
// any of them is lost.
func TestOpenStream(t *testing.T) {
	s := serve(t)
	const name, each = "main.open.events", 10
	columns := []string{"id BIGINT NOT NULL", "stream INT NOT NULL", "text STRING"}
	dir := s.createTable(name, columns, nil, map[string]string{"delta.enableChangeDataFeed": "true"})
	row := func(i int) string {
		return fmt.Sprintf(`{"id":%d,"stream":0,"text":%q}`, i, strings.Repeat("x", 200))
	}

	// What the judges append comes from a table at rest: Spark rightly refuses to append what it read from a table that moved on.
	atRest := s.createTable("main.open.source", columns, nil, nil)
	var rows []string
	for i := range each {
		rows = append(rows, row(i))
	}
	input := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(input, []byte(strings.Join(rows, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	sent(t, s.ingest("main.open.source", input, nil), each)

	// A few commits a second: Spark lists the log's directory, and a list that is read while dozens come may have a gap.
	args := arguments{"url": s.HTTP, "client_id": s.ClientID, "client_secret": s.ClientSecret, "table": name, "streams": 1, "pause": 0.3}
	w := startWorker(t, python(t), append([]string{source(t, "python", "streams.py")}, args.words()...)...)
	acked := func(lines [][]byte) int {
		if len(lines) == 0 {
			return 0
		}
		var p struct {
			Acked int
			Error string
		}
		if err := json.Unmarshal(last(lines), &p); err != nil || p.Error != "" {
			t.Fatalf("streams.py printed %q", last(lines))
		}
		return p.Acked
	}
	goOn := func() {
		t.Helper()
		before := acked(w.printed())
		w.until(30*time.Second, func(lines [][]byte) bool { return acked(lines) > before+each })
	}
	goOn()
	for k, j := range judges {
		j.must(t, "append", map[string]any{"path": dir, "source": atRest, "key": "id", "below": each, "add": 1_000_000_000 * (k + 1)}, nil)
		goOn()
	}
	fmt.Fprintln(w.stdin, "stop")
	n := acked(w.wait(time.Minute))
	var expected []string
	for i := range n {
		expected = append(expected, row(i))
	}
	for k := range judges {
		for i := range each {
			expected = append(expected, row(1_000_000_000*(k+1)+i))
		}
	}
	equalRows(t, "deltalog", ours(t, dir, -1), expected)
	version := wholeLog(t, dir)
	feed := ourChanges(t, dir, 0, version)
	if len(feed) != len(expected) {
		t.Errorf("our feed has %d rows, want %d", len(feed), len(expected))
	}
	for _, j := range judges {
		equalRows(t, j.script, j.rows(t, dir, -1), expected)
		equalRows(t, j.script+" feed", j.changes(t, dir, 0, version), feed)
	}
}
