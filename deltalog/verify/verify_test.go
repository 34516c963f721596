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

// sound makes a table of five versions with a checkpoint at version 3.
func sound(t *testing.T) store.Store {
	t.Helper()
	st := store.NewMemory()
	var s deltalog.Struct
	for _, d := range []string{"id BIGINT NOT NULL", "name STRING", "ts TIMESTAMP"} {
		f, err := deltalog.ParseColumn(d)
		if err != nil {
			t.Fatal(err)
		}
		s.Fields = append(s.Fields, f)
	}
	tab, err := deltalog.Create(t.Context(), st, deltalog.TableSpec{Schema: s}, deltalog.Options{CheckpointInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := deltalog.ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for _, row := range []string{fmt.Sprintf(`{"id":%d,"name":"n%d","ts":"2024-01-01 00:00:00.12345%dZ"}`, i, i, i), `{"id":100}`} {
			if err := b.UnmarshalJSON([]byte(row)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tab.Append(t.Context(), []arrow.RecordBatch{b.NewRecordBatch()}, "WRITE"); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			if err := tab.Checkpoint(t.Context(), tab.Cached()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return st
}

// edit replaces text in a file.
func edit(t *testing.T, st store.Store, name, old, with string) {
	t.Helper()
	data, err := st.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(data), old, with, 1)
	if changed == string(data) {
		t.Fatalf("%s has no %q", name, old)
	}
	if err := st.Put(t.Context(), name, []byte(changed), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func commit(v int) string { return fmt.Sprintf("_delta_log/%020d.json", v) }

func firstData(t *testing.T, st store.Store) string {
	t.Helper()
	for f, err := range st.List(t.Context(), "part-", "") {
		if err != nil {
			t.Fatal(err)
		}
		return f.Name
	}
	t.Fatal("no data file")
	return ""
}

func TestPlantedDamageIsFound(t *testing.T) {
	t.Parallel()
	plants := map[string]struct {
		damage  func(t *testing.T, st store.Store)
		problem string
	}{
		"sound":             {func(*testing.T, store.Store) {}, ""},
		"a file is missing": {func(t *testing.T, st store.Store) { _ = st.Delete(t.Context(), firstData(t, st)) }, "is missing"},
		"a file has grown":  {func(t *testing.T, st store.Store) { edit(t, st, firstData(t, st), "PAR1", "PAR1\x00") }, "bytes, the log says"},
		"a file is cut": {func(t *testing.T, st store.Store) {
			_ = st.Put(t.Context(), firstData(t, st), []byte("PAR1"), store.PutOptions{})
		}, "corrupt"},
		"wrong row count": {func(t *testing.T, st store.Store) { edit(t, st, commit(1), `numRecords\":2`, `numRecords\":3`) }, "its statistics say 3"},
		"wrong lower bound": {func(t *testing.T, st store.Store) {
			edit(t, st, commit(1), `minValues\":{\"id\":0`, `minValues\":{\"id\":1`)
		}, "below minValues"},
		"wrong upper bound": {func(t *testing.T, st store.Store) {
			edit(t, st, commit(1), `maxValues\":{\"id\":100,\"name\":\"n0`, `maxValues\":{\"id\":100,\"name\":\"m9`)
		}, "above maxValues"},
		"wrong null count": {func(t *testing.T, st store.Store) {
			edit(t, st, commit(1), `nullCount\":{\"id\":0,\"name\":1`, `nullCount\":{\"id\":0,\"name\":0`)
		}, "nulls"},
		"a hole": {func(t *testing.T, st store.Store) { _ = st.Delete(t.Context(), commit(2)) }, "versions 2 to 2 are missing"},
		"a broken commit": {func(t *testing.T, st store.Store) {
			_ = st.Put(t.Context(), commit(4), []byte("{"), store.PutOptions{})
		}, "version 4"},
		"a broken checkpoint": {func(t *testing.T, st store.Store) {
			_ = st.Put(t.Context(), "_delta_log/00000000000000000003.checkpoint.parquet", []byte("x"), store.PutOptions{})
		}, "checkpoint 3"},
		"a foreign checkpoint": {func(t *testing.T, st store.Store) {
			data, _ := st.Get(t.Context(), "_delta_log/00000000000000000003.checkpoint.parquet")
			_ = st.Put(t.Context(), "_delta_log/00000000000000000004.checkpoint.parquet", data, store.PutOptions{})
		}, "checkpoint 4 differs from the replay: it lacks part-"},
		"another table's id": {func(t *testing.T, st store.Store) {
			data, _ := st.Get(t.Context(), commit(0))
			_, meta, _ := strings.Cut(string(data), "\n")
			_, meta, _ = strings.Cut(meta, "\n")
			meta = strings.Replace(meta, `"id":"`, `"id":"x`, 1)
			_ = st.Put(t.Context(), commit(5), []byte(meta), store.PutOptions{})
		}, "changes the table's id"},
	}
	for name, p := range plants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := sound(t)
			p.damage(t, st)
			r, err := Verify(t.Context(), st)
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(r.Problems, "\n")
			if (p.problem == "") != (all == "") || !strings.Contains(all, p.problem) {
				t.Errorf("problems: %s", all)
			}
		})
	}
}

func TestLeftoversAreNotes(t *testing.T) {
	t.Parallel()
	st := sound(t)
	for _, n := range []string{"part-00009-x.parquet", "." + firstData(t, st) + ".crc", "_delta_log/.00000000000000000009.json.x.tmp"} {
		if err := st.Put(t.Context(), n, []byte("x"), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Verify(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Problems) != 0 || len(r.Notes) != 2 || r.Rows != 8 || r.Files != 4 || r.Version != 4 || r.Checkpoints != 1 {
		t.Errorf("report %+v", r)
	}
}
