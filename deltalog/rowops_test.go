package deltalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// ids selects rows by their first column.
func ids(want ...int64) Predicate {
	return func(rec arrow.RecordBatch) ([]bool, error) {
		out := make([]bool, rec.NumRows())
		for i := range out {
			out[i] = slices.Contains(want, rec.Column(0).(*array.Int64).Value(i))
		}
		return out, nil
	}
}

// withText gives the second column one value; "" is null.
func withText(value string) Assign {
	return func(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
		b := array.NewStringBuilder(memory.DefaultAllocator)
		for range rec.NumRows() {
			if value == "" {
				b.AppendNull()
			} else {
				b.Append(value)
			}
		}
		columns := slices.Clone(rec.Columns())
		columns[1] = b.NewArray()
		return array.NewRecordBatch(rec.Schema(), columns, rec.NumRows()), nil
	}
}

// rowsTable holds ids 1 to 3 in one file and 4 to 6 in another.
func rowsTable(t testing.TB, partition ...string) *Table {
	t.Helper()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{Configuration: withFeed, PartitionColumns: partition})
	appendRows(t, tab, `{"id":1,"p":"x"}`, `{"id":2,"p":"x"}`, `{"id":3,"p":"x"}`)
	appendRows(t, tab, `{"id":4,"p":"y"}`, `{"id":5,"p":"y"}`, `{"id":6,"p":"y"}`)
	return tab
}

// contents is "1x 2x …" of the newest version, sorted.
func contents(t testing.TB, tab *Table) string {
	t.Helper()
	rows := readAll(t, tab, tab.Cached())
	slices.Sort(rows)
	s := strings.NewReplacer(`{"id":`, "", `,"p":"`, "", `"}`, "", `,"p":null}`, "-")
	return s.Replace(strings.Join(rows, " "))
}

// actionsOf counts the kinds of actions.
func actionsOf(c *Commit) string {
	if c == nil {
		return "none"
	}
	n := map[string]int{}
	for _, a := range c.Actions {
		switch {
		case a.Add != nil:
			n["add"]++
		case a.Remove != nil:
			n["remove"]++
		case a.CDC != nil:
			n["cdc"]++
		}
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		out = append(out, fmt.Sprintf("%s=%d", k, n[k]))
	}
	return strings.Join(out, " ")
}

func TestRowOperations(t *testing.T) {
	t.Parallel()
	inX := map[string]string{"p": "x"}
	rows := func(tab *Table, rows ...string) []arrow.RecordBatch {
		return rowsOf(batch(t, tab.Cached().Schema(), rows...))
	}
	tests := []struct {
		name      string
		partition []string
		do        func(ctx context.Context, tab *Table) (*RowChanges, error)
		want      string // rows after it
		actions   string
		operation string
		counts    string
		metrics   string // some that Spark's readers of history look at
	}{
		{"delete of nothing", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Delete(ctx, Condition{Where: ids(9)})
		}, "1x 2x 3x 4y 5y 6y", "none", "", "0 0 0", ""},
		{"delete of a part of a file", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Delete(ctx, Condition{Where: ids(2), SQL: "(id = 2)"})
		}, "1x 3x 4y 5y 6y", "add=1 cdc=1 remove=1", "DELETE", "0 0 1", "numDeletedRows=1 numCopiedRows=2 numRemovedFiles=1 numAddedFiles=1 numAddedChangeFiles=1"},
		{"delete of a whole file, found by its rows", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Delete(ctx, Condition{Where: ids(1, 2, 3)})
		}, "4y 5y 6y", "remove=1", "DELETE", "0 0 3", "numDeletedRows=3 numCopiedRows=0 numAddedChangeFiles=0"},
		{"delete of a whole file and a part of another", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Delete(ctx, Condition{Where: ids(1, 2, 3, 4)})
		}, "5y 6y", "add=1 cdc=1 remove=2", "DELETE", "0 0 4", "numDeletedRows=4 numCopiedRows=2"},
		{"delete of everything", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Delete(ctx, Condition{})
		}, "", "remove=2", "DELETE", "0 0 6", "numDeletedRows=6 numRemovedFiles=2"},
		{"delete of a partition", []string{"p"}, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Delete(ctx, Condition{Partition: inX})
		}, "4y 5y 6y", "remove=1", "DELETE", "0 0 3", "numDeletedRows=3"},
		{"delete within a partition", []string{"p"}, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Delete(ctx, Condition{Partition: inX, Where: ids(1, 4)})
		}, "2x 3x 4y 5y 6y", "add=1 cdc=1 remove=1", "DELETE", "0 0 1", "numDeletedRows=1"},
		{"truncate", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Truncate(ctx)
		}, "", "remove=2", "TRUNCATE", "0 0 6", "numRemovedFiles=2"},
		{"update of nothing", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Update(ctx, Condition{Where: ids()}, withText("z"))
		}, "1x 2x 3x 4y 5y 6y", "none", "", "0 0 0", ""},
		{"update", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Update(ctx, Condition{Where: ids(2, 5)}, withText("z"))
		}, "1x 2z 3x 4y 5z 6y", "add=1 cdc=1 remove=2", "UPDATE", "0 2 0", "numUpdatedRows=2 numCopiedRows=4 numRemovedFiles=2"},
		{"update of every row", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Update(ctx, Condition{}, withText(""))
		}, "1- 2- 3- 4- 5- 6-", "add=1 cdc=1 remove=2", "UPDATE", "0 6 0", "numUpdatedRows=6 numCopiedRows=0"},
		{"update of the partition column", []string{"p"}, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Update(ctx, Condition{Where: ids(1)}, withText("y"))
		}, "1y 2x 3x 4y 5y 6y", "add=2 cdc=2 remove=1", "UPDATE", "0 1 0", "numUpdatedRows=1"},
		{"overwrite", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Overwrite(ctx, rows(tab, `{"id":1,"p":"x"}`))
		}, "1x", "add=1 remove=2", "WRITE", "1 0 6", "numFiles=1 numOutputRows=1 numRemovedFiles=2"},
		{"overwrite by nothing", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Overwrite(ctx, nil)
		}, "", "remove=2", "WRITE", "0 0 6", "numFiles=0"},
		{"overwrite of the partitions of the rows", []string{"p"}, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.OverwritePartitions(ctx, rows(tab, `{"id":7,"p":"y"}`, `{"id":8,"p":null}`))
		}, "1x 2x 3x 7y 8-", "add=2 remove=1", "WRITE", "2 0 3", ""},
		{"replace of whole files", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.ReplaceWhere(ctx, Condition{Where: ids(1, 2, 3)}, rows(tab, `{"id":2,"p":"z"}`))
		}, "2z 4y 5y 6y", "add=1 remove=1", "WRITE", "1 0 3", ""},
		{"replace of rows", nil, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.ReplaceWhere(ctx, Condition{Where: ids(1, 2)}, rows(tab, `{"id":2,"p":"z"}`))
		}, "2z 3x 4y 5y 6y", "add=1 cdc=1 remove=1", "WRITE", "1 0 2", "numDeletedRows=2 numCopiedRows=1"},
		{"replace of a partition", []string{"p"}, func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.ReplaceWhere(ctx, Condition{Partition: inX}, rows(tab, `{"id":2,"p":"x"}`))
		}, "2x 4y 5y 6y", "add=1 remove=1", "WRITE", "1 0 3", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tab := rowsTable(t, tt.partition...)
			before := tab.Cached().Version()
			done, err := tt.do(t.Context(), tab)
			if err != nil {
				t.Fatal(err)
			}
			if got := contents(t, tab); got != tt.want {
				t.Errorf("rows %s, want %s", got, tt.want)
			}
			if got := actionsOf(done.Commit); got != tt.actions {
				t.Errorf("actions %s, want %s", got, tt.actions)
			}
			if got := fmt.Sprint(done.Inserted, done.Updated, done.Deleted); got != tt.counts {
				t.Errorf("inserted, updated, deleted %s, want %s", got, tt.counts)
			}
			if done.Commit == nil {
				if tab.Cached().Version() != before {
					t.Error("a commit for nothing")
				}
				return
			}
			if got := done.Commit.Info().String("operation"); got != tt.operation {
				t.Errorf("operation %s", got)
			}
			metrics := done.Commit.Info().Map("operationMetrics")
			for _, m := range strings.Fields(tt.metrics) {
				if name, value, _ := strings.Cut(m, "="); metrics[name] != value {
					t.Errorf("metric %s is %s, want %s", name, metrics[name], value)
				}
			}
		})
	}
}

// TestRowOperationsRefuse: what cannot be done leaves no version behind.
func TestRowOperationsRefuse(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	tests := []struct {
		name   string
		do     func(ctx context.Context, tab *Table) (*RowChanges, error)
		want   error  // or
		says   string // …
		config map[string]string
	}{
		{"a null in a NOT NULL column", func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Update(ctx, Condition{}, func(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
				columns := slices.Clone(rec.Columns())
				columns[0] = array.MakeArrayOfNull(memory.DefaultAllocator, arrow.PrimitiveTypes.Int64, int(rec.NumRows()))
				return array.NewRecordBatch(rec.Schema(), columns, rec.NumRows()), nil
			})
		}, ErrNotNull, "", nil},
		{"a text too long", func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Update(ctx, Condition{}, withText("too long"))
		}, ErrInvalidValue, "DELTA_EXCEED_CHAR_VARCHAR_LIMIT", nil},
		{"a condition that fails", func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Delete(ctx, Condition{Where: func(arrow.RecordBatch) ([]bool, error) { return nil, boom }})
		}, boom, "", nil},
		{"a condition with too few answers", func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Delete(ctx, Condition{Where: func(arrow.RecordBatch) ([]bool, error) { return []bool{true}, nil }})
		}, nil, "1 answers for 2 rows", nil},
		{"an assignment that loses rows", func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Update(ctx, Condition{}, func(rec arrow.RecordBatch) (arrow.RecordBatch, error) { return rec.NewSlice(0, 1), nil })
		}, nil, "1 rows of 2", nil},
		{"a partition of a table that has none", func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Delete(ctx, Condition{Partition: map[string]string{"p": "x"}})
		}, nil, "no partition column", nil},
		{"rows that are not replaced", func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.ReplaceWhere(ctx, Condition{Where: ids(1)}, rowsOf(batch(t, tab.Cached().Schema(), `{"id":2,"p":"x"}`)))
		}, ErrReplaceMismatch, "", nil},
		{"deletes of a table that is only appended to", func(ctx context.Context, tab *Table) (*RowChanges, error) {
			return tab.Delete(ctx, Condition{})
		}, nil, "DELTA_CANNOT_MODIFY_APPEND_ONLY", map[string]string{propAppendOnly: "true"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tab := createTable(t, store.NewMemory(), quiet, TableSpec{Configuration: tt.config}, "id BIGINT NOT NULL", "p VARCHAR(3)")
			appendRows(t, tab, id(1), id(2))
			_, err := tt.do(t.Context(), tab)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v", err)
			}
			if v := tab.Cached().Version(); v != 1 {
				t.Errorf("version %d", v)
			}
		})
	}
}

// TestRowOperationsConflict: a commit between reading and committing is met as delta.md 2.10 says.
func TestRowOperationsConflict(t *testing.T) {
	t.Parallel()
	appends := func(p string) func(*testing.T, *Table) {
		return func(t *testing.T, tab *Table) { appendRows(t, tab, `{"id":9,"p":"`+p+`"}`) }
	}
	deletes := func(id int64) func(*testing.T, *Table) {
		return func(t *testing.T, tab *Table) {
			if _, err := tab.Delete(context.Background(), Condition{Where: ids(id)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	inX := map[string]string{"p": "x"}
	tests := []struct {
		name   string
		in     map[string]string
		winner func(*testing.T, *Table)
		class  string // of the conflict; empty: none
	}{
		{"an append to what was read", nil, appends("z"), "DELTA_CONCURRENT_APPEND"},
		{"an append to another partition", inX, appends("z"), ""},
		{"an append to the partition", inX, appends("x"), "DELTA_CONCURRENT_APPEND"},
		{"a delete of a file that is removed", inX, deletes(1), "DELTA_CONCURRENT_"},
		{"a delete of a file that was only read", nil, deletes(4), "DELTA_CONCURRENT_"},
		{"a delete in another partition", inX, deletes(4), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tab := rowsTable(t, "p")
			other, err := Open(t.Context(), tab.Store(), quiet)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = other.Close() })
			won := false
			_, err = tab.Delete(t.Context(), Condition{Partition: tt.in, Where: func(rec arrow.RecordBatch) ([]bool, error) {
				if !won {
					won = true
					tt.winner(t, other)
				}
				return ids(1)(rec)
			}})
			if tt.class == "" && err != nil || tt.class != "" && (!errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), tt.class)) {
				t.Errorf("got %v, want %q", err, tt.class)
			}
		})
	}
}

// TestFilesThatCannotMatchAreNotRead: a file that MayMatch rules out may even be gone.
func TestFilesThatCannotMatchAreNotRead(t *testing.T) {
	t.Parallel()
	tab := rowsTable(t)
	first := ""
	for add := range tab.Cached().Files() {
		if first == "" {
			first = add.Path
		}
	}
	if err := tab.Store().Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	later := func(add *Add) bool { return add.Path != first }
	if _, err := tab.Delete(t.Context(), Condition{MayMatch: later, Where: ids(4)}); err != nil {
		t.Error(err)
	}
	if _, err := tab.Update(t.Context(), Condition{MayMatch: later, Where: ids(5)}, withText("z")); err != nil {
		t.Error(err)
	}
	m := upsert(t, tab, "6 n")
	m.MayMatch = later
	if done, err := tab.Merge(t.Context(), m); err != nil || done.Updated != 1 {
		t.Error(err)
	}
	if _, err := tab.Delete(t.Context(), Condition{Where: ids(5)}); err == nil {
		t.Error("a file that is gone was read")
	}
}

// TestTakeGivesWhatWasThere compares rows taken at random, of every type, with the rows.
func TestTakeGivesWhatWasThere(t *testing.T) {
	t.Parallel()
	s := testColumns(t, "id BIGINT", "a TINYINT", "b SMALLINT", "c INT", "d FLOAT", "e DOUBLE", "f BOOLEAN", "g DATE", "h STRING", "i DECIMAL(10,2)",
		"j TIMESTAMP", "k BINARY", "l ARRAY<INT>", "m STRUCT<x:INT,y:STRING>", "n MAP<STRING,INT>")
	rec := batch(t, s, `{"id":1,"a":1,"b":2,"c":3,"d":4.5,"e":5.5,"f":true,"g":"2020-01-02","h":"one","i":"1.25","j":"2020-01-02T03:04:05Z","k":"AQI=","l":[1,2],"m":{"x":1,"y":"q"},"n":[{"key":"k","value":1}]}`,
		`{"id":2}`, `{"id":3,"h":"three","l":[],"m":{"x":null,"y":"r"}}`)
	var want []string
	for i := range 3 {
		row, err := AppendRowJSON(nil, rec, i)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(row))
	}
	for _, rows := range [][]int{{}, {0}, {2, 0, 1}, {1, 2, 2, 0, 1}} {
		got, err := take(rec, rows)
		if err != nil || int(got.NumRows()) != len(rows) {
			t.Fatalf("%v: %v, %v", rows, got, err)
		}
		for i, at := range rows {
			row, err := AppendRowJSON(nil, got, i)
			if err != nil || string(row) != want[at] {
				t.Errorf("row %d of %v: %s, %v", i, rows, row, err)
			}
		}
	}
}

// TestChangesStayCompleteWhenTheyAreMany: once some had to be written, the others are too, although whole files would have told.
func TestChangesStayCompleteWhenTheyAreMany(t *testing.T) {
	t.Parallel()
	tab := rowsTable(t)
	op, err := tab.startRows(t.Context(), "DELETE", true)
	if err != nil {
		t.Fatal(err)
	}
	for add := range tab.Cached().Files() {
		if err := op.deleteFrom(t.Context(), add, ids(1, 2, 3, 4, 5, 6)); err != nil {
			t.Fatal(err)
		}
		if len(op.tx.Changes) == 0 {
			op.bytes = pendingBytes
			if err := op.change(t.Context(), ChangeDelete, batch(t, tab.Cached().Schema(), id(7))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := op.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	done, err := op.commit(t.Context())
	if err != nil || actionsOf(done.Commit) != "cdc=2 remove=2" {
		t.Fatalf("actions %s, %v", actionsOf(done.Commit), err)
	}
	rows := int64(0)
	for _, f := range op.tx.Changes {
		for rec, err := range tab.ReadFile(t.Context(), tab.Cached(), DataFile{Path: f.Path, PartitionValues: f.PartitionValues}, []string{"id"}) {
			if err != nil {
				t.Fatal(err)
			}
			rows += rec.NumRows()
		}
	}
	if rows != 7 {
		t.Errorf("%d changes of 7", rows)
	}
}

// TestOverwrittenPartitionsMayBeSpelledOtherwise: 007 and 7 are one partition of an INT column.
func TestOverwrittenPartitionsMayBeSpelledOtherwise(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{PartitionColumns: []string{"k"}}, "id BIGINT", "k INT")
	adds, err := tab.WriteFiles(t.Context(), tab.Cached(), rowsOf(batch(t, tab.Cached().Schema(), `{"id":1,"k":7}`, `{"id":2,"k":8}`)))
	if err != nil {
		t.Fatal(err)
	}
	other := "007"
	adds[0].PartitionValues = map[string]*string{"k": &other}
	if _, err := tab.Commit(t.Context(), Transaction{Base: tab.Cached(), Operation: "WRITE", Adds: adds}); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.OverwritePartitions(t.Context(), rowsOf(batch(t, tab.Cached().Schema(), `{"id":3,"k":7}`))); err != nil {
		t.Fatal(err)
	}
	got := readAll(t, tab, tab.Cached())
	slices.Sort(got)
	if want := []string{`{"id":2,"k":8}`, `{"id":3,"k":7}`}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
