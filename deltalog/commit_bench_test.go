package deltalog

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// longTable is a table of n versions with one file each, made by writing its log straight to dir.
func longTable(b *testing.B, dir string, n int) *Table {
	b.Helper()
	st, err := store.NewLocal(dir, false)
	if err != nil {
		b.Fatal(err)
	}
	tab := createTable(b, st, quiet, TableSpec{})
	value := "x"
	for v := 1; v < n; v++ {
		data, err := encodeCommit([]Action{
			{CommitInfo: newCommitInfo(tab.opts, time.Now(), Transaction{Operation: "WRITE"}, true, "txn")},
			{Add: &Add{Path: fmt.Sprintf("part-00000-%036d.c000.snappy.parquet", v), Size: 1000, PartitionValues: map[string]*string{"p": &value}, Stats: `{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":1},"nullCount":{"id":0}}`}},
		})
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, logName(int64(v))), data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return tab
}

// BenchmarkCommit is one durable commit of one file to a table of so many versions: it does not grow with them.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{10, 1_000, 100_000} {
		b.Run(fmt.Sprint(n, " versions"), func(b *testing.B) {
			tab := longTable(b, b.TempDir(), n)
			if _, err := tab.Snapshot(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				add := *fileNamed(fmt.Sprint("new", i))
				if _, err := tab.Commit(b.Context(), Transaction{Base: tab.Cached(), Operation: "WRITE", Adds: []Add{add}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkIdlePoll is a refresh that finds nothing new.
func BenchmarkIdlePoll(b *testing.B) {
	tab := longTable(b, b.TempDir(), 1_000)
	if _, err := tab.Snapshot(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tab.Snapshot(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCheckpoint writes a checkpoint of so many live files, and opens the table by it.
func BenchmarkCheckpoint(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		st := store.NewMemory()
		tab := createTable(b, st, quiet, TableSpec{})
		var actions []Action
		for i := range n {
			actions = append(actions, Action{Add: &Add{Path: fmt.Sprintf("part-00000-%036d.c000.snappy.parquet", i), Size: 1000, PartitionValues: map[string]*string{}, Stats: `{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":1},"nullCount":{"id":0}}`}})
		}
		s, err := tab.Cached().next(&Commit{Version: 1, Timestamp: time.Now(), Actions: actions})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint("write ", n), func(b *testing.B) {
			for b.Loop() {
				if err := tab.Checkpoint(b.Context(), s); err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := tab.Checkpoint(b.Context(), s); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint("open ", n), func(b *testing.B) {
			for b.Loop() {
				again, err := Open(b.Context(), st, quiet)
				if err != nil || again.Cached().NumFiles() != n {
					b.Fatal(err)
				}
			}
		})
	}
}
