package cdf

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
)

// with selects rows by their first column.
func with(want ...int64) deltalog.Predicate {
	return func(rec arrow.RecordBatch) ([]bool, error) {
		out := make([]bool, rec.NumRows())
		for i := range out {
			out[i] = slices.Contains(want, rec.Column(0).(*array.Int64).Value(i))
		}
		return out, nil
	}
}

// becomes gives the second column one value.
func becomes(value string) deltalog.Assign {
	return func(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		for range rec.NumRows() {
			b.Append(value)
		}
		columns := slices.Clone(rec.Columns())
		columns[1] = b.NewArray()
		return array.NewRecordBatch(rec.Schema(), columns, rec.NumRows()), nil
	}
}

// merge updates and inserts by id, and deletes what is selected of the rows that source lacks.
func merge(source arrow.RecordBatch, lacking deltalog.Predicate) deltalog.Merge {
	return deltalog.Merge{
		Source: []arrow.RecordBatch{source}, SourceKey: deltalog.KeyColumns("id"), TargetKey: deltalog.KeyColumns("id"),
		Matched:            []deltalog.MatchedClause{{Update: func(p deltalog.Pairs) (arrow.RecordBatch, error) { return p.Source, nil }}},
		NotMatched:         []deltalog.NotMatchedClause{{Insert: func(rows arrow.RecordBatch) (arrow.RecordBatch, error) { return rows, nil }}},
		NotMatchedBySource: []deltalog.NotMatchedBySourceClause{{When: lacking}},
	}
}

// TestFeedOfRowOperations: delta.md 3.1, one operation a line.
func TestFeedOfRowOperations(t *testing.T) {
	t.Parallel()
	type table = *deltalog.Table
	tests := []struct {
		name string
		do   func(ctx context.Context, tab table) (*deltalog.RowChanges, error)
		want string
	}{
		{"delete of a part of a file", func(ctx context.Context, tab table) (*deltalog.RowChanges, error) {
			return tab.Delete(ctx, deltalog.Condition{Where: with(2)})
		}, "delete 2x"},
		{"delete of a whole file", func(ctx context.Context, tab table) (*deltalog.RowChanges, error) {
			return tab.Delete(ctx, deltalog.Condition{Where: with(1, 2)})
		}, "delete 1x; delete 2x"},
		{"delete of a whole file and a part of another", func(ctx context.Context, tab table) (*deltalog.RowChanges, error) {
			return tab.Delete(ctx, deltalog.Condition{Where: with(1, 2, 3)})
		}, "delete 1x; delete 2x; delete 3y"},
		{"update", func(ctx context.Context, tab table) (*deltalog.RowChanges, error) {
			return tab.Update(ctx, deltalog.Condition{Where: with(1, 3)}, becomes("z"))
		}, "update_preimage 1x; update_postimage 1z; update_preimage 3y; update_postimage 3z"},
		{"update to what was there", func(ctx context.Context, tab table) (*deltalog.RowChanges, error) {
			return tab.Update(ctx, deltalog.Condition{Where: with(1)}, becomes("x"))
		}, "update_preimage 1x; update_postimage 1x"},
		{"overwrite", func(ctx context.Context, tab table) (*deltalog.RowChanges, error) {
			return tab.Overwrite(ctx, []arrow.RecordBatch{jsonRows(t, tab, `{"id":1,"p":"x"}`)})
		}, "delete 1x; delete 2x; delete 3y; delete 4y; insert 1x"},
		{"replace of rows", func(ctx context.Context, tab table) (*deltalog.RowChanges, error) {
			return tab.ReplaceWhere(ctx, deltalog.Condition{Where: with(1, 3, 4)}, []arrow.RecordBatch{jsonRows(t, tab, `{"id":1,"p":"n"}`, `{"id":3,"p":"n"}`)})
		}, "delete 1x; delete 3y; delete 4y; insert 1n; insert 3n"},
		{"merge", func(ctx context.Context, tab table) (*deltalog.RowChanges, error) {
			return tab.Merge(ctx, merge(jsonRows(t, tab, `{"id":2,"p":"n"}`, `{"id":9,"p":"n"}`), with(3, 4)))
		}, "update_preimage 2x; update_postimage 2n; delete 3y; delete 4y; insert 9n"},
		{"merge that only inserts", func(ctx context.Context, tab table) (*deltalog.RowChanges, error) {
			return tab.Merge(ctx, merge(jsonRows(t, tab, `{"id":8,"p":"n"}`), with()))
		}, "insert 8n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tab := feedTable(t, nil, "id BIGINT NOT NULL", "p STRING")
			for _, rows := range [][]string{{`{"id":1,"p":"x"}`, `{"id":2,"p":"x"}`}, {`{"id":3,"p":"y"}`, `{"id":4,"p":"y"}`}} {
				if _, err := tab.Append(t.Context(), []arrow.RecordBatch{jsonRows(t, tab, rows...)}, "WRITE"); err != nil {
					t.Fatal(err)
				}
			}
			done, err := tt.do(t.Context(), tab)
			if err != nil {
				t.Fatal(err)
			}
			got := feedOf(t, tab, done.Commit.Version)
			for i := range got {
				got[i] = strings.NewReplacer(`{"id":`, "", `,"p":"`, "", `"}`, "").Replace(got[i])
			}
			if s := strings.Join(got, "; "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
}

// TestFeedOverAddedColumns: rows of before have null in a column that came later, also in change files.
func TestFeedOverAddedColumns(t *testing.T) {
	t.Parallel()
	tab := feedTable(t, nil, "id BIGINT NOT NULL", "p STRING")
	if _, err := tab.Append(t.Context(), []arrow.RecordBatch{jsonRows(t, tab, `{"id":1,"p":"x"}`, `{"id":2,"p":"x"}`)}, "WRITE"); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Delete(t.Context(), deltalog.Condition{Where: with(2)}); err != nil {
		t.Fatal(err)
	}
	f, err := deltalog.ParseColumn("late INT")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.AddColumns(t.Context(), deltalog.NewColumn{Field: f, First: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Append(t.Context(), []arrow.RecordBatch{jsonRows(t, tab, `{"late":7,"id":3,"p":"y"}`)}, "WRITE"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for v := range int64(5) {
		got = append(got, feedOf(t, tab, v)...)
	}
	want := `insert {"late":null,"id":1,"p":"x"}; insert {"late":null,"id":2,"p":"x"}; delete {"late":null,"id":2,"p":"x"}; insert {"late":7,"id":3,"p":"y"}`
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}
