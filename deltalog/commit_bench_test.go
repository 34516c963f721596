package deltalog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// BenchmarkCommit is one durable commit of one file to a table of so many versions: it does not grow with them. In turn with it, the same file is made
// in the same directory without any code of ours: raw-ns is what the file system alone takes. Medians, since disks have bad moments. With TMPDIR on a
// file system in memory, what is left is our own work.
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct {
		versions int
		cleaned  bool // all commits but the last 1,000 are gone, as after log cleanup; the directory stays as large as it was
	}{{10, false}, {1_000, false}, {100_000, false}, {100_000, true}} {
		name := fmt.Sprint(c.versions, " versions")
		if c.cleaned {
			name += ", cleaned up"
		}
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			tab := longTable(b, dir, c.versions)
			if _, err := tab.Snapshot(b.Context()); err != nil {
				b.Fatal(err)
			}
			log := filepath.Join(dir, logDir)
			if c.cleaned {
				if err := tab.Checkpoint(b.Context(), tab.Cached()); err != nil {
					b.Fatal(err)
				}
				for v := range c.versions - 1_000 {
					if err := os.Remove(filepath.Join(dir, logName(int64(v)))); err != nil {
						b.Fatal(err)
					}
				}
			}
			writeBack()
			data := make([]byte, 600)
			var ours, raw []time.Duration
			for i := 0; b.Loop(); i++ {
				begun := time.Now()
				add := *fileNamed(fmt.Sprint("new", i))
				if _, err := tab.Commit(b.Context(), Transaction{Base: tab.Cached(), Operation: "WRITE", Adds: []Add{add}}); err != nil {
					b.Fatal(err)
				}
				ours = append(ours, time.Since(begun))
				begun = time.Now()
				if err := rawCommit(log, fmt.Sprintf("%020d.raw", 1_000_000+i), data); err != nil {
					b.Fatal(err)
				}
				raw = append(raw, time.Since(begun))
			}
			b.ReportMetric(median(ours), "commit-ns")
			b.ReportMetric(median(raw), "raw-ns")
			b.ReportMetric(0, "ns/op") // of both together
		})
	}
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds())
}

// rawCommit makes name in dir as a commit is made: a synced temporary file, a link, no temporary file, a synced directory.
func rawCommit(dir, name string, data []byte) error {
	tmp := filepath.Join(dir, "."+name+".tmp")
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := errors.Join(os.Link(tmp, filepath.Join(dir, name)), os.Remove(tmp)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
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
