package interop

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/deltalog/verify"
)

// operated is a table that row operations are tried on.
type operated struct {
	t   *testing.T
	dir string
	*deltalog.Table
}

func newOperated(t *testing.T, spec deltalog.TableSpec) *operated {
	t.Helper()
	for _, c := range []string{"id BIGINT NOT NULL", "p STRING", "n BIGINT", "at TIMESTAMP", "s STRUCT<x:INT>", "l ARRAY<STRING>"} {
		spec.Schema.Fields = append(spec.Schema.Fields, parsedColumn(t, c))
	}
	dir := t.TempDir()
	st, err := store.NewLocal(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	table, err := deltalog.Create(t.Context(), st, spec, deltalog.Options{CheckpointInterval: 5})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return &operated{t, dir, table}
}

func parsedColumn(t *testing.T, ddl string) deltalog.Field {
	t.Helper()
	f, err := deltalog.ParseColumn(ddl)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// batch is rows from to to, in the partitions a, b and null.
func (o *operated) batch(from, to int, p ...string) []arrow.RecordBatch {
	o.t.Helper()
	schema, err := deltalog.ArrowSchema(o.Cached().Schema())
	if err != nil {
		o.t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := from; i < to; i++ {
		part := []string{`"a"`, `"b"`, `null`}[i%3]
		if len(p) > 0 {
			part = p[0]
		}
		row := fmt.Sprintf(`{"id":%d,"p":%s,"n":%d,"at":"2024-05-06T07:08:09.%06dZ","s":{"x":%d},"l":["t",null]}`, i, part, i*10, i, i)
		if i%5 == 0 {
			row = fmt.Sprintf(`{"id":%d,"p":%s}`, i, part)
		}
		if err := b.UnmarshalJSON([]byte(row)); err != nil {
			o.t.Fatal(err)
		}
	}
	return []arrow.RecordBatch{b.NewRecordBatch()}
}

// must fails the test unless an operation made a commit.
func (o *operated) must(done *deltalog.RowChanges, err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
	if done.Commit == nil {
		o.t.Fatal("nothing was done")
	}
}

// idIn selects rows by id.
func idIn(ids ...int64) deltalog.Predicate {
	return func(rec arrow.RecordBatch) ([]bool, error) {
		column := rec.Column(rec.Schema().FieldIndices("id")[0]).(*array.Int64)
		out := make([]bool, rec.NumRows())
		for i := range out {
			out[i] = slices.Contains(ids, column.Value(i))
		}
		return out, nil
	}
}

// negated gives rows -n for n.
func negated(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	at := rec.Schema().FieldIndices("n")[0]
	b := array.NewInt64Builder(memory.DefaultAllocator)
	n := rec.Column(at).(*array.Int64)
	for i := range n.Len() {
		if n.IsNull(i) {
			b.Append(-1)
		} else {
			b.Append(-n.Value(i))
		}
	}
	columns := slices.Clone(rec.Columns())
	columns[at] = b.NewArray()
	return array.NewRecordBatch(rec.Schema(), columns, rec.NumRows()), nil
}

// upsert updates by id what is there and inserts the rest.
func upsert(rows []arrow.RecordBatch) deltalog.Merge {
	return deltalog.Merge{
		Source: rows, SourceKey: deltalog.KeyColumns("id"), TargetKey: deltalog.KeyColumns("id"), SQL: "(s.id = t.id)",
		Matched: []deltalog.MatchedClause{
			{When: func(p deltalog.Pairs) ([]bool, error) { return idIn(13)(p.Target) }, SQL: "(t.id = 13)"},
			{Update: func(p deltalog.Pairs) (arrow.RecordBatch, error) { return p.Source, nil }},
		},
		NotMatched: []deltalog.NotMatchedClause{{Insert: func(rec arrow.RecordBatch) (arrow.RecordBatch, error) { return rec, nil }}},
	}
}

// judged compares all versions, and the feed from a version on, with what every judge says.
func (o *operated) judged(feedFrom int64, judges ...*judge) {
	o.t.Helper()
	newest := wholeLog(o.t, o.dir)
	for _, j := range judges {
		for v := range newest + 1 {
			equalRows(o.t, fmt.Sprintf("%s version %d", j.script, v), j.rows(o.t, o.dir, v), ours(o.t, o.dir, v))
		}
		feed := ourChanges(o.t, o.dir, feedFrom, newest)
		equalRows(o.t, j.script+" feed", j.changes(o.t, o.dir, feedFrom, newest), feed, "id", "_change_type", "_commit_version")
	}
	report, err := verify.Verify(context.Background(), o.Store())
	if err != nil || len(report.Problems) > 0 {
		o.t.Errorf("verify: %v, %v", err, report.Problems)
	}
}

// TestJudgesReadRowOperations: delta-rs and Spark read rows and feed of what row operations wrote, as we do, at every version; then both delete,
// update and Spark merges, and we read that.
func TestJudgesReadRowOperations(t *testing.T) {
	t.Parallel()
	feed := map[string]string{"delta.enableChangeDataFeed": "true"}
	for _, partition := range [][]string{nil, {"p"}} {
		t.Run(fmt.Sprint("partitioned by ", partition), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			o := newOperated(t, deltalog.TableSpec{Configuration: feed, PartitionColumns: partition})
			for from := 0; from < 60; from += 20 {
				if _, err := o.Append(ctx, o.batch(from, from+20), "WRITE"); err != nil {
					t.Fatal(err)
				}
			}
			o.must(o.Delete(ctx, deltalog.Condition{Where: idIn(1, 2, 25, 50), SQL: "(id IN (1, 2, 25, 50))"}))
			o.must(o.Update(ctx, deltalog.Condition{Where: idIn(3, 4, 5, 30, 31)}, negated))
			o.must(o.Merge(ctx, upsert(o.batch(10, 15, `"b"`))))
			o.must(o.Merge(ctx, upsert(o.batch(60, 66))))
			o.must(o.ReplaceWhere(ctx, deltalog.Condition{Where: idIn(7, 8, 9, 70)}, o.batch(70, 71)))
			if partition != nil {
				o.must(o.Delete(ctx, deltalog.Condition{Partition: map[string]string{"p": "a"}}))
				o.must(o.OverwritePartitions(ctx, o.batch(80, 90, `"a"`)))
			}
			o.judged(1, deltaRS, spark)

			o.must(o.Overwrite(ctx, o.batch(0, 30)))
			_, err := o.AddColumns(ctx, deltalog.NewColumn{Field: parsedColumn(t, "late INT"), After: "id"}, deltalog.NewColumn{Parent: []string{"s"}, Field: parsedColumn(t, "y STRING")})
			if err != nil {
				t.Fatal(err)
			}
			o.must(o.Update(ctx, deltalog.Condition{Where: idIn(3, 4)}, negated))
			o.must(o.Merge(ctx, upsert(o.batch(28, 33))))
			if _, err := o.CommentColumn(ctx, []string{"n"}, "said"); err != nil {
				t.Fatal(err)
			}
			if _, err := o.DropNotNull(ctx, []string{"id"}); err != nil {
				t.Fatal(err)
			}
			newest := wholeLog(t, o.dir)
			equalRows(t, "Spark's feed over the added columns", spark.changes(t, o.dir, 1, newest), ourChanges(t, o.dir, 1, newest), "id", "_change_type", "_commit_version")
			for _, j := range judges {
				equalRows(t, j.script+" after the added columns", j.rows(t, o.dir, -1), ours(t, o.dir, -1))
			}

			// They go on with our table, and we with theirs.
			spark.must(t, "sql", map[string]any{"text": fmt.Sprintf("DELETE FROM delta.`%s` WHERE id IN (11, 20)", o.dir)}, nil)
			spark.must(t, "sql", map[string]any{"text": fmt.Sprintf("UPDATE delta.`%s` SET n = 7, late = 1 WHERE id < 3", o.dir)}, nil)
			spark.must(t, "sql", map[string]any{"text": fmt.Sprintf(
				"MERGE INTO delta.`%s` t USING (SELECT 5L AS id UNION ALL SELECT 500L) s ON s.id = t.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 1)", o.dir)}, nil)
			deltaRS.must(t, "delete", map[string]any{"path": o.dir, "predicate": "id = 12"}, nil)
			if _, err := o.Snapshot(ctx); err != nil {
				t.Fatal(err)
			}
			o.must(o.Update(ctx, deltalog.Condition{Where: idIn(500, 0)}, negated))
			o.must(o.Delete(ctx, deltalog.Condition{Where: idIn(6)}))
			newest = wholeLog(t, o.dir)
			for _, j := range judges {
				equalRows(t, j.script+" after taking turns", j.rows(t, o.dir, -1), ours(t, o.dir, -1))
			}
			equalRows(t, "Spark's feed after taking turns", spark.changes(t, o.dir, 1, newest), ourChanges(t, o.dir, 1, newest), "id", "_change_type", "_commit_version")
		})
	}
	t.Run("feed switched on later", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		o := newOperated(t, deltalog.TableSpec{})
		if _, err := o.Append(ctx, o.batch(0, 20), "WRITE"); err != nil {
			t.Fatal(err)
		}
		o.must(o.Delete(ctx, deltalog.Condition{Where: idIn(1)}))
		c, err := o.SetProperties(ctx, feed)
		if err != nil {
			t.Fatal(err)
		}
		o.must(o.Delete(ctx, deltalog.Condition{Where: idIn(2)}))
		o.must(o.Update(ctx, deltalog.Condition{Where: idIn(3)}, negated))
		o.judged(c.Version, deltaRS, spark)
	})
}
