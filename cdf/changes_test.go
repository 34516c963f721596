package cdf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// hand commits by hand, as other engines do.
type hand struct {
	t   *testing.T
	st  store.Store
	tab *deltalog.Table
}

func newHand(t *testing.T) *hand {
	st := store.NewMemory()
	return &hand{t, st, newTable(t, st, 0, nil)}
}

// file writes rows to a data file and returns its path.
func (h *hand) file(ids ...int64) string {
	h.t.Helper()
	adds, err := h.tab.WriteFiles(context.Background(), h.tab.Cached(), rowsOf(h.t, h.tab, ids...))
	if err != nil {
		h.t.Fatal(err)
	}
	return adds[0].Path
}

// changeFile writes rows "type:id" to a change file and returns its path.
func (h *hand) changeFile(name string, rows ...string) string {
	h.t.Helper()
	var s deltalog.Struct
	for _, c := range []string{"id BIGINT", "_change_type STRING"} {
		f, err := deltalog.ParseColumn(c)
		if err != nil {
			h.t.Fatal(err)
		}
		s.Fields = append(s.Fields, f)
	}
	other := store.NewMemory()
	tab, err := deltalog.Create(context.Background(), other, deltalog.TableSpec{Schema: s}, deltalog.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	schema, err := deltalog.ArrowSchema(s)
	if err != nil {
		h.t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for _, r := range rows {
		kind, id, _ := strings.Cut(r, ":")
		var n int64
		if _, err := fmt.Sscan(id, &n); err != nil {
			h.t.Fatal(err)
		}
		b.Field(0).(*array.Int64Builder).Append(n)
		if kind == "" {
			b.Field(1).AppendNull()
		} else {
			b.Field(1).(*array.StringBuilder).Append(kind)
		}
	}
	adds, err := tab.WriteFiles(context.Background(), tab.Cached(), []arrow.RecordBatch{b.NewRecordBatch()})
	if err != nil {
		h.t.Fatal(err)
	}
	data, err := other.Get(context.Background(), adds[0].Path)
	if err == nil {
		err = h.st.Put(context.Background(), "_change_data/"+name, data, store.PutOptions{})
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return "_change_data/" + name
}

// commit writes the next version.
func (h *hand) commit(operation string, actions ...map[string]any) {
	h.t.Helper()
	snap, err := h.tab.Snapshot(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	var out []byte
	for _, a := range append([]map[string]any{{"commitInfo": map[string]any{"operation": operation, "operationMetrics": metrics}}}, actions...) {
		line, err := json.Marshal(a)
		if err != nil {
			h.t.Fatal(err)
		}
		out = append(append(out, line...), '\n')
	}
	if err := h.st.Put(context.Background(), fmt.Sprintf("_delta_log/%020d.json", snap.Version()+1), out, store.PutOptions{IfAbsent: true}); err != nil {
		h.t.Fatal(err)
	}
}

// metrics are those of a MERGE that changed nothing; other operations do not have them read.
var metrics = map[string]string{"numTargetRowsInserted": "0", "numTargetRowsUpdated": "0", "numTargetRowsDeleted": "0"}

// specVector is the example of the protocol: the rows 3, 4, 7, 11, 18 and 29.
var specVector = map[string]any{"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40, "cardinality": 6}

func addOf(path string, change bool, vector map[string]any) map[string]any {
	a := map[string]any{"path": path, "partitionValues": map[string]string{}, "size": 1, "modificationTime": 1, "dataChange": change}
	if vector != nil {
		a["deletionVector"] = vector
	}
	return map[string]any{"add": a}
}

func removeOf(path string, change bool, vector map[string]any) map[string]any {
	r := map[string]any{"path": path, "partitionValues": map[string]string{}, "size": 1, "deletionTimestamp": 1, "dataChange": change, "extendedFileMetadata": true}
	if vector != nil {
		r["deletionVector"] = vector
	}
	return map[string]any{"remove": r}
}

func cdcOf(path string) map[string]any {
	return map[string]any{"cdc": map[string]any{"path": path, "partitionValues": map[string]string{}, "size": 1, "dataChange": false}}
}

// kinds is the changes of a version as "type:id type:id …", and whether its inserts can be told.
func (h *hand) kinds(version int64) (all string, inserts string, err error) {
	h.t.Helper()
	text := func(b Batch, out []string) []string {
		for i, id := range b.Rows.Column(0).(*array.Int64).Int64Values() {
			out = append(out, fmt.Sprintf("%s:%d", b.ChangeType(i), id))
		}
		return out
	}
	var rows, news []string
	for b, err := range Read(context.Background(), h.tab, versions(version, version), nil) {
		if err != nil {
			return "", "", err
		}
		rows = text(b, rows)
	}
	v, err := Follow(h.tab, version-1, nil).Next(context.Background())
	if err != nil {
		return "", "", err
	}
	for b, err := range v.Inserts() {
		if errors.Is(err, ErrRewritten) {
			var r *RewrittenError
			if !errors.As(err, &r) || r.Version != version {
				h.t.Errorf("%v does not name version %d", err, version)
			}
			return strings.Join(rows, " "), "rewritten", nil
		}
		if err != nil {
			return "", "", err
		}
		news = text(b, news)
	}
	return strings.Join(rows, " "), strings.Join(news, " "), nil
}

// TestChangesOfEachKindOfCommit goes by delta.md 3.2: what a commit changes, and which of it is new.
func TestChangesOfEachKindOfCommit(t *testing.T) {
	t.Parallel()
	thirty := make([]int64, 30)
	for i := range thirty {
		thirty[i] = int64(i)
	}
	dead := "delete:3 delete:4 delete:7 delete:11 delete:18 delete:29"
	back := strings.ReplaceAll(dead, "delete", "insert")
	for _, c := range []struct {
		name         string
		commit       func(h *hand)
		all, inserts string
	}{
		{"append", func(h *hand) { h.commit("WRITE", addOf(h.file(1, 2), true, nil)) }, "insert:1 insert:2", "insert:1 insert:2"},
		{"delete of a file", func(h *hand) { h.commit("DELETE", removeOf(h.file(1, 2), true, nil)) }, "delete:1 delete:2", ""},
		{
			"overwrite", func(h *hand) { h.commit("WRITE", removeOf(h.file(1), true, nil), addOf(h.file(1, 5), true, nil)) },
			"delete:1 insert:1 insert:5", "rewritten",
		},
		{"restore", func(h *hand) { h.commit("RESTORE", addOf(h.file(1), true, nil)) }, "insert:1", "rewritten"},
		{"rearrangement", func(h *hand) { h.commit("OPTIMIZE", removeOf(h.file(1), false, nil), addOf(h.file(1), false, nil)) }, "", ""},
		{
			"update with change files", func(h *hand) {
				h.commit("UPDATE", removeOf("x", true, nil), addOf("y", true, nil), cdcOf(h.changeFile("u", "update_preimage:1", "update_postimage:2")))
			}, "update_preimage:1 update_postimage:2", "",
		},
		{
			"merge with change files", func(h *hand) {
				h.commit("MERGE", removeOf("x", true, nil), addOf("y", true, nil), cdcOf(h.changeFile("m", "insert:7", "delete:1", "insert:8", "insert:9")))
			}, "insert:7 delete:1 insert:8 insert:9", "insert:7 insert:8 insert:9",
		},
		{"merge that wrote files anew", func(h *hand) { h.commit("MERGE", removeOf("x", true, nil), addOf("y", true, nil)) }, "", ""},
		{"live rows of a new file", func(h *hand) {
			h.commit("WRITE", addOf(h.file(thirty[:5]...), true, specVector))
		}, "insert:0 insert:1 insert:2", "insert:0 insert:1 insert:2"},
		{"a vector comes", func(h *hand) {
			f := h.file(thirty...)
			h.commit("DELETE", removeOf(f, true, nil), addOf(f, true, specVector))
		}, dead, ""},
		{"a vector goes", func(h *hand) {
			f := h.file(thirty...)
			h.commit("RESTORE", removeOf(f, true, specVector), addOf(f, true, nil))
		}, back, "rewritten"},
		{"the same vector", func(h *hand) {
			f := h.file(thirty...)
			h.commit("WRITE", removeOf(f, true, specVector), addOf(f, true, specVector))
		}, "", ""},
		{"a removed file with a vector", func(h *hand) { h.commit("DELETE", removeOf(h.file(thirty[:6]...), true, specVector)) }, "delete:0 delete:1 delete:2 delete:5", ""},
		{"nothing but a txn", func(h *hand) {
			h.commit("STREAMING UPDATE", map[string]any{"txn": map[string]any{"appId": "a", "version": 1}})
		}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHand(t)
			c.commit(h)
			if _, err := h.tab.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			all, inserts, err := h.kinds(1)
			if err != nil || all != c.all || inserts != c.inserts {
				t.Errorf("%q, new are %q, %v\nexpected %q, new %q", all, inserts, err, c.all, c.inserts)
			}
		})
	}
}

// TestChangeFileWithoutType: a row that does not tell what it is would be delivered as nothing at all.
func TestChangeFileWithoutType(t *testing.T) {
	t.Parallel()
	h := newHand(t)
	h.commit("UPDATE", cdcOf(h.changeFile("u", "insert:1", ":2")))
	if _, err := h.tab.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.kinds(1); !errors.Is(err, deltalog.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

// TestVacuumedChangeFile: as with data files, the version and the file are named, and nothing is left out.
func TestVacuumedChangeFile(t *testing.T) {
	t.Parallel()
	h := newHand(t)
	h.commit("UPDATE", cdcOf("_change_data/gone"))
	if _, err := h.tab.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _, err := h.kinds(1)
	for _, want := range []string{"version 1", "_change_data/gone", "FAILED_READ_FILE.FILE_NOT_EXIST"} {
		if !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}
