package deltalog

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// aged is a table that commits once an hour by its own clock, and has a checkpoint every 10 versions.
type aged struct {
	t   *testing.T
	st  store.Store
	tab *Table
	now time.Time
	rec recorder
}

func newAged(t *testing.T, retention string, opts Options) *aged {
	t.Helper()
	a := &aged{t: t, now: time.Date(2026, 3, 1, 0, 30, 0, 0, time.UTC)}
	opts.Clock = func() time.Time { return a.now }
	opts.CheckpointInterval = 10
	a.st = store.WithFaults(store.NewMemory(), a.rec.hook)
	a.tab = createTable(t, a.st, opts, TableSpec{Configuration: map[string]string{propLogRetention: retention}})
	return a
}

func (a *aged) commits(n int) {
	a.t.Helper()
	for range n {
		a.now = a.now.Add(time.Hour)
		appendRows(a.t, a.tab, id(int(a.tab.Cached().Version())))
		if err := a.tab.Close(); err != nil { // wait for the checkpoint, which runs beside
			a.t.Fatal(err)
		}
	}
}

func (a *aged) has(name string) bool {
	a.t.Helper()
	_, err := a.st.Stat(a.t.Context(), name)
	if err != nil && !errors.Is(err, store.ErrNotExist) {
		a.t.Fatal(err)
	}
	return err == nil
}

// TestCleanupKeepsTimeTravel: at any time within the retention the table can still be had as it was, and what came before goes.
func TestCleanupKeepsTimeTravel(t *testing.T) {
	t.Parallel()
	for retention, d := range map[string]time.Duration{"interval 7 hours": 7 * time.Hour, "interval 2 days": 48 * time.Hour, "interval 10 hours 30 minutes": 630 * time.Minute} {
		a := newAged(t, retention, Options{})
		for range 20 {
			a.commits(7)
			cutoff := a.now.Add(-d)
			first, err := a.tab.EarliestVersion(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if first == 0 {
				continue
			}
			v, err := a.tab.VersionAt(t.Context(), cutoff)
			if err != nil {
				t.Fatalf("%s: at %v, first version %d: %v", retention, cutoff, first, err)
			}
			s, err := a.tab.SnapshotAt(t.Context(), v)
			if err != nil || s.NumFiles() != int(v) {
				t.Errorf("%s: version %d: %v", retention, v, err)
			}
			if a.has(checkpointName(first-1)) || !a.has(checkpointName(first)) {
				t.Errorf("%s: the log begins at %d, which is not its first checkpoint", retention, first)
			}
		}
		if first, err := a.tab.EarliestVersion(t.Context()); err != nil || first < 70 {
			t.Errorf("%s: after %d versions the log begins at %d, %v", retention, a.tab.Cached().Version(), first, err)
		}
		if _, err := a.tab.SnapshotAt(t.Context(), 3); !errors.Is(err, ErrVersionNotFound) {
			t.Errorf("%s: version 3: %v", retention, err)
		}
	}
}

// TestCleanupTakesWhatBelongsToOldVersions, and what crashes left, but nothing that it does not know.
func TestCleanupTakesWhatBelongsToOldVersions(t *testing.T) {
	t.Parallel()
	a := newAged(t, "interval 7 hours", Options{})
	names := map[string]bool{ // name: stays
		logDir + "00000000000000000003.crc":                                      false,
		logDir + "00000000000000000002.00000000000000000005.compacted.json":      false,
		logDir + "00000000000000000003.checkpoint.0000000001.0000000002.parquet": false,
		logDir + ".00000000000000000003.json.a-b-c.tmp":                          false,
		logDir + ".00000000000000000090.json.a-b-c.tmp":                          true, // just now
		logDir + ".00000000000000000003.json.crc":                                true,
		logDir + "_sidecars/00000000000000000003.json":                           true,
		logDir + "00000000000000000003.json.unknown":                             true,
		logDir + "00000000000000000099.crc":                                      true,
	}
	for name, stays := range names {
		at := a.now.Add(-time.Hour)
		if stays {
			at = a.now.Add(100 * time.Hour)
		}
		if err := a.st.Put(t.Context(), name, []byte("x"), store.PutOptions{ModTime: at}); err != nil {
			t.Fatal(err)
		}
	}
	a.commits(60)
	for name, stays := range names {
		if a.has(name) != stays {
			t.Errorf("%s: there %v, want %v", name, a.has(name), stays)
		}
	}
}

// TestCleanupKeepsFrom what somebody still needs, and a checkpoint to read it from.
func TestCleanupKeepsFrom(t *testing.T) {
	t.Parallel()
	needed := int64(33)
	a := newAged(t, "interval 5 hours", Options{KeepFrom: func(context.Context, *Snapshot) (int64, error) { return needed, nil }})
	a.commits(100)
	if first, err := a.tab.EarliestVersion(t.Context()); err != nil || first != 30 {
		t.Errorf("the log begins at %d, %v", first, err)
	}
	if s, err := a.tab.SnapshotAt(t.Context(), 33); err != nil || s.NumFiles() != 33 {
		t.Errorf("version 33: %v", err)
	}
	needed = -1
	a.commits(50)
	if first, err := a.tab.EarliestVersion(t.Context()); err != nil || first != 30 {
		t.Errorf("nothing done yet: the log begins at %d, %v", first, err)
	}
	needed = 1 << 40
	a.commits(10)
	if first, err := a.tab.EarliestVersion(t.Context()); err != nil || first < 140 {
		t.Errorf("no longer needed: the log begins at %d, %v", first, err)
	}
}

// TestCleanupKeepsAtMost as long as it is told, and nothing goes while what is needed is not known.
func TestCleanupKeepsAtMost(t *testing.T) {
	t.Parallel()
	needed, failure := int64(33), error(nil)
	a := newAged(t, "interval 5 hours", Options{
		KeepFrom:   func(context.Context, *Snapshot) (int64, error) { return needed, failure },
		KeepAtMost: 40 * time.Hour,
	})
	first := func() int64 {
		t.Helper()
		v, err := a.tab.EarliestVersion(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a.commits(75)
	if got := first(); got != 30 {
		t.Errorf("within the limit: the log begins at %d", got)
	}
	a.commits(55) // 130 is the newest: 5+40 hours before is 85
	if got := first(); got != 80 {
		t.Errorf("beyond the limit: the log begins at %d", got)
	}
	needed, failure = 1<<40, errors.New("the disk is away")
	a.commits(60)
	if got := first(); got != 80 {
		t.Errorf("not known what is needed: the log begins at %d", got)
	}
	failure = nil
	a.commits(10)
	if got := first(); got < 180 {
		t.Errorf("nothing is needed: the log begins at %d", got)
	}
}

// TestVacuumKeepsFrom what versions that somebody needs have, up to the limit.
func TestVacuumKeepsFrom(t *testing.T) {
	t.Parallel()
	needed := int64(2)
	a := newAged(t, "interval 500 hours", Options{
		KeepFrom:   func(context.Context, *Snapshot) (int64, error) { return needed, nil },
		KeepAtMost: 100 * time.Hour,
	})
	a.now = time.Now() // as the store has it, which dates the files
	a.commits(4)
	var old []string
	old = append(old, a.optimize()...) // version 5 replaces the files of 1 to 4
	a.commits(3)
	old = append(old, a.optimize()...)
	has := func(want bool, why string) {
		t.Helper()
		for _, name := range old {
			if a.has(name) != want {
				t.Errorf("%s: %s is there: %v", why, name, !want)
			}
		}
	}
	vacuum := func() {
		t.Helper()
		if _, err := a.tab.Vacuum(t.Context(), VacuumOptions{Retention: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	a.now = a.now.Add(90 * time.Hour)
	vacuum()
	has(true, "needed")
	needed = a.tab.Cached().Version()
	if gone, err := a.tab.Vacuum(t.Context(), VacuumOptions{Retention: time.Hour, DryRun: true}); err != nil || len(gone) != len(old) {
		t.Errorf("nothing is needed: %d would go, of %d, %v", len(gone), len(old), err)
	}
	needed = 2
	a.now = a.now.Add(20 * time.Hour)
	vacuum()
	has(false, "beyond the limit")
}

// optimize replaces every file by a new one with the same rows, and returns the names of the old ones.
func (a *aged) optimize() []string {
	a.t.Helper()
	a.now = a.now.Add(time.Hour)
	snap := a.tab.Cached()
	tx := Transaction{Base: snap, Operation: "OPTIMIZE", NoDataChange: true}
	var old []string
	for add := range snap.Files() {
		tx.Removes = append(tx.Removes, add)
		old = append(old, add.Path)
		for rec, err := range a.tab.ReadFile(a.t.Context(), snap, add.DataFile(), nil) {
			if err != nil {
				a.t.Fatal(err)
			}
			adds, err := a.tab.WriteFiles(a.t.Context(), snap, []arrow.RecordBatch{rec})
			if err != nil {
				a.t.Fatal(err)
			}
			tx.Adds = append(tx.Adds, adds...)
		}
	}
	if _, err := a.tab.Commit(a.t.Context(), tx); err != nil {
		a.t.Fatal(err)
	}
	return old
}

// TestCleanupIsOff by the property.
func TestCleanupIsOff(t *testing.T) {
	t.Parallel()
	a := newAged(t, "interval 5 hours", Options{})
	m := *a.tab.Cached().Metadata()
	m.Configuration = map[string]string{propLogRetention: "interval 5 hours", propExpiredLogCleanup: "false"}
	if _, err := a.tab.Commit(t.Context(), Transaction{Base: a.tab.Cached(), Operation: "SET TBLPROPERTIES", Metadata: &m}); err != nil {
		t.Fatal(err)
	}
	a.commits(40)
	if first, err := a.tab.EarliestVersion(t.Context()); err != nil || first != 0 {
		t.Errorf("the log begins at %d, %v", first, err)
	}
}

// TestCleanupCost: while nothing has expired it looks at one file, and lists nothing; what has gone, goes upwards.
func TestCleanupCost(t *testing.T) {
	t.Parallel()
	a := newAged(t, "interval 30 days", Options{})
	a.commits(35)
	if got := a.rec.take(); strings.Count(got, "list ") != 1 { // Create's
		t.Errorf("listings:\n%s", got)
	}
	b := newAged(t, "interval 5 hours", Options{})
	b.commits(45)
	last := ""
	for op := range strings.Lines(b.rec.take()) {
		if name, ok := strings.CutPrefix(op, "delete "); ok {
			if name <= last {
				t.Errorf("deleted %s after %s", name, last)
			}
			last = name
		}
	}
	if last == "" {
		t.Error("nothing was deleted")
	}
	b.rec.take()
	if _, err := b.tab.EarliestVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.rec.take(); strings.Contains(got, "list") || strings.Count(got, "\n") != 2 {
		t.Errorf("the earliest version cost:\n%s", got)
	}
}

// TestCheckpointFailureFailsNoCommit, and the next interval tries again.
func TestCheckpointFailureFailsNoCommit(t *testing.T) {
	t.Parallel()
	broken := true
	inner := store.NewMemory()
	st := store.WithFaults(inner, func(op store.Op) store.Fault {
		if broken && op.Kind == "put" && strings.Contains(op.Name, "checkpoint") {
			return store.FailBefore
		}
		return store.None
	})
	tab := createTable(t, st, Options{CheckpointInterval: 5}, TableSpec{})
	commit := func(n int) {
		for i := range n {
			appendRows(t, tab, id(i))
			if err := tab.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	commit(7)
	if _, err := inner.Stat(t.Context(), lastCheckpointName); !errors.Is(err, store.ErrNotExist) {
		t.Errorf("hint: %v", err)
	}
	broken = false
	commit(5)
	if _, err := inner.Stat(t.Context(), checkpointName(10)); err != nil {
		t.Error(err)
	}
}

// TestCheckpointInterval: the option, else the property, else scaled with the table.
func TestCheckpointInterval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		option   int64
		property string
		files    int
		want     int64
	}{
		{0, "", 0, 100},
		{0, "", 1000, 100},
		{0, "", 5000, 500},
		{0, "", 100_000, 1000},
		{0, "10", 100_000, 10},
		{3, "10", 5, 3},
		{-1, "10", 5, -1},
		{0, "none", 5, 100},
	} {
		tab := &Table{opts: Options{CheckpointInterval: c.option}}
		s := &Snapshot{live: c.files, metadata: &Metadata{Configuration: map[string]string{propCheckpointInterval: c.property}}}
		if got := tab.checkpointInterval(s); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestHintNeverGoesBack: the slower of two writers of checkpoints does not hide the newer one.
func TestHintNeverGoesBack(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tab := createTable(t, st, quiet, TableSpec{})
	appendRows(t, tab, id(1))
	older := tab.Cached()
	appendRows(t, tab, id(2))
	for _, s := range []*Snapshot{tab.Cached(), older} {
		if err := tab.Checkpoint(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if c, ok := tab.readLastCheckpoint(t.Context()); !ok || c.version != 2 {
		t.Errorf("hint %d", c.version)
	}
}

// TestChecksum is the protocol's own test vector.
func TestChecksum(t *testing.T) {
	t.Parallel()
	got, err := checksum([]byte(`{"k0":"'v 0'", "checksum": "adsaskfljadfkjadfkj", "k1":{"k2": 2, "k3": ["v3", [1, 2], {"k4": "v4", "k5": ["v5", "v6", "v7"]}]}}`))
	if err != nil || got != "6a92d155a59bf2eecbd4b4ec7fd1f875" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := checksum([]byte("{")); err == nil {
		t.Error("half a file has a checksum")
	}
}
