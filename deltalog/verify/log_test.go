package verify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// busy makes a partitioned table with the feed on: four inserts, a rearrangement of the first two and a delete of the third,
// txns, and a checkpoint of the newest version.
func busy(t *testing.T) (store.Store, *deltalog.Table) {
	t.Helper()
	st := store.NewMemory()
	var s deltalog.Struct
	for _, d := range []string{"id BIGINT NOT NULL", "p STRING"} {
		f, err := deltalog.ParseColumn(d)
		if err != nil {
			t.Fatal(err)
		}
		s.Fields = append(s.Fields, f)
	}
	tab, err := deltalog.Create(t.Context(), st, deltalog.TableSpec{
		Schema: s, PartitionColumns: []string{"p"}, Configuration: map[string]string{"delta.enableChangeDataFeed": "true"},
	}, deltalog.Options{CheckpointInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := deltalog.ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	write := func(ids ...int64) []deltalog.Add {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for _, id := range ids {
			b.Field(0).(*array.Int64Builder).Append(id)
			b.Field(1).(*array.StringBuilder).Append("a/b")
		}
		adds, err := tab.WriteFiles(t.Context(), tab.Cached(), []arrow.RecordBatch{b.NewRecordBatch()})
		if err != nil {
			t.Fatal(err)
		}
		return adds
	}
	commit := func(tx deltalog.Transaction) {
		tx.Base = tab.Cached()
		if _, err := tab.Commit(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(4) {
		commit(deltalog.Transaction{Operation: "WRITE", Adds: write(i, i), Txns: []deltalog.Txn{{AppID: "app", Version: i}}})
	}
	var files []*deltalog.Add
	for add := range tab.Cached().Files() {
		files = append(files, add)
	}
	commit(deltalog.Transaction{Operation: "OPTIMIZE", NoDataChange: true, ReadTable: true, Removes: files[:2], Adds: write(0, 0, 1, 1)})
	commit(deltalog.Transaction{Operation: "DELETE", ReadTable: true, Removes: files[2:3]})
	if err := tab.Checkpoint(t.Context(), tab.Cached()); err != nil {
		t.Fatal(err)
	}
	return st, tab
}

func verifyIn(t *testing.T, st store.Store) *Report {
	t.Helper()
	r, err := Verify(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTheFeedIsCounted: what was inserted, wherever its rows are now; files that vacuum took are a note.
func TestTheFeedIsCounted(t *testing.T) {
	t.Parallel()
	st, tab := busy(t)
	r := verifyIn(t, st)
	if len(r.Problems)+len(r.Notes) > 0 || r.Rows != 6 || r.Inserted != 8 || r.Files != 2 || r.FirstVersion != 0 || r.Version != 6 || r.Checkpoints != 1 {
		t.Errorf("report %+v", r)
	}
	c, err := tab.ReadCommit(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range c.Actions {
		if a.Add == nil {
			continue
		}
		name, err := deltalog.DataName(st, a.Add.Path)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	r = verifyIn(t, st)
	if len(r.Problems) > 0 || r.Inserted != 6 || len(r.Notes) != 2 || !strings.Contains(r.Notes[0], "cannot be read from version 2 or before") || !strings.Contains(r.Notes[1], "cannot be compared any more") {
		t.Errorf("after vacuum: %+v", r)
	}
}

// TestCheckpointsAreCompared: a checkpoint that says anything else than the log is found, and what it says is told.
func TestCheckpointsAreCompared(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, with, problem string }{
		"a size":       {`"size":`, `"size":1`, "it has p=a%2Fb/part-"},
		"a partition":  {`"partitionValues":{"p":"a/b"},"size"`, `"partitionValues":{"p":"c"},"size"`, "it has p=a%2Fb/part-"},
		"statistics":   {`\"maxValues\":{\"id\":`, `\"maxValues\":{\"id\":1`, "it has p=a%2Fb/part-"},
		"a txn":        {`"txn":{"appId":"app","version":3`, `"txn":{"appId":"app","version":4`, "it has version 3 of application app"},
		"another txn":  {`"txn":{"appId":"app","version":0`, `"txn":{"appId":"app2","version":0`, "it lacks application app2"},
		"a property":   {`"delta.enableChangeDataFeed":"true"}`, `"delta.enableChangeDataFeed":"true","x":"y"}`, "its metaData is"},
		"a feature":    {`"changeDataFeed"]`, `"changeDataFeed","checkConstraints"]`, "its protocol is"},
		"a lost file":  {`{"remove":{`, `{"unknown":{`, "it lacks p=a%2Fb/part-"},
		"nothing else": {`"engineInfo":"`, `"engineInfo":"other `, ""},
	} {
		st, _ := busy(t)
		changed := false
		for v := 6; v >= 0 && !changed; v-- { // the log is changed, the checkpoint stays as it was
			data, err := st.Get(t.Context(), commit(v))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), c.old) && (name != "a size" && name != "a partition" && name != "statistics" || v == 4) {
				edit(t, st, commit(v), c.old, c.with)
				changed = true
			}
		}
		if !changed {
			t.Fatalf("%s: nothing to change", name)
		}
		found := false
		for _, p := range verifyIn(t, st).Problems {
			found = found || strings.HasPrefix(p, "checkpoint 6 differs from the replay: ") && strings.Contains(p, c.problem)
		}
		if found != (c.problem != "") {
			t.Errorf("%s: %q", name, verifyIn(t, st).Problems)
		}
	}
}

// TestLogsThatBeginLater: what cleanup took is not missed, as long as a checkpoint leads to what is left.
func TestLogsThatBeginLater(t *testing.T) {
	t.Parallel()
	st, tab := busy(t)
	for v := range 5 {
		if err := st.Delete(t.Context(), commit(v)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tab.Commit(t.Context(), deltalog.Transaction{Base: tab.Cached(), Operation: "WRITE", Txns: []deltalog.Txn{{AppID: "app", Version: 9}}}); err != nil {
		t.Fatal(err)
	}
	r := verifyIn(t, st)
	if len(r.Problems) > 0 || r.FirstVersion != 5 || r.Version != 7 || r.Rows != 6 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "begins at version 5") {
		t.Errorf("report %+v", r)
	}
	if err := st.Delete(t.Context(), fmt.Sprintf("_delta_log/%020d.checkpoint.parquet", 6)); err != nil {
		t.Fatal(err)
	}
	if r := verifyIn(t, st); !strings.Contains(strings.Join(r.Problems, "\n"), "no checkpoint leads to version 5") {
		t.Errorf("without the checkpoint: %+v", r)
	}
}

// TestTablesOfOthers: what this project does not read is a note, not a problem.
func TestTablesOfOthers(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	lines := `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["catalogManaged"],"writerFeatures":["catalogManaged"]}}
{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":[],"configuration":{}}}
{"newAction":{"x":1}}
`
	if err := st.Put(t.Context(), commit(0), []byte(lines), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	r := verifyIn(t, st)
	if len(r.Problems) > 0 || len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], "not audited: ") || !strings.Contains(r.Notes[0], "catalogManaged") {
		t.Errorf("report %+v", r)
	}
}

func TestTimesThatGoBack(t *testing.T) {
	t.Parallel()
	st, _ := busy(t)
	data, err := st.Get(t.Context(), commit(4))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Put(t.Context(), commit(4), data, store.PutOptions{ModTime: time.UnixMilli(1)}); err != nil {
		t.Fatal(err)
	}
	if r := verifyIn(t, st); len(r.Problems) > 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "the times of 1 commit files go back, first at version 4") {
		t.Errorf("report %+v", r)
	}
}

func TestNoTable(t *testing.T) {
	t.Parallel()
	if _, err := Verify(t.Context(), store.NewMemory()); err == nil || !strings.Contains(err.Error(), deltalog.ErrNotTable.Error()) {
		t.Errorf("got %v", err)
	}
}
