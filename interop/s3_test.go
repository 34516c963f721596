package interop

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/deltalog/store/storetest"
	"github.com/deltabus/deltabus-local/deltalog/verify"
)

const s3Access, s3Secret, s3Bucket = "access", "secretsecret", "bucket"

// serveS3 runs versitygw on a directory of the test's own, with one bucket, and returns its URL.
func serveS3(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, s3Bucket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // versitygw tells nobody which port it takes
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(peer(t, "bin", "versitygw"), "--quiet", "--keep-alive", "--health", "/health", "--port", addr, "posix", root)
	cmd.Env = environment("ROOT_ACCESS_KEY="+s3Access, "ROOT_SECRET_KEY="+s3Secret)
	cmd.Stderr = testWriter{t, "versitygw: "}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if r, err := http.Get("http://" + addr + "/health"); err == nil {
			_ = r.Body.Close()
			return "http://" + addr
		}
		if time.Now().After(deadline) {
			t.Fatal("versitygw was not ready within 20 s")
		}
	}
}

func openS3(t *testing.T, endpoint, prefix string) *store.S3 {
	t.Helper()
	s, err := store.NewS3(store.S3Options{Bucket: s3Bucket, Prefix: prefix, Endpoint: endpoint, AccessKey: s3Access, SecretKey: s3Secret})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestS3KeepsItsPromises: a real S3 server passes what every store passes.
func TestS3KeepsItsPromises(t *testing.T) {
	t.Parallel()
	s := openS3(t, serveS3(t), "checked")
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range storetest.Check(t.Context(), s) {
		t.Errorf("%s: %s", p.Check, p.Found)
	}
}

// TestS3Writers: two emulator processes, each with SDK streams, and delta-rs append to one table in a bucket at once. No commit is lost, no row is there
// twice, and all of them meet.
func TestS3Writers(t *testing.T) {
	t.Parallel()
	endpoint := serveS3(t)
	var servers [2]*server
	for i := range servers { // the second finds the tables that the first has made
		s := &server{t: t, dir: filepath.Join(t.TempDir(), "data")}
		s.args = []string{"--store", "s3://" + s3Bucket + "/tables", "--s3-endpoint", endpoint, "--bus", "main.deltabus"}
		s.env = []string{"AWS_ACCESS_KEY_ID=" + s3Access, "AWS_SECRET_ACCESS_KEY=" + s3Secret}
		t.Cleanup(s.terminate)
		s.start("127.0.0.1:0")
		servers[i] = s
	}

	const fromEach, appends, rowsOfAppend = 2000, 40, 10
	expected := map[string]bool{}
	var workers []*worker
	for i, s := range servers {
		prefix := fmt.Sprint("sdk", i)
		w := startWorker(t, python(t), append([]string{source(t, "python", "messages.py")}, arguments{
			"url": s.HTTP, "client_id": s.ClientID, "client_secret": s.ClientSecret, "table": "main.deltabus.messages", "count": fromEach, "prefix": prefix,
		}.words()...)...)
		for n := range fromEach {
			expected[fmt.Sprintf("%s-%d", prefix, n)] = true
		}
		workers = append(workers, w)
	}
	for n := range appends * rowsOfAppend {
		expected[fmt.Sprintf("delta-rs-%d", n)] = true
	}
	workers[0].until(time.Minute, func(lines [][]byte) bool { return len(lines) > 0 })
	deltars := startWorker(t, python(t), append([]string{source(t, "python", "deltars_messages.py")}, arguments{
		"path": "s3://" + s3Bucket + "/tables/main/deltabus/messages", "times": appends, "each": rowsOfAppend,
		"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": s3Access, "AWS_SECRET_ACCESS_KEY": s3Secret, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
	}.words()...)...)
	sent(t, deltars, appends*rowsOfAppend)
	for _, w := range workers {
		sent(t, w, fromEach)
	}

	st := openS3(t, endpoint, "tables/main/deltabus/messages")
	table, err := deltalog.Open(t.Context(), st, deltalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for rec, err := range table.Scan(t.Context(), table.Cached(), []string{"message_id"}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			var m struct {
				ID string `json:"message_id"`
			}
			row, err := deltalog.AppendRowJSON(nil, rec, i)
			if err == nil {
				err = json.Unmarshal(row, &m)
			}
			if err != nil {
				t.Fatal(err)
			}
			seen[m.ID]++
		}
	}
	for id, n := range seen {
		if n != 1 || !expected[id] {
			t.Errorf("row %s is there %d times", id, n)
		}
	}
	if len(seen) != len(expected) {
		t.Errorf("%d rows, want %d", len(seen), len(expected))
	}
	// All must have met: commits of delta-rs and of the emulators take turns.
	turns, before := 0, ""
	for v := range table.Cached().Version() + 1 {
		c, err := table.ReadCommit(t.Context(), v)
		if err != nil {
			t.Fatalf("version %d of %d: %v", v, table.Cached().Version(), err)
		}
		writer := c.Info().String("engineInfo")
		if writer != before {
			turns++
		}
		before = writer
	}
	t.Logf("%d versions, %d turns between delta-rs and the emulators", table.Cached().Version()+1, turns)
	if turns < 5 {
		t.Errorf("the writers hardly met: %d turns", turns)
	}
	report, err := verify.Verify(t.Context(), st)
	if err != nil || len(report.Problems) > 0 || report.Rows != int64(len(expected)) {
		t.Errorf("audit: %v, %+v", err, report)
	}
}
