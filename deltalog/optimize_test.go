package deltalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// paths are the live files with their partition and rows, oldest first.
func paths(s *Snapshot) (out []string) {
	for a := range s.Files() {
		out = append(out, a.Path)
	}
	return out
}

// TestOptimize packs the files of each partition, keeps rows and their order, and changes no data.
func TestOptimize(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{PartitionColumns: []string{"p"}}, "id BIGINT NOT NULL", "c CHAR(3)", "p STRING")
	for i := range 6 {
		appendRows(t, tab, fmt.Sprintf(`{"id":%d,"c":"a","p":"x"}`, i))
	}
	appendRows(t, tab, `{"id":10,"c":null,"p":null}`, `{"id":11,"c":"abc","p":"alone"}`)
	before := readAll(t, tab, tab.Cached())
	dry, err := tab.Optimize(t.Context(), OptimizeOptions{DryRun: true})
	if err != nil || dry.Version != -1 || dry.FilesRemoved != 6 || dry.FilesAdded != 1 || tab.Cached().NumFiles() != 8 {
		t.Fatalf("dry run %+v, %v, %d files", dry, err, tab.Cached().NumFiles())
	}
	r, err := tab.Optimize(t.Context(), OptimizeOptions{})
	if err != nil || r.Version != 8 || r.FilesRemoved != 6 || r.FilesAdded != 1 || tab.Cached().NumFiles() != 3 {
		t.Fatalf("%+v, %v, %d files", r, err, tab.Cached().NumFiles())
	}
	after := readAll(t, tab, tab.Cached())
	slices.Sort(before)
	if got := slices.Sorted(slices.Values(after)); !slices.Equal(got, before) {
		t.Errorf("rows %v, expected %v", got, before)
	}
	if in := func(row string) int { return slices.Index(after, row) }; in(`{"id":0,"c":"a  ","p":"x"}`) != in(`{"id":5,"c":"a  ","p":"x"}`)-5 {
		t.Errorf("the order is lost: %v", after)
	}
	c, err := tab.ReadCommit(t.Context(), 8)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range c.Actions {
		if a.Add != nil && (a.Add.DataChange || !strings.Contains(a.Add.Stats, `"maxValues":{"id":5,"c":"a"}`)) || a.Remove != nil && a.Remove.DataChange {
			t.Errorf("%+v %+v", a.Add, a.Remove)
		}
	}
	if r, err := tab.Optimize(t.Context(), OptimizeOptions{}); err != nil || r.Version != -1 || r.FilesRemoved != 0 {
		t.Errorf("again: %+v, %v", r, err)
	}
}

// TestOptimizeLeavesLargeFilesAlone, and fills files up to the target.
func TestOptimizeLeavesLargeFilesAlone(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{})
	for i := range 5 {
		appendRows(t, tab, fmt.Sprintf(`{"id":%d,"p":"x"}`, i))
	}
	size := tab.Cached().Size() / 5
	old := paths(tab.Cached())
	if r, err := tab.Optimize(t.Context(), OptimizeOptions{TargetSize: size}); err != nil || r.Version != -1 || !slices.Equal(paths(tab.Cached()), old) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := tab.Optimize(t.Context(), OptimizeOptions{TargetSize: 2*size + size/2}); err != nil || r.FilesRemoved != 4 || r.FilesAdded != 2 || tab.Cached().NumFiles() != 3 {
		t.Errorf("%+v, %v, %d files", r, err, tab.Cached().NumFiles())
	}
}

// TestOptimizeBesideOtherWriters: appends are no conflict, a file that is gone is one.
func TestOptimizeBesideOtherWriters(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tab := createTable(t, st, quiet, TableSpec{})
	appendRows(t, tab, `{"id":1,"p":"x"}`)
	appendRows(t, tab, `{"id":2,"p":"x"}`)
	during := func(what func(other *Table)) error {
		done := false
		slow, err := Open(t.Context(), store.WithFaults(st, func(op store.Op) store.Fault {
			if strings.HasPrefix(op.Name, "_delta_log/") && op.Kind == "put" && !done {
				done = true
				other, err := Open(t.Context(), st, quiet)
				if err != nil {
					t.Error(err)
					return store.None
				}
				what(other)
			}
			return store.None
		}), quiet)
		if err != nil {
			t.Fatal(err)
		}
		_, err = slow.Optimize(t.Context(), OptimizeOptions{})
		if !done {
			t.Error("nobody came between")
		}
		return err
	}
	if err := during(func(other *Table) { appendRows(t, other, `{"id":3,"p":"x"}`) }); err != nil {
		t.Errorf("beside an append: %v", err)
	}
	appendRows(t, reopened(t, st), `{"id":4,"p":"x"}`)
	err := during(func(other *Table) {
		tx := Transaction{Base: other.Cached(), Operation: "DELETE", ReadTable: true}
		for a := range other.Cached().Files() {
			tx.Removes = append(tx.Removes, a)
		}
		if _, err := other.Commit(t.Context(), tx); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, ErrConflict) {
		t.Errorf("beside a delete: %v", err)
	}
	if got := readAll(t, reopened(t, st), reopened(t, st).Cached()); len(got) != 0 {
		t.Errorf("deleted rows came back: %v", got)
	}
}

func reopened(t *testing.T, st store.Store) *Table {
	t.Helper()
	tab, err := Open(t.Context(), st, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestRestore brings rows, schema and properties back, and nothing of what came since.
func TestRestore(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tab := createTable(t, st, quiet, TableSpec{Configuration: map[string]string{propLogRetention: "interval 5 days"}})
	appendRows(t, tab, `{"id":1,"p":"x"}`)
	appendRows(t, tab, `{"id":2,"p":"x"}`)
	tx := Transaction{Base: tab.Cached(), Operation: "WRITE", ReadTable: true}
	for a := range tab.Cached().Files() {
		tx.Removes = append(tx.Removes, a)
		break
	}
	m := *tab.Cached().Metadata()
	m.Configuration = map[string]string{propLogRetention: "interval 9 days"}
	tx.Metadata = &m
	if _, err := tab.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	appendRows(t, tab, `{"id":3,"p":"x"}`)
	now := readAll(t, tab, tab.Cached())
	dry, err := tab.Restore(t.Context(), 2, RestoreOptions{DryRun: true})
	if err != nil || dry.Version != -1 || dry.FilesAdded != 1 || dry.FilesRemoved != 1 || !slices.Equal(readAll(t, tab, tab.Cached()), now) {
		t.Fatalf("dry run %+v, %v", dry, err)
	}
	r, err := tab.Restore(t.Context(), 2, RestoreOptions{})
	if err != nil || r.Version != 5 || r.FilesAdded != 1 || r.FilesRemoved != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	got := slices.Sorted(slices.Values(readAll(t, tab, tab.Cached())))
	if !slices.Equal(got, []string{`{"id":1,"p":"x"}`, `{"id":2,"p":"x"}`}) || tab.Cached().Property(propLogRetention) != "interval 5 days" {
		t.Errorf("rows %v, properties %v", got, tab.Cached().Metadata().Configuration)
	}
	c, err := tab.ReadCommit(t.Context(), 5)
	if err != nil || c.Info().String("operation") != "RESTORE" {
		t.Fatalf("%v, %v", c.Info(), err)
	}
	for _, a := range c.Actions {
		if a.Add != nil && !a.Add.DataChange || a.Remove != nil && !a.Remove.DataChange {
			t.Error("the feed would not show it")
		}
	}
	if r, err := tab.Restore(t.Context(), 2, RestoreOptions{}); err != nil || r.Version != -1 {
		t.Errorf("again: %+v, %v", r, err)
	}
	if _, err := tab.Restore(t.Context(), 99, RestoreOptions{}); !errors.Is(err, ErrVersionNotFound) {
		t.Errorf("a version that is not there: %v", err)
	}
	snap, err := tab.SnapshotAt(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	for a := range snap.Files() {
		if !slices.Contains(paths(tab.Cached()), a.Path) {
			if err := st.Delete(t.Context(), a.Path); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := tab.Restore(t.Context(), 4, RestoreOptions{}); !errors.Is(err, store.ErrNotExist) || tab.Cached().Version() != 5 {
		t.Errorf("a vacuumed file: %v", err)
	}
}
