package deltalog

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

var update = flag.Bool("update", false, "rewrite golden files")

func testColumns(t testing.TB, ddl ...string) Struct {
	t.Helper()
	var s Struct
	for _, d := range ddl {
		f, err := ParseColumn(d)
		if err != nil {
			t.Fatal(err)
		}
		s.Fields = append(s.Fields, f)
	}
	return s
}

var quiet = Options{CheckpointInterval: -1}

func createTable(t testing.TB, st store.Store, opts Options, spec TableSpec, ddl ...string) *Table {
	t.Helper()
	if len(ddl) == 0 {
		ddl = []string{"id BIGINT NOT NULL", "p STRING"}
	}
	spec.Schema = testColumns(t, ddl...)
	tab, err := Create(context.Background(), st, spec, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tab.Close() })
	return tab
}

// batch makes a record batch from JSON rows, one a line.
func batch(t testing.TB, s Struct, rows ...string) arrow.RecordBatch {
	t.Helper()
	schema, err := ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, r := range rows {
		if err := b.UnmarshalJSON([]byte(r)); err != nil {
			t.Fatalf("%s: %v", r, err)
		}
	}
	return b.NewRecordBatch()
}

func appendRows(t testing.TB, tab *Table, rows ...string) *Commit {
	t.Helper()
	c, err := tab.Append(context.Background(), []arrow.RecordBatch{batch(t, tab.Cached().Schema(), rows...)}, "WRITE")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// readAll is the rows of a snapshot as canonical JSON.
func readAll(t testing.TB, tab *Table, s *Snapshot) []string {
	t.Helper()
	var out []string
	for rec, err := range tab.Scan(context.Background(), s, nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			row, err := AppendRowJSON(nil, rec, i)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(row))
		}
	}
	return out
}

func id(i int) string { return fmt.Sprintf(`{"id":%d,"p":"x"}`, i) }

func TestConcurrentWritersLoseNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const writers, commits = 8, 20
	var wg sync.WaitGroup
	var handles []*Table
	for range 2 { // two handles are two processes as far as the log is concerned
		st, err := store.NewLocal(dir, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(handles) == 0 {
			handles = append(handles, createTable(t, st, quiet, TableSpec{}))
			continue
		}
		tab, err := Open(t.Context(), st, quiet)
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, tab)
	}
	for w := range writers {
		wg.Go(func() {
			for i := range commits {
				if _, err := handles[w%2].Append(context.Background(), []arrow.RecordBatch{batch(t, handles[0].Cached().Schema(), id(w*commits+i))}, "WRITE"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s, err := handles[0].Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Version() != writers*commits || s.NumFiles() != writers*commits {
		t.Errorf("version %d, %d files", s.Version(), s.NumFiles())
	}
	seen := map[string]bool{}
	for _, r := range readAll(t, handles[0], s) {
		seen[r] = true
	}
	if len(seen) != writers*commits {
		t.Errorf("%d rows", len(seen))
	}
	last := time.Time{}
	for v := range s.Version() + 1 {
		c, err := handles[1].ReadCommit(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Timestamp.After(last) {
			t.Errorf("version %d at %v is not after %v", v, c.Timestamp, last)
		}
		last = c.Timestamp
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	partition := func(p string) []map[string]string { return []map[string]string{{"p": p}} }
	// Each case: the first transaction commits, the second, made against the same snapshot, does or does not.
	tests := []struct {
		name          string
		first, second func(tab *Table, s *Snapshot) Transaction
		want          string
	}{
		{"two blind appends", adding("a"), adding("a"), ""},
		{"append to what was read", adding("a"), reading(partition("a")), "DELTA_CONCURRENT_APPEND"},
		{"append elsewhere", adding("b"), reading(partition("a")), ""},
		{"both replace a partition", replacing("a"), replacing("a"), "DELTA_CONCURRENT_DELETE_DELETE"},
		{"each replaces its own", replacing("b"), replacing("a"), ""},
		{"what was read is removed", replacing("a"), reading(partition("a")), "DELTA_CONCURRENT_DELETE_READ"},
		{"the whole table was read", adding("a"), func(tab *Table, s *Snapshot) Transaction {
			return Transaction{Base: s, Operation: "X", ReadTable: true}
		}, "DELTA_CONCURRENT_APPEND"},
		{"metadata changed", renaming("q"), adding("a"), "DELTA_METADATA_CHANGED"},
		{"properties alone", renaming(""), adding("a"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tab := createTable(t, store.NewMemory(), quiet, TableSpec{PartitionColumns: []string{"p"}})
			appendRows(t, tab, `{"id":1,"p":"a"}`, `{"id":2,"p":"b"}`)
			s := tab.Cached()
			first, second := tt.first(tab, s), tt.second(tab, s)
			if _, err := tab.Commit(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			before := tab.Cached().Version()
			_, err := tab.Commit(t.Context(), second)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %s", err, tt.want)
			case tt.want != "" && tab.Cached().Version() != before:
				t.Error("the loser left a version behind")
			}
		})
	}
}

func fileFor(tab *Table, s *Snapshot, p string) []Add {
	schema, _ := ArrowSchema(s.Schema())
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(9)
	b.Field(1).(*array.StringBuilder).Append(p)
	adds, err := tab.WriteFiles(context.Background(), s, []arrow.RecordBatch{b.NewRecordBatch()})
	if err != nil {
		panic(err)
	}
	return adds
}

func adding(p string) func(*Table, *Snapshot) Transaction {
	return func(tab *Table, s *Snapshot) Transaction {
		return Transaction{Base: s, Operation: "WRITE", Adds: fileFor(tab, s, p)}
	}
}

func reading(read []map[string]string) func(*Table, *Snapshot) Transaction {
	return func(_ *Table, s *Snapshot) Transaction {
		return Transaction{Base: s, Operation: "X", ReadPartitions: read}
	}
}

func replacing(p string) func(*Table, *Snapshot) Transaction {
	return func(tab *Table, s *Snapshot) Transaction {
		tx := Transaction{Base: s, Operation: "MERGE", Adds: fileFor(tab, s, p), ReadPartitions: []map[string]string{{"p": p}}}
		for a := range s.FilesIn(map[string]string{"p": p}) {
			tx.Removes = append(tx.Removes, a)
		}
		return tx
	}
}

func renaming(column string) func(*Table, *Snapshot) Transaction {
	return func(_ *Table, s *Snapshot) Transaction {
		m := *s.Metadata()
		m.Configuration = map[string]string{"x": "y"}
		if column != "" {
			m.SchemaString = strings.Replace(m.SchemaString, `"name":"id"`, `"name":"`+column+`"`, 1)
		}
		return Transaction{Base: s, Operation: "ALTER", Metadata: &m}
	}
}

func TestReplacedPartitionIsSeenBySnapshotsOfItsTime(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{PartitionColumns: []string{"p"}})
	appendRows(t, tab, `{"id":1,"p":"a"}`, `{"id":2,"p":"b"}`)
	old := tab.Cached()
	if _, err := tab.Commit(t.Context(), replacing("a")(tab, old)); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(readAll(t, tab, old)); got != `[{"id":1,"p":"a"} {"id":2,"p":"b"}]` {
		t.Errorf("before: %s", got)
	}
	if got := fmt.Sprint(readAll(t, tab, tab.Cached())); got != `[{"id":2,"p":"b"} {"id":9,"p":"a"}]` {
		t.Errorf("after: %s", got)
	}
}

func TestTxnCommitsOnce(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{})
	tx := adding("a")(tab, tab.Cached())
	tx.Txns = []Txn{{AppID: "app", Version: 3}}
	for i := range 3 {
		_, err := tab.Commit(t.Context(), tx)
		if i == 0 && err != nil || i > 0 && !errors.Is(err, ErrTxnAlreadyCommitted) {
			t.Errorf("commit %d: %v", i, err)
		}
	}
	if txn, ok := tab.Cached().Txn("app"); !ok || txn.Version != 3 {
		t.Errorf("txn %+v", txn)
	}
}

func TestUnclearCommitIsSettledByReadingBack(t *testing.T) {
	t.Parallel()
	for _, fault := range []store.Fault{store.FailAfter, store.FailBefore} {
		armed := false
		tab := createTable(t, store.WithFaults(store.NewMemory(), func(op store.Op) store.Fault {
			if armed && op.Kind == "put" && op.IfAbsent {
				armed = false
				return fault
			}
			return store.None
		}), quiet, TableSpec{})
		tx := adding("a")(tab, tab.Cached())
		armed = true
		_, err := tab.Commit(t.Context(), tx)
		if done := fault == store.FailAfter; done != (err == nil) || done != (tab.Cached().Version() == 1) {
			t.Errorf("fault %d: %v, version %d", fault, err, tab.Cached().Version())
		}
	}
}

func TestFailedSyncStopsWriting(t *testing.T) {
	t.Parallel()
	for what, isIt := range map[string]func(op store.Op) bool{
		"commit":    func(op store.Op) bool { return op.IfAbsent },
		"data file": func(op store.Op) bool { return strings.HasSuffix(op.Name, ".snappy.parquet") },
	} {
		broken := false
		st := store.WithFaults(store.NewMemory(), func(op store.Op) store.Fault {
			if broken && op.Kind == "put" && isIt(op) {
				return store.SyncFailed
			}
			return store.None
		})
		tab := createTable(t, st, quiet, TableSpec{})
		rows := []arrow.RecordBatch{batch(t, tab.Cached().Schema(), id(1))}
		broken = true
		if _, err := tab.Append(t.Context(), rows, "WRITE"); !errors.Is(err, store.ErrSyncFailed) {
			t.Errorf("%s: got %v", what, err)
		}
		broken = false // the disk says that all is well again, as disks do
		if _, err := tab.Append(t.Context(), rows, "WRITE"); !errors.Is(err, store.ErrSyncFailed) || !strings.Contains(err.Error(), "open it again") {
			t.Errorf("%s: it went on writing: %v", what, err)
		}
		again, err := Open(t.Context(), st, quiet)
		if err != nil {
			t.Fatal(err)
		}
		appendRows(t, again, id(2))
	}
}

// recorder notes the operations on a store, names made the same in every run.
type recorder struct {
	mu  sync.Mutex
	ops []string
}

var unstable = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

func (r *recorder) hook(op store.Op) store.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, unstable.ReplaceAllString(op.String(), "UUID"))
	return store.None
}

func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := strings.Join(r.ops, "\n") + "\n"
	r.ops = nil
	return out
}

// TestSideEffects is the exact order of what a table does to its store, as a reviewed file.
func TestSideEffects(t *testing.T) {
	t.Parallel()
	var r recorder
	var out strings.Builder
	step := func(title string) { fmt.Fprintf(&out, "# %s\n%s\n", title, r.take()) }
	st := store.WithFaults(store.NewMemory(), r.hook)
	tab := createTable(t, st, quiet, TableSpec{})
	step("create")
	appendRows(t, tab, id(1))
	step("append one row")
	if _, err := tab.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	step("refresh with nothing new")
	if err := tab.Checkpoint(t.Context(), tab.Cached()); err != nil {
		t.Fatal(err)
	}
	step("checkpoint")
	if _, err := Open(t.Context(), st, quiet); err != nil {
		t.Fatal(err)
	}
	step("open behind a checkpoint")
	golden := filepath.Join("testdata", "side_effects.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != out.String() {
		t.Errorf("%v; got:\n%s", err, out.String())
	}
}

func TestCommitCostsTheSameInALongTable(t *testing.T) {
	t.Parallel()
	var r recorder
	tab := createTable(t, store.WithFaults(store.NewMemory(), r.hook), quiet, TableSpec{})
	var costs []int
	for i := range 1500 {
		r.take()
		appendRows(t, tab, id(i))
		if i == 10 || i == 1400 {
			costs = append(costs, strings.Count(r.take(), "\n"))
		}
	}
	if costs[0] != costs[1] {
		t.Errorf("operations of a commit: %v", costs)
	}
}

// TestFaultSweep fails each operation of a workload in turn; what was acknowledged is there afterwards, and nothing half done.
func TestFaultSweep(t *testing.T) {
	t.Parallel()
	for _, fault := range []store.Fault{store.FailBefore, store.FailAfter} {
		for n := 1; ; n++ {
			inner := store.NewMemory()
			hit := false
			st := store.WithFaults(inner, func(op store.Op) store.Fault {
				if op.N == n {
					hit = true
					return fault
				}
				return store.None
			})
			acknowledged := map[int]bool{}
			tab, err := Create(t.Context(), st, TableSpec{Schema: testColumns(t, "id BIGINT NOT NULL", "p STRING")}, quiet)
			if err != nil {
				if tab, err = Open(t.Context(), inner, quiet); err != nil {
					continue // the table is not there, and nobody was told that it is
				}
			}
			for i := range 6 {
				if _, err := tab.Append(t.Context(), []arrow.RecordBatch{batch(t, tab.Cached().Schema(), id(i))}, "WRITE"); err == nil {
					acknowledged[i] = true
				}
				if i == 3 {
					_ = tab.Checkpoint(t.Context(), tab.Cached()) // may fail, and must then cost nothing
				}
			}
			again, err := Open(t.Context(), inner, quiet)
			if err != nil {
				t.Fatalf("fault %d at operation %d: %v", fault, n, err)
			}
			rows := strings.Join(readAll(t, again, again.Cached()), "\n")
			for i := range acknowledged {
				if strings.Count(rows, id(i)) != 1 {
					t.Errorf("fault %d at operation %d: row %d is there %d times", fault, n, i, strings.Count(rows, id(i)))
				}
			}
			if !hit {
				break
			}
		}
	}
}

func TestTimestampsNeverGoBack(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	st := store.NewMemory()
	tab := createTable(t, st, Options{CheckpointInterval: -1, Clock: func() time.Time { return now }}, TableSpec{})
	now = now.Add(-time.Hour)
	c := appendRows(t, tab, id(1))
	if got := c.Timestamp.UnixMilli(); got != 1_700_000_000_001 {
		t.Errorf("timestamp %d", got)
	}
	info, err := st.Stat(t.Context(), logName(1))
	if err != nil || info.ModTime.UnixMilli() != c.Timestamp.UnixMilli() {
		t.Errorf("file time %v, %v", info.ModTime, err)
	}
}

func rowsOf(b ...arrow.RecordBatch) []arrow.RecordBatch { return b }
