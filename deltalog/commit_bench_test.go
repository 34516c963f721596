package deltalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// longTable is a table on disk with so many versions, the older ones written as files, with a checkpoint near the end.
func longTable(b *testing.B, versions int) *Table {
	b.Helper()
	dir := b.TempDir()
	st, err := store.NewLocal(dir, false)
	if err != nil {
		b.Fatal(err)
	}
	tab := createTable(b, st, quiet, TableSpec{})
	appendRows(b, tab, id(1))
	for v := 2; v <= versions; v++ {
		line := fmt.Sprintf(`{"commitInfo":{"timestamp":%d,"operation":"WRITE"}}`+"\n"+`{"add":{"path":"part-%d.parquet","partitionValues":{},"size":1000,"modificationTime":1,"dataChange":true,"stats":"{\"numRecords\":1}"}}`+"\n", v, v)
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(logName(int64(v)))), []byte(line), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	s, err := tab.Snapshot(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	if err := tab.Checkpoint(context.Background(), s); err != nil {
		b.Fatal(err)
	}
	if tab, err = Open(context.Background(), st, Options{}); err != nil {
		b.Fatal(err)
	}
	return tab
}

// BenchmarkCommit appends one row a commit, synced, to tables of more and more versions.
func BenchmarkCommit(b *testing.B) {
	for _, versions := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprintf("versions=%d", versions), func(b *testing.B) {
			tab := longTable(b, versions)
			rows := []arrow.RecordBatch{batch(b, tab.Cached().Schema(), id(1))}
			b.ResetTimer()
			for range b.N {
				if _, err := tab.Append(context.Background(), rows, "WRITE"); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			_ = tab.Close()
		})
	}
}

// BenchmarkIdlePoll looks for a new version where there is none.
func BenchmarkIdlePoll(b *testing.B) {
	for _, versions := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprintf("versions=%d", versions), func(b *testing.B) {
			tab := longTable(b, versions)
			b.ResetTimer()
			for range b.N {
				if _, err := tab.Snapshot(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen opens a table of many versions behind its checkpoint.
func BenchmarkOpen(b *testing.B) {
	for _, versions := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprintf("versions=%d", versions), func(b *testing.B) {
			tab := longTable(b, versions)
			b.ResetTimer()
			for range b.N {
				if _, err := Open(context.Background(), tab.Store(), Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
