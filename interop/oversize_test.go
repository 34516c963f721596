package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOversizeRecordFromJava: the Java SDK is the one that sends a record of 11 MiB. It is refused for good, which ends that stream and
// nothing else, instead of being sent again and again.
func TestOversizeRecordFromJava(t *testing.T) {
	s := serve(t)
	const table = "main.big.events"
	dir := s.createTable(table, []string{"id BIGINT NOT NULL", "text STRING"}, nil, nil)
	input := filepath.Join(t.TempDir(), "big.jsonl")
	big := fmt.Sprintf(`{"id":2,"text":"%s"}`, strings.Repeat("x", 11<<20))
	if err := os.WriteFile(input, []byte(`{"id":1,"text":"before"}`+"\n"+big+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := s.ingestJava(table, input, nil).answer(time.Minute)
	if a.Kind != "NonRetriableException" || !strings.Contains(a.Error, "10485760") {
		t.Errorf("the SDK raised %s: %s", a.Kind, a.Error)
	}
	input, more := writeRows(t, []column{id, generatable[8]}, 3, 5)
	sent(t, s.ingestJava(table, input, nil), 2)
	equalRows(t, "deltalog", ours(t, dir, -1), append(more, `{"id":1,"text":"before"}`))
}
