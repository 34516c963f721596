package deltalog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// names is what a store has, with commits' sizes.
func names(t *testing.T, st store.Store) []string {
	t.Helper()
	var out []string
	for info, err := range st.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprint(info.Name, " ", info.Size))
	}
	return out
}

func removeAll(t *testing.T, st store.Store) {
	t.Helper()
	for info, err := range st.List(t.Context(), "", "") {
		if err == nil {
			err = st.Delete(t.Context(), info.Name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// writes are the ways in which an open table writes to its log or beside it.
var writes = map[string]func(ctx context.Context, tab *Table, rows arrow.RecordBatch) error{
	"commit": func(ctx context.Context, tab *Table, _ arrow.RecordBatch) error {
		_, err := tab.Commit(ctx, Transaction{Base: tab.Cached(), Operation: "WRITE", Adds: []Add{*fileNamed("x")}})
		return err
	},
	"append": func(ctx context.Context, tab *Table, rows arrow.RecordBatch) error {
		_, err := tab.Append(ctx, []arrow.RecordBatch{rows}, "WRITE")
		return err
	},
	"checkpoint": func(ctx context.Context, tab *Table, _ arrow.RecordBatch) error {
		return tab.Checkpoint(ctx, tab.Cached())
	},
}

// TestStaleTableLeavesTheNewLogAlone: a table that was deleted and made anew by somebody else takes nothing from who knows the old one, whether the
// new log is shorter, as long, or longer.
func TestStaleTableLeavesTheNewLogAlone(t *testing.T) {
	t.Parallel()
	for _, versions := range []int{0, 2, 3, 5} {
		for name, write := range writes {
			st := store.NewMemory()
			stale := createTable(t, st, quiet, TableSpec{})
			for i := range 2 {
				appendRows(t, stale, id(i))
			}
			removeAll(t, st)
			// The time of a commit, in milliseconds, is how a log is told from another.
			later := Options{CheckpointInterval: -1, Clock: func() time.Time { return time.Now().Add(time.Hour) }}
			anew := createTable(t, st, later, TableSpec{})
			for i := range versions {
				appendRows(t, anew, id(i))
			}
			before := names(t, st)
			err := write(t.Context(), stale, batch(t, stale.Cached().Schema(), id(9)))
			if !errors.Is(err, ErrRecreated) || errors.Is(err, ErrConflict) {
				t.Errorf("%s, %d versions: %v", name, versions, err)
			}
			after := slices.DeleteFunc(names(t, st), func(n string) bool {
				return name == "append" && strings.HasPrefix(n, "part-") && !slices.Contains(before, n)
			})
			if !slices.Equal(before, after) {
				t.Errorf("%s, %d versions: the store has %v, had %v", name, versions, after, before)
			}
			if _, err := stale.Snapshot(t.Context()); versions > 2 && !errors.Is(err, ErrRecreated) {
				t.Errorf("%s, %d versions: refresh: %v", name, versions, err)
			}
			if gone, err := stale.Recreated(t.Context(), stale.Cached().Version()); err != nil || !gone {
				t.Errorf("%s, %d versions: recreated %v, %v", name, versions, gone, err)
			}
		}
	}
}

// TestRemovedTableStaysRemoved: rm -rf of a table under whoever has it open is noticed, and nothing of it is made again.
func TestRemovedTableStaysRemoved(t *testing.T) {
	t.Parallel()
	for _, partitions := range [][]string{nil, {"p"}} {
		for name, write := range writes {
			dir := t.TempDir()
			root, err := store.NewLocal(dir, true)
			if err != nil {
				t.Fatal(err)
			}
			tab := createTable(t, store.Sub(root, "a/t"), quiet, TableSpec{PartitionColumns: partitions})
			appendRows(t, tab, id(1))
			if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
				t.Fatal(err)
			}
			rows := batch(t, tab.Cached().Schema(), `{"id":2,"p":"another"}`)
			if err := write(t.Context(), tab, rows); !errors.Is(err, ErrNotTable) {
				t.Errorf("%s: %v", name, err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%s: left %v, %v", name, left, err)
			}
		}
	}
}

// TestCommitIntoAVanishingLog: the directory goes away after the look at it.
func TestCommitIntoAVanishingLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	local, err := store.NewLocal(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	st := store.WithFaults(store.Sub(local, "t"), func(op store.Op) store.Fault {
		if op.Kind == "put" && op.Name == logName(1) {
			if err := os.RemoveAll(filepath.Join(dir, "t")); err != nil {
				t.Error(err)
			}
		}
		return store.None
	})
	tab := createTable(t, st, quiet, TableSpec{})
	if err := writes["commit"](t.Context(), tab, nil); !errors.Is(err, ErrNotTable) {
		t.Errorf("commit: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestTouchedLog: a commit file that lost its time, as in a copy, is told by its content, and costs no more than reading it.
func TestTouchedLog(t *testing.T) {
	t.Parallel()
	var r recorder
	inner := store.NewMemory()
	tab := createTable(t, store.WithFaults(inner, r.hook), quiet, TableSpec{})
	appendRows(t, tab, id(1))
	data, err := inner.Get(t.Context(), logName(1))
	if err == nil {
		err = inner.Put(t.Context(), logName(1), data, store.PutOptions{ModTime: time.UnixMilli(5)})
	}
	if err != nil {
		t.Fatal(err)
	}
	r.take()
	if err := writes["commit"](t.Context(), tab, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := r.take(), "stat "+logName(1)+"\nget "+logName(1)+"\nput if absent "+logName(2)+"\n"; got != want {
		t.Errorf("got\n%s", got)
	}
}
