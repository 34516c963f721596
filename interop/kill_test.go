package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"
)

// TestServerAway: the server is killed under a writing SDK and comes back after some seconds on the same port: the SDK goes on
// by itself, and nothing is lost.
func TestServerAway(t *testing.T) {
	for sdk, ingest := range map[string]func(*server) ingester{
		"python": func(s *server) ingester { return s.ingest },
		"ts":     func(s *server) ingester { return s.ingestJS },
		"java":   func(s *server) ingester { return s.ingestJava },
	} {
		t.Run(sdk, func(t *testing.T) {
			t.Parallel()
			serverAway(t, sdk, ingest)
		})
	}
}

func serverAway(t *testing.T, sdk string, ingest func(*server) ingester) {
	t.Helper()
	columns := []column{id, generatable[8]}
	const n = 300
	const away = 6 * time.Second
	s := serve(t)
	name := "main.away." + sdk
	dir := s.createTable(name, definitions(columns), nil, nil)
	input, expected := writeRows(t, columns, 0, n)
	w := ingest(s)(name, input, arguments{"pause": 0.01})
	w.until(time.Minute, func(lines [][]byte) bool { return len(lines) > n/3 })
	s.kill()
	time.Sleep(away) // what is tested: an outage of this length
	s.restart()
	sent(t, w, n)
	extra := sameRowsAtLeastOnce(t, sdk, ours(t, dir, -1), expected)
	t.Logf("%d of %d rows were sent twice", extra, n)
}

// kills is how often the tests kill.
const kills = 20

// TestServerKilledUnderStreams: SIGKILL of the server under four writing streams, again and again on one data directory. What
// was acknowledged is there, and the log is whole.
func TestServerKilledUnderStreams(t *testing.T) {
	s := serve(t)
	const name, streams = "main.killed.events", 4
	dir := s.createTable(name, []string{"id BIGINT NOT NULL", "stream INT NOT NULL", "text STRING"}, nil, nil)
	args := arguments{"url": s.HTTP, "client_id": s.ClientID, "client_secret": s.ClientSecret, "table": name, "streams": streams}
	w := startWorker(t, python(t), append([]string{source(t, "python", "streams.py")}, args.words()...)...)

	type progress struct {
		Stream int
		Acked  int
		Closed bool
		Error  string
	}
	acked := func(lines [][]byte) (out [streams]progress) {
		for _, l := range lines {
			var p progress
			if err := json.Unmarshal(l, &p); err != nil {
				t.Fatalf("streams.py printed %q", l)
			}
			if p.Error != "" {
				t.Fatalf("stream %d failed: %s", p.Stream, p.Error)
			}
			out[p.Stream] = p
		}
		return out
	}
	var before [streams]progress
	moved := func(lines [][]byte) bool {
		for n, p := range acked(lines) {
			if p.Acked <= before[n].Acked {
				return false
			}
		}
		return true
	}
	for range kills {
		w.until(30*time.Second, moved)
		time.Sleep(time.Duration(rand.N(150)) * time.Millisecond) // a random instant is what is tested
		s.kill()
		before = acked(w.printed())
		checkAcked(t, dir, streams, func(n int) int { return before[n].Acked })
		s.restart()
	}
	w.until(30*time.Second, moved)
	fmt.Fprintln(w.stdin, "stop")
	final := acked(w.wait(time.Minute))
	for n, p := range final {
		if !p.Closed {
			t.Errorf("stream %d did not close", n)
		}
	}
	rows := checkAcked(t, dir, streams, func(n int) int { return final[n].Acked })
	version := wholeLog(t, dir)
	t.Logf("%d rows in %d versions after %d kills", rows, version, kills)

	var theirs int64
	deltaRS.must(t, "version", map[string]any{"path": dir}, &theirs)
	if theirs != version {
		t.Errorf("delta-rs sees version %d, we see %d", theirs, version)
	}
	if got := len(deltaRS.rows(t, dir, -1)); got != rows {
		t.Errorf("delta-rs reads %d rows, we read %d", got, rows)
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, "table", "verify", dir).CombinedOutput(); err != nil {
		t.Errorf("table verify: %v\n%s", err, out)
	}
}

// checkAcked fails unless the first acked(n) ids of each stream are in the table. It returns the number of rows.
func checkAcked(t *testing.T, dir string, streams int, acked func(n int) int) int {
	t.Helper()
	have := map[int]bool{}
	rows := ours(t, dir, -1)
	for _, r := range rows {
		var v struct{ ID int }
		if err := json.NewDecoder(bytes.NewReader([]byte(r))).Decode(&v); err != nil {
			t.Fatal(err)
		}
		have[v.ID] = true
	}
	for n := range streams {
		for i := range acked(n) {
			if !have[i*streams+n] {
				t.Fatalf("stream %d: record %d was acknowledged and is not in the table", n, i)
			}
		}
	}
	return len(rows)
}
