package deltalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestOldHint: the commits that follow it have been cleaned up, and a later checkpoint holds the table.
func TestOldHint(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tab := createTable(t, st, quiet, TableSpec{})
	var old []byte
	for i := range 20 {
		appendRows(t, tab, id(i))
		if i == 4 || i == 14 {
			if err := tab.Checkpoint(t.Context(), tab.Cached()); err != nil {
				t.Fatal(err)
			}
			if i == 4 {
				old, _ = st.Get(t.Context(), lastCheckpointName)
			}
		}
	}
	put(t, st, lastCheckpointName, string(old))
	delCommits(t, st, 0, 10)
	again, err := Open(t.Context(), st, quiet)
	if err != nil || again.Cached().Version() != 20 || again.Cached().NumFiles() != 20 {
		t.Fatalf("%+v, %v", again, err)
	}
}

// TestTimesOfACopy: a copy has the times at which its files were written, in any order. A commit's time goes back nowhere, and is the same
// whichever way it is read.
func TestTimesOfACopy(t *testing.T) {
	t.Parallel()
	const versions = 60
	inner := store.NewMemory()
	tab := createTable(t, inner, quiet, TableSpec{})
	for i := range versions {
		appendRows(t, tab, id(i))
	}
	copied := time.UnixMilli(1_700_000_000_000)
	for v := range int64(versions + 1) {
		data, err := inner.Get(t.Context(), logName(v))
		if err != nil {
			t.Fatal(err)
		}
		at := copied.Add(time.Duration(rand.IntN(5)) * time.Millisecond)
		if err := inner.Put(t.Context(), logName(v), data, store.PutOptions{ModTime: at}); err != nil {
			t.Fatal(err)
		}
	}
	replayed, err := Open(t.Context(), inner, quiet) // all commits, in order
	if err != nil {
		t.Fatal(err)
	}
	want := map[int64]time.Time{}
	last := time.Time{}
	for v := range int64(versions + 1) {
		c, err := replayed.ReadCommit(t.Context(), v)
		if err != nil || !c.Timestamp.After(last) {
			t.Fatalf("version %d: %v after %v, %v", v, c.Timestamp, last, err)
		}
		want[v], last = c.Timestamp, c.Timestamp
	}
	if err := replayed.Checkpoint(t.Context(), replayed.Cached()); err != nil {
		t.Fatal(err)
	}
	stats := 0
	st := store.WithFaults(inner, func(op store.Op) store.Fault {
		if op.Kind == "stat" {
			stats++
		}
		return store.None
	})
	for name, order := range map[string]func(i int) int64{
		"forward":   func(i int) int64 { return int64(i) },
		"backward":  func(i int) int64 { return versions - int64(i) },
		"scattered": func(i int) int64 { return int64(i) * 17 % (versions + 1) },
	} {
		again, err := Open(t.Context(), st, quiet) // by the checkpoint: knows no commit
		if err != nil {
			t.Fatal(err)
		}
		if got := again.Cached().Timestamp(); !got.Equal(want[versions]) {
			t.Errorf("snapshot at %v, want %v", got, want[versions])
		}
		stats = 0
		for i := range versions + 1 {
			v := order(i)
			c, err := again.ReadCommit(t.Context(), v)
			if err != nil || !c.Timestamp.Equal(want[v]) {
				t.Errorf("%s: version %d at %v, want %v, %v", name, v, c.Timestamp, want[v], err)
			}
		}
		if stats > 2*(versions+1) {
			t.Errorf("%s: %d stats for %d commits", name, stats, versions+1)
		}
		if v, err := again.VersionAt(t.Context(), want[30]); err != nil || v != 30 {
			t.Errorf("%s: at the time of version 30: %d, %v", name, v, err)
		}
	}
}

// TestIdlePollCost: with nothing new, one Stat, whatever the table; no listing and no reading.
func TestIdlePollCost(t *testing.T) {
	t.Parallel()
	var r recorder
	tab := createTable(t, store.WithFaults(store.NewMemory(), r.hook), quiet, TableSpec{})
	for i := range 30 {
		appendRows(t, tab, id(i))
	}
	r.take()
	for range 10 {
		if _, err := tab.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := r.take(), strings.Repeat("stat "+logName(31)+"\n", 10); got != want {
		t.Errorf("ten idle polls:\n%s", got)
	}
	for v := range int64(31) {
		if _, err := tab.ReadCommit(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if ok, err := tab.Exists(t.Context(), v); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	if got := r.take(); got != "\n" {
		t.Errorf("recent commits cost %s", got)
	}
}

// TestRingIsBounded by commits and by bytes, and gives only what it has.
func TestRingIsBounded(t *testing.T) {
	t.Parallel()
	var r ring
	for v := range int64(3000) {
		r.add(&Commit{Version: v, Size: 10})
	}
	if r.get(1999) != nil || r.get(2000) == nil || r.get(2999).Version != 2999 || r.get(3000) != nil || r.get(-1) != nil {
		t.Errorf("%d commits from %d", len(r.commits), r.commits[0].Version)
	}
	for v := int64(3000); v < 3010; v++ {
		r.add(&Commit{Version: v, Size: ringBytes / 2})
	}
	if len(r.commits) > 2 || r.bytes > ringBytes {
		t.Errorf("%d commits, %d bytes", len(r.commits), r.bytes)
	}
	r.add(&Commit{Version: 5000, Size: 2 * ringBytes}) // a gap: what was before is of no use
	if r.get(3009) != nil || r.get(5000) == nil {
		t.Error("not contiguous")
	}
}

func TestLogNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]logFile{
		logName(12):                               {version: 12, kind: commitFile},
		checkpointName(12):                        {version: 12, kind: classicCheckpoint},
		logDir + "00000000000000000012.crc":       {version: 12, kind: derivedFile},
		logDir + "00000000000000000012.json.tmp":  {},
		logDir + ".00000000000000000012.json.crc": {},
		logDir + "00000000000000000012.00000000000000000015.compacted.json":         {version: 12, kind: derivedFile},
		logDir + "00000000000000000012.checkpoint.0000000001.0000000002.parquet":    {12, multiPartCheckpoint, 1, 2},
		logDir + "00000000000000000012.checkpoint.3a0d65cd.json":                    {version: 12, kind: uuidCheckpoint},
		logDir + "00000000000000000012.checkpoint.3a0d65cd.parquet":                 {version: 12, kind: uuidCheckpoint},
		logDir + "00000000000000000012.checkpoint.0000000003.0000000002.parquet":    {},
		logDir + "00000000000000000012.checkpoint.0000000000.0000000002.parquet":    {},
		logDir + "00000000000000000012.checkpoint.1.2.parquet":                      {},
		logDir + "_last_checkpoint":                                                 {},
		logDir + "0000000000000000001x.json":                                        {},
		logDir + "-0000000000000000012.json":                                        {},
		logDir + "_sidecars/00000000000000000012.json":                              {},
		"00000000000000000012.json":                                                 {},
		logDir + "12.json":                                                          {},
		logDir + "00000000000000000012.checkpoint.3a0d65cd.parquet.12345.tmp":       {},
		logDir + "00000000000000000012.00000000000000000015.compacted.json.partial": {},
	} {
		if got := parseLogName(name); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// TestReadersGoOnWhileWritten: refreshing and committing at once, through one handle and through another, shows each version once and whole.
func TestReadersGoOnWhileWritten(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	writer := createTable(t, st, Options{CheckpointInterval: 7}, TableSpec{})
	other, err := Open(t.Context(), st, quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for _, tab := range []*Table{writer, other} {
		go func() {
			for last := int64(-1); ctx.Err() == nil; {
				s, err := tab.Snapshot(context.Background())
				n := 0
				if err == nil {
					for range s.Files() {
						n++
					}
				}
				if err != nil || s.Version() < last || n != s.NumFiles() || int64(n) != s.Version() {
					done <- fmt.Errorf("version %d after %d, %d files: %w", s.Version(), last, n, err)
					return
				}
				last = s.Version()
			}
			done <- nil
		}()
	}
	for i := range 200 {
		appendRows(t, writer, id(i))
	}
	stop()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
