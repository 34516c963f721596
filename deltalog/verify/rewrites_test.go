package verify

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestRewritesAreCompared: what a commit does to rows is what it says it does, by dataChange or by its change files.
func TestRewritesAreCompared(t *testing.T) {
	t.Parallel()
	change := func(kind string, ids ...int64) func(rows func(...int64) arrow.RecordBatch) deltalog.ChangedRows {
		return func(rows func(...int64) arrow.RecordBatch) deltalog.ChangedRows {
			return deltalog.ChangedRows{Type: kind, Rows: rows(ids...)}
		}
	}
	type changes = []func(rows func(...int64) arrow.RecordBatch) deltalog.ChangedRows
	for name, c := range map[string]struct {
		after   []int64 // the rows of the file that replaces one with 1, 2 and 3
		moved   bool
		changes changes
		problem string
	}{
		"optimize":                {[]int64{3, 1, 2}, true, nil, ""},
		"optimize loses a row":    {[]int64{1, 2}, true, nil, "says that it changes no data"},
		"optimize changes a row":  {[]int64{1, 2, 4}, true, nil, "says that it changes no data"},
		"optimize doubles a row":  {[]int64{1, 2, 3, 3}, true, nil, "says that it changes no data"},
		"update":                  {[]int64{1, 2, 5}, false, changes{change("update_preimage", 3), change("update_postimage", 5)}, ""},
		"update without preimage": {[]int64{1, 2, 5}, false, changes{change("update_postimage", 5)}, "do not say what it changed"},
		"update of another row":   {[]int64{1, 2, 5}, false, changes{change("update_preimage", 2), change("update_postimage", 5)}, "do not say what it changed"},
		"merge":                   {[]int64{1, 7, 8}, false, changes{change("delete", 2), change("update_preimage", 3), change("update_postimage", 7), change("insert", 8)}, ""},
		"merge tells no insert":   {[]int64{1, 7, 8}, false, changes{change("delete", 2), change("update_preimage", 3), change("update_postimage", 7)}, "do not say what it changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := store.NewMemory()
			f, err := deltalog.ParseColumn("id BIGINT")
			if err != nil {
				t.Fatal(err)
			}
			s := deltalog.Struct{Fields: []deltalog.Field{f}}
			tab, err := deltalog.Create(t.Context(), st, deltalog.TableSpec{Schema: s, Configuration: map[string]string{"delta.enableChangeDataFeed": "true"}}, deltalog.Options{CheckpointInterval: -1})
			if err != nil {
				t.Fatal(err)
			}
			schema, err := deltalog.ArrowSchema(s)
			if err != nil {
				t.Fatal(err)
			}
			rows := func(ids ...int64) arrow.RecordBatch {
				b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
				b.Field(0).(*array.Int64Builder).AppendValues(ids, nil)
				return b.NewRecordBatch()
			}
			if _, err := tab.Append(t.Context(), []arrow.RecordBatch{rows(1, 2, 3)}, "WRITE"); err != nil {
				t.Fatal(err)
			}
			tx := deltalog.Transaction{Base: tab.Cached(), Operation: "TEST", NoDataChange: c.moved, ReadTable: true}
			for a := range tab.Cached().Files() {
				tx.Removes = append(tx.Removes, a)
			}
			if tx.Adds, err = tab.WriteFiles(t.Context(), tab.Cached(), []arrow.RecordBatch{rows(c.after...)}); err != nil {
				t.Fatal(err)
			}
			var told []deltalog.ChangedRows
			for _, of := range c.changes {
				told = append(told, of(rows))
			}
			if len(told) > 0 {
				if tx.Changes, err = tab.WriteChangeFiles(t.Context(), tab.Cached(), told); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := tab.Commit(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			got := strings.Join(verifyIn(t, st).Problems, "\n")
			if c.problem == "" && got != "" || c.problem != "" && (!strings.Contains(got, c.problem) || !strings.Contains(got, "version 2")) {
				t.Errorf("%s, expected %q", got, c.problem)
			}
		})
	}
}

// TestStatisticsMadeAnew: a file that is added again, and was there, is no new rows.
func TestStatisticsMadeAnew(t *testing.T) {
	t.Parallel()
	st := sound(t)
	data, err := st.Get(t.Context(), commit(1))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, `{"add"`) {
			again := `{"commitInfo":{"operation":"COMPUTE STATS"}}` + "\n" + strings.Replace(line, `"dataChange":true`, `"dataChange":false`, 1)
			if err := st.Put(t.Context(), fmt.Sprintf("_delta_log/%020d.json", 5), []byte(again), store.PutOptions{IfAbsent: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if r := verifyIn(t, st); len(r.Problems) > 0 || r.Version != 5 {
		t.Errorf("%+v", r)
	}
}
