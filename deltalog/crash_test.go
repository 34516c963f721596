package deltalog_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/deltalog/verify"
)

// workload is a table that is written to, an hour of its own clock after the other, and everything that is known of what it must hold.
type workload struct {
	ctx context.Context
	st  *store.Crashable
	tab *deltalog.Table
	now time.Time // begins with the real time, which data files get
	// acknowledged is the last version whose commit returned without an error; -1: none.
	acknowledged int64
	// step, if set, is told after each step what it was.
	step func(title string)
}

func newWorkload(ctx context.Context, st *store.Crashable) *workload {
	return &workload{ctx: ctx, st: st, now: time.Now(), acknowledged: -1, step: func(string) {}}
}

func (w *workload) options() deltalog.Options {
	return deltalog.Options{Clock: func() time.Time { return w.now }, CheckpointInterval: 3}
}

// did waits for what runs beside the commit, so that operations have one order.
func (w *workload) did(title string, c *deltalog.Commit, err error) error {
	if err != nil {
		return err
	}
	if c != nil {
		w.acknowledged = c.Version
	}
	err = w.tab.Close()
	w.step(title)
	w.now = w.now.Add(time.Hour)
	return err
}

func (w *workload) create() error {
	spec := deltalog.TableSpec{PartitionColumns: []string{"p"}, Configuration: map[string]string{
		"delta.enableChangeDataFeed": "true", "delta.logRetentionDuration": "interval 6 hours", "delta.deletedFileRetentionDuration": "interval 3 hours",
	}}
	for _, ddl := range []string{"id BIGINT NOT NULL", "p STRING"} {
		f, err := deltalog.ParseColumn(ddl)
		if err != nil {
			return err
		}
		spec.Schema.Fields = append(spec.Schema.Fields, f)
	}
	tab, err := deltalog.Create(w.ctx, w.st, spec, w.options())
	if err != nil {
		return err
	}
	w.tab, w.acknowledged = tab, 0
	return w.did("create", nil, nil)
}

func (w *workload) append(id int, p string) error {
	schema, err := deltalog.ArrowSchema(w.tab.Cached().Schema())
	if err != nil {
		return err
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	if err := b.UnmarshalJSON(fmt.Appendf(nil, `{"id":%d,"p":%q}`, id, p)); err != nil {
		return err
	}
	c, err := w.tab.Append(w.ctx, []arrow.RecordBatch{b.NewRecordBatch()}, "WRITE")
	return w.did("append to partition "+p, c, err)
}

// rewrite writes the files of a partition as one: a compaction, or what replaces them in the eyes of the feed.
func (w *workload) rewrite(p string, noDataChange bool) error {
	snap, partition := w.tab.Cached(), map[string]string{"p": p}
	tx := deltalog.Transaction{Base: snap, Operation: "WRITE", ReadPartitions: []map[string]string{partition}, NoDataChange: noDataChange}
	title := "replace partition " + p
	if noDataChange {
		tx.Operation, title = "OPTIMIZE", "optimize partition "+p
	}
	for add := range snap.FilesIn(partition) {
		tx.Removes = append(tx.Removes, add)
	}
	var rows []arrow.RecordBatch
	for rec, err := range w.tab.Scan(w.ctx, snap, nil, partition) {
		if err != nil {
			return err
		}
		rec.Retain()
		rows = append(rows, rec)
	}
	adds, err := w.tab.WriteFiles(w.ctx, snap, rows)
	if err != nil {
		return err
	}
	tx.Adds = adds
	c, err := w.tab.Commit(w.ctx, tx)
	return w.did(title, c, err)
}

func (w *workload) comment(text string) error {
	m := *w.tab.Cached().Metadata()
	m.Description = text
	c, err := w.tab.Commit(w.ctx, deltalog.Transaction{Base: w.tab.Cached(), Operation: "SET TBLPROPERTIES", Metadata: &m, Txns: []deltalog.Txn{{AppID: "app", Version: 1}}})
	return w.did("change metadata, with a txn", c, err)
}

func (w *workload) vacuum() error {
	_, err := w.tab.Vacuum(w.ctx, deltalog.VacuumOptions{})
	return w.did("vacuum", nil, err)
}

// run does it all, until something fails.
func (w *workload) run() error {
	steps := []func() error{w.create}
	id := 0
	add := func(p string) func() error {
		return func() error { id++; return w.append(id, p) }
	}
	for range 2 {
		steps = append(steps, add("a"), add("b"), add("a"), func() error { return w.rewrite("a", true) }, add("a"), func() error { return w.rewrite("a", false) })
	}
	steps = append(steps, func() error { return w.comment("a comment") }, add("b"), w.vacuum, add("c"))
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf are the ids of a snapshot.
func rowsOf(t *testing.T, tab *deltalog.Table, s *deltalog.Snapshot) string {
	t.Helper()
	var ids []int64
	for rec, err := range tab.Scan(t.Context(), s, []string{"id"}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, rec.Column(0).(*array.Int64).Int64Values()...)
	}
	slices.Sort(ids)
	return fmt.Sprint(ids)
}

// TestCrashEverywhere crashes the machine after each operation of the file system in turn, whatever of the unsynced it then keeps: what was acknowledged
// is there, nothing half done is seen, an audit finds nothing, and the table can be written to.
func TestCrashEverywhere(t *testing.T) {
	t.Parallel()
	whole := newWorkload(t.Context(), store.NewCrashable())
	states := map[int64]string{}
	whole.step = func(string) { states[whole.acknowledged] = rowsOf(t, whole.tab, whole.tab.Cached()) }
	if err := whole.run(); err != nil {
		t.Fatal(err)
	}
	operations := whole.st.Operations()
	if len(operations) < 200 {
		t.Fatalf("the workload has only %d operations", len(operations))
	}
	for _, kind := range []string{"link", "rename", "mkdir", "remove _delta_log/00000000000000000000.json", "remove p=a/part", "rename _delta_log/.00000000000000000006.checkpoint"} {
		if !slices.ContainsFunc(operations, func(op string) bool { return strings.HasPrefix(op, kind) }) {
			t.Errorf("the workload has no %s", kind)
		}
	}
	const parts = 8 // run beside one another
	for part := range parts {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			for n := part; n < len(operations); n += parts {
				w := newWorkload(t.Context(), store.NewCrashable())
				w.st.CrashAfter(n)
				err := w.run() // a failure of what runs beside the commits is not reported
				if !w.st.Crashed() {
					t.Errorf("no crash after %d operations: %v", n, err)
				}
				for _, seed := range []uint64{0, 1, uint64(n) + 2} {
					afterCrash(t, w, seed, states, fmt.Sprintf("crash after operation %d (%s), seed %d", n, unstable.ReplaceAllString(operations[max(0, n-1)], "UUID"), seed))
				}
			}
		})
	}
}

func afterCrash(t *testing.T, w *workload, seed uint64, states map[int64]string, what string) {
	t.Helper()
	st := w.st.Restart(seed)
	tab, err := deltalog.Open(t.Context(), st, w.options())
	if errors.Is(err, deltalog.ErrNotTable) && w.acknowledged < 0 {
		return
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	v := tab.Cached().Version()
	if v != w.acknowledged && v != w.acknowledged+1 {
		t.Errorf("%s: version %d, acknowledged was %d", what, v, w.acknowledged)
	}
	if got := rowsOf(t, tab, tab.Cached()); got != states[v] {
		t.Errorf("%s: version %d has rows %s, want %s", what, v, got, states[v])
	}
	report, err := verify.Verify(t.Context(), st)
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("%s: audit: %v, %q", what, err, report.Problems)
	}
	on := &workload{ctx: t.Context(), st: st, tab: tab, now: w.now.Add(time.Hour), step: func(string) {}}
	if err := on.append(100, "a"); err != nil || on.acknowledged != v+1 {
		t.Errorf("%s: going on: version %d, %v", what, on.acknowledged, err)
	}
}

var unstable = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)

// TestDiskOperations: what each kind of commit, a checkpoint with its cleanup and a vacuum do to a disk, in exactly this order, as a reviewed file.
// Nothing may be published before it is synced, and a commit only after what it names.
func TestDiskOperations(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := newWorkload(t.Context(), store.NewCrashable())
	seen, shown := 0, map[string]bool{}
	w.step = func(title string) {
		ops := w.st.Operations()
		var lines []string
		for _, op := range ops[seen:] {
			lines = append(lines, unstable.ReplaceAllString(op, "UUID"))
		}
		seen = len(ops)
		checkpoint := slices.ContainsFunc(lines, func(op string) bool { return strings.Contains(op, "checkpoint") })
		if checkpoint {
			title += ", then a checkpoint"
		}
		if slices.ContainsFunc(lines, func(op string) bool { return strings.HasPrefix(op, "remove _delta_log/0") }) {
			title += " and log cleanup"
		}
		if !shown[title] {
			fmt.Fprintf(&out, "# %s\n%s\n\n", title, strings.Join(lines, "\n"))
			shown[title] = true
		}
	}
	if err := w.run(); err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "disk_operations.txt")
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != out.String() {
		t.Errorf("%v; got:\n%s", err, out.String())
	}
}
