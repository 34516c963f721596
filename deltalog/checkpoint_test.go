package deltalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// history makes a table with appends, replaced partitions, a txn and a checkpoint.
func history(t testing.TB, st store.Store) *Table {
	t.Helper()
	tab := createTable(t, st, quiet, TableSpec{PartitionColumns: []string{"p"}, Configuration: map[string]string{"delta.enableChangeDataFeed": "true"}})
	for i := range 6 {
		appendRows(t, tab, fmt.Sprintf(`{"id":%d,"p":"p%d"}`, i, i%2))
	}
	tx := replacing("p0")(tab, tab.Cached())
	updated := int64(5)
	tx.Txns = []Txn{{AppID: "app", Version: 7, LastUpdated: &updated}}
	if _, err := tab.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	if err := tab.Checkpoint(t.Context(), tab.Cached()); err != nil {
		t.Fatal(err)
	}
	appendRows(t, tab, `{"id":100,"p":null}`)
	return tab
}

func describe(t *testing.T, tab *Table) string {
	t.Helper()
	s := tab.Cached()
	rows := readAll(t, tab, s)
	slices.Sort(rows)
	txn, _ := s.Txn("app")
	return fmt.Sprint(s.Version(), s.NumFiles(), s.Size(), s.Metadata().ID, s.Protocol(), s.Metadata().Configuration, txn.Version, rows)
}

func TestCheckpointEqualsReplay(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(t *testing.T, st store.Store){
		"whole":               func(*testing.T, store.Store) {},
		"hint missing":        func(t *testing.T, st store.Store) { del(t, st, lastCheckpointName) },
		"hint corrupt":        func(t *testing.T, st store.Store) { put(t, st, lastCheckpointName, "{") },
		"hint dangling":       func(t *testing.T, st store.Store) { put(t, st, lastCheckpointName, `{"version":3}`) },
		"checkpoint corrupt":  func(t *testing.T, st store.Store) { put(t, st, checkpointName(7), "PAR1") },
		"checkpoint missing":  func(t *testing.T, st store.Store) { del(t, st, checkpointName(7)) },
		"only the checkpoint": func(t *testing.T, st store.Store) { delCommits(t, st, 0, 6) },
	} {
		st := store.NewMemory()
		want := describe(t, history(t, st))
		breakIt(t, st)
		tab, err := Open(t.Context(), st, quiet)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := describe(t, tab); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
}

func TestHolesFailClosed(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(t *testing.T, st store.Store){
		"hole behind the checkpoint": func(t *testing.T, st store.Store) {
			put(t, st, logName(10), `{"commitInfo":{}}`)
		},
		"no checkpoint and no beginning": func(t *testing.T, st store.Store) { del(t, st, checkpointName(7)); delCommits(t, st, 0, 3) },
		"commit is no JSON":              func(t *testing.T, st store.Store) { put(t, st, logName(8), "{") },
	} {
		st := store.NewMemory()
		history(t, st)
		breakIt(t, st)
		_, err := Open(t.Context(), st, quiet)
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersionNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	st := store.NewMemory()
	put(t, st, logName(0), `{"metaData":{"id":"x","format":{"provider":"parquet"},"schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":[],"configuration":{}}}`)
	if _, err := Open(t.Context(), st, quiet); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "no protocol") || strings.Contains(err.Error(), "CONTIGUOUS") {
		t.Errorf("no protocol: %v", err)
	}
	if _, err := Open(t.Context(), store.NewMemory(), quiet); !errors.Is(err, ErrNotTable) {
		t.Errorf("an empty directory: %v", err)
	}
}

func put(t *testing.T, st store.Store, name, data string) {
	t.Helper()
	if err := st.Put(t.Context(), name, []byte(data), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func del(t *testing.T, st store.Store, name string) {
	t.Helper()
	if err := st.Delete(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

func delCommits(t *testing.T, st store.Store, from, to int64) {
	t.Helper()
	for v := from; v <= to; v++ {
		del(t, st, logName(v))
	}
}

func TestTimeTravel(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	st := store.NewMemory()
	tab := createTable(t, st, Options{CheckpointInterval: -1, Clock: func() time.Time { now = now.Add(time.Second); return now }}, TableSpec{})
	var at []time.Time
	for i := range 5 {
		at = append(at, appendRows(t, tab, id(i)).Timestamp)
	}
	for v := range int64(6) {
		s, err := tab.SnapshotAt(t.Context(), v)
		if err != nil || s.NumFiles() != int(v) || s.Version() != v {
			t.Errorf("version %d: %d files, %v", v, s.NumFiles(), err)
		}
	}
	for i, want := range []int64{1, 2, 3, 4, 5} {
		for _, d := range []time.Duration{0, time.Millisecond} {
			if v, err := tab.VersionAt(t.Context(), at[i].Add(d)); err != nil || v != want {
				t.Errorf("at %v: version %d, %v", at[i], v, err)
			}
		}
	}
	if _, err := tab.VersionAt(t.Context(), time.UnixMilli(0)); !errors.Is(err, ErrVersionNotFound) {
		t.Errorf("before the first: %v", err)
	}
	for _, v := range []int64{-1, 6} {
		if _, err := tab.SnapshotAt(t.Context(), v); !errors.Is(err, ErrVersionNotFound) {
			t.Errorf("version %d: %v", v, err)
		}
	}
	var versions []int64
	for c, err := range tab.History(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		versions = append(versions, c.Version)
	}
	if !slices.Equal(versions, []int64{5, 4, 3, 2, 1, 0}) {
		t.Errorf("history %v", versions)
	}
}

func TestCheckpointsInTheBackgroundCleanTheLog(t *testing.T) {
	t.Parallel()
	now := time.Now()
	st := store.NewMemory()
	opts := Options{CheckpointInterval: 10, Clock: func() time.Time { return now }}
	tab := createTable(t, st, opts, TableSpec{Configuration: map[string]string{
		"delta.logRetentionDuration": "interval 1 hour", "delta.deletedFileRetentionDuration": "interval 1 hour",
	}})
	for i := range 45 {
		now = now.Add(5 * time.Minute)
		appendRows(t, tab, id(i))
		if err := tab.Close(); err != nil { // wait for the checkpoint, which runs beside
			t.Fatal(err)
		}
	}
	earliest, err := tab.EarliestVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// An hour is 12 versions; the checkpoint at or before version 33 is 30.
	if earliest < 10 || earliest > 30 {
		t.Errorf("the log begins at %d", earliest)
	}
	again, err := Open(t.Context(), st, opts)
	if err != nil || again.Cached().NumFiles() != 45 {
		t.Errorf("%v, %v", again, err)
	}
}

func TestVacuumKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	st := store.NewMemory()
	opts := Options{CheckpointInterval: -1, Clock: func() time.Time { return now }}
	tab := createTable(t, st, opts, TableSpec{PartitionColumns: []string{"p"}})
	appendRows(t, tab, `{"id":1,"p":"a"}`, `{"id":2,"p":"b"}`)
	if _, err := tab.Commit(t.Context(), replacing("a")(tab, tab.Cached())); err != nil {
		t.Fatal(err)
	}
	put(t, st, "p=a/orphan.parquet", "x")
	put(t, st, "_hidden/x", "x")
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{time.Minute, 0}, {8 * 24 * time.Hour, 2}} {
		now = now.Add(tt.after)
		gone, err := tab.Vacuum(t.Context(), VacuumOptions{DryRun: true})
		if err != nil || len(gone) != tt.want {
			t.Errorf("after %v: %v, %v", tt.after, gone, err)
		}
	}
	if _, err := tab.Vacuum(t.Context(), VacuumOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, tab, tab.Cached()); len(got) != 2 {
		t.Errorf("rows %v", got)
	}
}

func TestUnsupportedFeaturesAreRefusedByName(t *testing.T) {
	t.Parallel()
	for protocol, want := range map[string]string{
		`{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["catalogManaged"],"writerFeatures":["catalogManaged"]}`: "[DELTA_UNSUPPORTED_FEATURES_FOR_READ] unsupported table feature: catalogManaged",
		`{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["fromTheFuture"],"writerFeatures":["fromTheFuture"]}`:   "[DELTA_UNSUPPORTED_FEATURES_FOR_READ] unsupported table feature: fromTheFuture",
		`{"minReaderVersion":4,"minWriterVersion":7}`: "DELTA_INVALID_PROTOCOL_VERSION",
	} {
		st := store.NewMemory()
		put(t, st, logName(0), `{"protocol":`+protocol+`}`+"\n"+`{"metaData":{"id":"x","format":{"provider":"parquet"},"schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":[],"configuration":{}}}`)
		if _, err := Open(t.Context(), st, quiet); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", protocol, err)
		}
	}
	st := store.NewMemory()
	put(t, st, logName(0), `{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["identityColumns"]}}`+"\n"+`{"metaData":{"id":"x","format":{"provider":"parquet"},"schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"a\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":[],"configuration":{}}}`)
	tab, err := Open(t.Context(), st, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Commit(t.Context(), Transaction{Base: tab.Cached(), Operation: "WRITE"}); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "identityColumns") {
		t.Errorf("writing: %v", err)
	}
}

func TestIntervals(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{"interval 30 days": 720 * time.Hour, "1 week 2 HOURS": 170 * time.Hour, "interval 5 minutes": 5 * time.Minute} {
		if got, err := parseInterval(s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, bad := range []string{"", "interval", "5", "x days", "1 month", "-1 days", "99999999999999 weeks"} {
		if d, err := parseInterval(bad); err == nil {
			t.Errorf("%q was taken as %v", bad, d)
		}
	}
}
