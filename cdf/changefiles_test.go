package cdf

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// feedTable makes a table with the feed, in memory.
func feedTable(t testing.TB, partition []string, ddl ...string) *deltalog.Table {
	t.Helper()
	spec := deltalog.TableSpec{PartitionColumns: partition, Configuration: map[string]string{"delta.enableChangeDataFeed": "true"}}
	for _, c := range ddl {
		f, err := deltalog.ParseColumn(c)
		if err != nil {
			t.Fatal(err)
		}
		spec.Schema.Fields = append(spec.Schema.Fields, f)
	}
	tab, err := deltalog.Create(context.Background(), store.NewMemory(), spec, deltalog.Options{CheckpointInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tab.Close() })
	return tab
}

// jsonRows makes a batch of rows of tab.
func jsonRows(t testing.TB, tab *deltalog.Table, rows ...string) arrow.RecordBatch {
	t.Helper()
	schema, err := deltalog.ArrowSchema(tab.Cached().Schema())
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, r := range rows {
		if err := b.UnmarshalJSON([]byte(r)); err != nil {
			t.Fatalf("%s: %v", r, err)
		}
	}
	return b.NewRecordBatch()
}

// feedOf is the feed of one version, as "type row".
func feedOf(t testing.TB, tab *deltalog.Table, version int64) []string {
	t.Helper()
	var out []string
	for b, err := range Read(context.Background(), tab, versions(version, version), nil) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(b.Rows.NumRows()) {
			row, err := deltalog.AppendRowJSON(nil, b.Rows, i)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%s %s", b.ChangeType(i), row))
		}
	}
	return out
}

func TestChangeFilesAreTheWholeFeedOfTheirCommit(t *testing.T) {
	t.Parallel()
	tab := feedTable(t, []string{"p"}, "id BIGINT NOT NULL", "p STRING")
	adds, err := tab.WriteFiles(t.Context(), tab.Cached(), []arrow.RecordBatch{jsonRows(t, tab, `{"id":1,"p":"y"}`, `{"id":2,"p":"x"}`)})
	if err != nil {
		t.Fatal(err)
	}
	files, err := tab.WriteChangeFiles(t.Context(), tab.Cached(), []deltalog.ChangedRows{
		{Type: UpdatePreimage, Rows: jsonRows(t, tab, `{"id":1,"p":"x"}`)},
		{Type: UpdatePostimage, Rows: jsonRows(t, tab, `{"id":1,"p":"y"}`)},
		{Type: Insert, Rows: jsonRows(t, tab, `{"id":3,"p":null}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := tab.Commit(t.Context(), deltalog.Transaction{Base: tab.Cached(), Operation: "MERGE", ReadTable: true, Adds: adds, Changes: files})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(feedOf(t, tab, c.Version), "; ")
	if want := `update_preimage {"id":1,"p":"x"}; update_postimage {"id":1,"p":"y"}; insert {"id":3,"p":null}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
