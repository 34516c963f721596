package deltalog

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// mergeRowsOf is n rows from id first on, every step-th.
func mergeRowsOf(b *testing.B, tab *Table, first, n, step int) arrow.RecordBatch {
	schema, err := ArrowSchema(tab.Cached().Schema())
	if err != nil {
		b.Fatal(err)
	}
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := range n {
		builder.Field(0).(*array.Int64Builder).Append(int64(first + i*step))
		builder.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("%0200d", i))
	}
	return builder.NewRecordBatch()
}

// BenchmarkMerge merges 10,000 rows, half of them new, into one file of 200,000 rows of 200 bytes, which is written anew, with its change files.
func BenchmarkMerge(b *testing.B) {
	const rows, changed = 200_000, 5_000
	for range b.N {
		b.StopTimer()
		st, err := store.NewLocal(b.TempDir(), true)
		if err != nil {
			b.Fatal(err)
		}
		tab := createTable(b, st, quiet, TableSpec{Configuration: withFeed})
		if _, err := tab.Append(b.Context(), rowsOf(mergeRowsOf(b, tab, 0, rows, 1)), "WRITE"); err != nil {
			b.Fatal(err)
		}
		m := Merge{
			Source:    rowsOf(mergeRowsOf(b, tab, 0, changed, rows/changed), mergeRowsOf(b, tab, rows, changed, 1)),
			SourceKey: KeyColumns("id"), TargetKey: KeyColumns("id"), Matched: []MatchedClause{{Update: fromSource}}, NotMatched: []NotMatchedClause{{Insert: asTheyAre}},
		}
		b.StartTimer()
		done, err := tab.Merge(b.Context(), m)
		if err != nil || done.Updated != changed || done.Inserted != changed {
			b.Fatal(done, err)
		}
	}
	b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
}
