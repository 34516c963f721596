package deltalog

import (
	"fmt"
	"testing"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// BenchmarkOpen is a cold open of a table with so many commits, of one file each, behind a checkpoint 500 commits back; and with every hint, commit and
// file in the page cache, as after a restart of the process.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprint(n, " commits"), func(b *testing.B) {
			dir := b.TempDir()
			tab := longTable(b, dir, n)
			if _, err := tab.Snapshot(b.Context()); err != nil {
				b.Fatal(err)
			}
			if behind := int64(n - 500); behind > 0 {
				s, err := tab.SnapshotAt(b.Context(), behind)
				if err != nil {
					b.Fatal(err)
				}
				if err := tab.Checkpoint(b.Context(), s); err != nil {
					b.Fatal(err)
				}
			}
			st, err := store.NewLocal(dir, false)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				again, err := Open(b.Context(), st, quiet)
				if err != nil || again.Cached().NumFiles() != n-1 {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefresh is what an open table of 100,000 commits costs to bring up to date, by how many commits are new.
func BenchmarkRefresh(b *testing.B) {
	const n = 100_000
	dir := b.TempDir()
	tab := longTable(b, dir, n)
	if _, err := tab.Snapshot(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, fresh := range []int{0, 1, 10} {
		b.Run(fmt.Sprint(fresh, " new"), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				next := tab.Cached().Version() + 1
				commits(b, tab.Store(), next, next+int64(fresh)-1)
				b.StartTimer()
				if _, err := tab.Snapshot(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
