package deltalog

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// digest is every file and directory below dir, with its times and what it holds.
func digest(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var content []byte
		if !d.IsDir() {
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		fmt.Fprintf(&out, "%s %s %d %v %x\n", path, info.Mode(), info.Size(), info.ModTime(), sha256.Sum256(content))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestReadingNeverWrites, whatever state the log is in: a table that was opened to be read is byte for byte the same.
func TestReadingNeverWrites(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, st store.Store){
		"as it is":           func(*testing.T, store.Store) {},
		"hint missing":       func(t *testing.T, st store.Store) { del(t, st, lastCheckpointName) },
		"hint corrupt":       func(t *testing.T, st store.Store) { put(t, st, lastCheckpointName, "{") },
		"checkpoint corrupt": func(t *testing.T, st store.Store) { put(t, st, checkpointName(7), "PAR1") },
		"old commits gone":   func(t *testing.T, st store.Store) { delCommits(t, st, 0, 5) },
		"leftovers of a crash": func(t *testing.T, st store.Store) {
			put(t, st, logDir+".00000000000000000009.json.123.tmp", "{")
			put(t, st, "part-of-nothing.parquet", "x")
		},
		"a hole":   func(t *testing.T, st store.Store) { put(t, st, logName(20), "{}") },
		"no table": func(t *testing.T, st store.Store) { delCommits(t, st, 0, 8); del(t, st, checkpointName(7)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			inner, err := store.NewLocal(dir, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := history(t, inner).Close(); err != nil {
				t.Fatal(err)
			}
			change(t, inner)
			before := digest(t, dir)
			st := store.WithFaults(inner, func(op store.Op) store.Fault {
				if op.Kind == "put" || op.Kind == "delete" {
					t.Errorf("%s %s", op.Kind, op.Name)
				}
				return store.None
			})
			// As if all had been there for long: what is due in the background would be done now.
			opts := Options{CheckpointInterval: 1, Clock: func() time.Time { return time.Now().Add(365 * 24 * time.Hour) }}
			if tab, err := Open(t.Context(), st, opts); err == nil {
				readEverything(t, tab)
				if err := tab.Close(); err != nil {
					t.Error(err)
				}
			}
			if after := digest(t, dir); after != before {
				t.Errorf("before\n%s\nafter\n%s", before, after)
			}
		})
	}
}

// readEverything calls all that reads; versions may be missing.
func readEverything(t *testing.T, tab *Table) {
	t.Helper()
	ctx := t.Context()
	s, err := tab.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, tab, s)
	for c, err := range tab.History(ctx) {
		if err != nil {
			break
		}
		_, _ = tab.SnapshotAt(ctx, c.Version)
		_, _ = tab.SnapshotAtTime(ctx, c.Timestamp)
		_, _ = tab.Recreated(ctx, c.Version)
	}
	_, _ = tab.EarliestVersion(ctx)
	_, _ = tab.Exists(ctx, s.Version()+1)
	_, _ = ReadCheckpoint(ctx, tab.Store(), 7)
}
