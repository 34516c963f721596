package deltalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Reports of faults in readers of other projects (delta.md 5), each as a test named by what went wrong there.

// commits writes versions as bare files, each with an add, without the data files.
func commits(tb testing.TB, st store.Store, from, to int64) {
	tb.Helper()
	for v := from; v <= to; v++ {
		line := fmt.Sprintf(`{"commitInfo":{"timestamp":%d,"operation":"WRITE"}}
{"add":{"path":"part-%020d.parquet","partitionValues":{},"size":1000,"modificationTime":%d,"dataChange":true,"stats":"{\"numRecords\":1,\"minValues\":{\"id\":%d},\"maxValues\":{\"id\":%d},\"nullCount\":{\"id\":0}}"}}
`, v, v, v, v, v)
		if err := st.Put(tb.Context(), logName(v), []byte(line), store.PutOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
}

// TestCorruptCheckpointHidesNoHole (delta#5458): it is rebuilt from commits only where they are all there.
func TestCorruptCheckpointHidesNoHole(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		gone [2]int64
		ok   bool
	}{
		"all commits":               {[2]int64{0, -1}, true},
		"from the older checkpoint": {[2]int64{0, 2}, true},
		"a hole between":            {[2]int64{5, 5}, false},
		"the beginning and a hole":  {[2]int64{0, 6}, false},
	} {
		st := store.NewMemory()
		tab := createTable(t, st, quiet, TableSpec{})
		commits(t, st, 1, 9)
		for _, v := range []int64{3, 8} {
			s, err := tab.SnapshotAt(t.Context(), v)
			if err != nil {
				t.Fatal(err)
			}
			if err := tab.Checkpoint(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		put(t, st, checkpointName(8), "PAR1")
		delCommits(t, st, c.gone[0], c.gone[1])
		again, err := Open(t.Context(), st, quiet)
		switch {
		case c.ok && (err != nil || again.Cached().Version() != 9 || again.Cached().NumFiles() != 9):
			t.Errorf("%s: %v", name, err)
		case !c.ok && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "DELTA_VERSIONS_NOT_CONTIGUOUS")):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHoleOfManyCommits behind the end to which the hint leads.
func TestHoleOfManyCommits(t *testing.T) {
	t.Parallel()
	for _, hole := range []int64{1, 2, 3, 5, 20, 100} {
		st := store.NewMemory()
		tab := createTable(t, st, quiet, TableSpec{})
		commits(t, st, 1, 4)
		s, err := tab.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := tab.Checkpoint(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		commits(t, st, 5+hole, 5+4*hole)
		if _, err := Open(t.Context(), st, quiet); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "DELTA_VERSIONS_NOT_CONTIGUOUS") {
			t.Errorf("a hole of %d: %v", hole, err)
		}
	}
}

// TestLastCheckpointThatNobodyUpdated (delta-rs#2258, #1863): thousands of commits behind it, a newer checkpoint is found and used.
func TestLastCheckpointThatNobodyUpdated(t *testing.T) {
	t.Parallel()
	inner := store.NewMemory()
	tab := createTable(t, inner, quiet, TableSpec{})
	checkpoint := func(v int64) {
		t.Helper()
		s, err := tab.SnapshotAt(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		if err := tab.Checkpoint(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	commits(t, inner, 1, 5000)
	checkpoint(10)
	old, err := inner.Get(t.Context(), lastCheckpointName)
	if err != nil {
		t.Fatal(err)
	}
	checkpoint(4990)
	put(t, inner, lastCheckpointName, string(old))
	read := 0
	st := store.WithFaults(inner, func(op store.Op) store.Fault {
		if op.Kind == "get" {
			read++
		}
		return store.None
	})
	again, err := Open(t.Context(), st, quiet)
	if err != nil || again.Cached().Version() != 5000 || again.Cached().NumFiles() != 5000 {
		t.Fatalf("%+v, %v", again, err)
	}
	if read > 50 {
		t.Errorf("%d files were read", read)
	}
}

// TestLastCheckpointIsWholeWhileManyWriteIt (delta#5272).
func TestLastCheckpointIsWholeWhileManyWriteIt(t *testing.T) {
	t.Parallel()
	st, err := store.NewLocal(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	tab := createTable(t, st, quiet, TableSpec{})
	commits(t, st, 1, 16)
	var wg sync.WaitGroup
	done := make(chan struct{})
	for v := int64(1); v <= 16; v++ {
		wg.Go(func() {
			other, err := Open(t.Context(), st, quiet)
			if err != nil {
				t.Error(err)
				return
			}
			s, err := other.SnapshotAt(t.Context(), v)
			if err != nil {
				t.Error(err)
				return
			}
			if err := other.Checkpoint(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		data, err := st.Get(t.Context(), lastCheckpointName)
		if errors.Is(err, store.ErrNotExist) {
			continue
		}
		if err != nil || !json.Valid(data) {
			t.Fatalf("%q, %v", data, err)
		}
	}
	if _, ok := tab.readLastCheckpoint(t.Context()); !ok {
		t.Error("no hint in the end")
	}
}

// TestChecksumMasksNoCorruptCommit (delta-kernel-rs#2753): what a .crc says is not believed, whether it is right or wrong.
func TestChecksumMasksNoCorruptCommit(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tab := createTable(t, st, quiet, TableSpec{})
	commits(t, st, 1, 3)
	s, err := tab.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	protocol, _ := json.Marshal(s.Protocol())
	metadata, _ := json.Marshal(s.Metadata())
	crc := strings.TrimSuffix(logName(3), ".json") + ".crc"
	put(t, st, crc, fmt.Sprintf(`{"tableSizeBytes":3000,"numFiles":3,"numMetadata":1,"numProtocol":1,"metadata":%s,"protocol":%s}`, metadata, protocol))
	if again, err := Open(t.Context(), st, quiet); err != nil || again.Cached().NumFiles() != 3 {
		t.Fatal(err)
	}
	whole, err := st.Get(t.Context(), logName(3))
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 1, len(whole) / 2, len(whole) - 3} {
		put(t, st, logName(3), string(whole[:cut]))
		if _, err := Open(t.Context(), st, quiet); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes of %d: %v", cut, len(whole), err)
		}
	}
	put(t, st, logName(3), string(whole))
	put(t, st, crc, `{"tableSizeBytes":1,"numFiles":999,"protocol":{"minReaderVersion":99}}`)
	if again, err := Open(t.Context(), st, quiet); err != nil || again.Cached().NumFiles() != 3 {
		t.Errorf("a wrong checksum: %v", err)
	}
}

// TestCompactedCommitsAreNotNeeded: a compaction is passed over, even a wrong one, since the commits are there as well; it fills no hole.
func TestCompactedCommitsAreNotNeeded(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	createTable(t, st, quiet, TableSpec{})
	commits(t, st, 1, 6)
	put(t, st, fmt.Sprintf("%s%020d.%020d.compacted.json", logDir, 1, 5), `{"remove":{"path":"part-00000000000000000006.parquet","dataChange":true}}`)
	put(t, st, fmt.Sprintf("%s%020d.%020d.compacted.json", logDir, 2, 9), "{")
	again, err := Open(t.Context(), st, quiet)
	if err != nil || again.Cached().Version() != 6 || again.Cached().NumFiles() != 6 {
		t.Fatalf("%+v, %v", again, err)
	}
	delCommits(t, st, 3, 3)
	if _, err := Open(t.Context(), st, quiet); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a commit is missing: %v", err)
	}
}

// TestStatisticsOfStructsAlone: a checkpoint with delta.checkpoint.writeStatsAsJson=false gives the statistics that JSON would have.
func TestStatisticsOfStructsAlone(t *testing.T) {
	t.Parallel()
	type nested struct {
		X *int64 `parquet:"x,optional"`
	}
	type values struct {
		ID      *int64   `parquet:"id,optional"`
		Small   *int32   `parquet:"small,optional"`
		Text    *string  `parquet:"text \"quoted\",optional"`
		F       *float32 `parquet:"f,optional"`
		D       *float64 `parquet:"d,optional"`
		Day     *int32   `parquet:"day,optional,date"`
		At      *int64   `parquet:"at,optional,timestamp(microsecond:utc)"`
		Local   *int64   `parquet:"local,optional,timestamp(microsecond:local)"`
		Price   *int64   `parquet:"price,optional,decimal(2:18)"`
		Raw     []byte   `parquet:"raw,optional"`
		S       *nested  `parquet:"s,optional"`
		Ignored []int64  `parquet:"ignored,list"`
	}
	type nulls struct {
		ID *int64  `parquet:"id,optional"`
		S  *nested `parquet:"s,optional"`
	}
	type parsed struct {
		NumRecords  *int64  `parquet:"numRecords,optional"`
		TightBounds *bool   `parquet:"tightBounds,optional"`
		MinValues   *values `parquet:"minValues,optional"`
		NullCount   *nulls  `parquet:"nullCount,optional"`
	}
	type add struct {
		Path            string             `parquet:"path"`
		PartitionValues map[string]*string `parquet:"partitionValues" parquet-value:",optional"`
		Size            int64              `parquet:"size"`
		Stats           *string            `parquet:"stats,optional"`
		Parsed          *parsed            `parquet:"stats_parsed,optional"`
	}
	type row struct {
		Add      *add                `parquet:"add,optional"`
		Metadata *checkpointMetadata `parquet:"metaData,optional"`
		Protocol *checkpointProtocol `parquet:"protocol,optional"`
	}
	at := time.Date(1969, 12, 31, 23, 59, 59, 123_000_000, time.UTC).UnixMicro()
	st := store.NewMemory()
	tab := createTable(t, st, quiet, TableSpec{})
	appendRows(t, tab, id(1))
	var rows []row
	for _, r := range tab.Cached().headRows(time.Now()) {
		rows = append(rows, row{Metadata: r.Metadata, Protocol: r.Protocol})
	}
	file := func(path string, stats *string, p *parsed) {
		rows = append(rows, row{Add: &add{path, nil, 1, stats, p}})
	}
	file("all", nil, &parsed{ptr[int64](7), ptr(false), &values{
		ID: ptr[int64](math.MaxInt64), Small: ptr[int32](-1), Text: ptr("é<\n"), F: ptr[float32](0.1), D: ptr(math.Inf(-1)), Day: ptr[int32](-1), At: &at, Local: ptr(at + 1),
		Price: ptr[int64](-5), Raw: []byte("x"), S: &nested{ptr[int64](3)}, Ignored: []int64{1},
	}, &nulls{ptr[int64](0), &nested{ptr[int64](7)}}})
	file("as JSON", ptr(`{"numRecords":2}`), &parsed{NumRecords: ptr[int64](3)})
	file("count", nil, &parsed{NumRecords: ptr[int64](4), MinValues: &values{}})
	file("none", nil, nil)
	put(t, st, checkpointName(1), parquetOf(t, rows))
	put(t, st, lastCheckpointName, `{"version":1}`)
	again, err := Open(t.Context(), st, quiet)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"all": `{"numRecords":7,"tightBounds":false,"minValues":{"id":9223372036854775807,"small":-1,"text \"quoted\"":"é\u003c\n","f":0.1,"d":"-Infinity",` +
			`"day":"1969-12-31","at":"1969-12-31T23:59:59.123Z","local":"1969-12-31T23:59:59.123001","price":-0.05,"s":{"x":3}},"nullCount":{"id":0,"s":{"x":7}}}`,
		"as JSON": `{"numRecords":2}`, "count": `{"numRecords":4}`, "none": "",
	}
	for f := range again.Cached().Files() {
		if f.Stats != want[f.Path] {
			t.Errorf("%s:\ngot  %s\nwant %s", f.Path, f.Stats, want[f.Path])
		}
	}
	if n := again.Cached().NumFiles(); n != len(want) {
		t.Errorf("%d files", n)
	}
}
