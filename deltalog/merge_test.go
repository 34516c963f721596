package deltalog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// fromSource takes the rows of the source as they are.
func fromSource(p Pairs) (arrow.RecordBatch, error) { return p.Source, nil }

func asTheyAre(rec arrow.RecordBatch) (arrow.RecordBatch, error) { return rec, nil }

// sourceText is a clause's condition on the source's text.
func sourceText(want string) func(Pairs) ([]bool, error) {
	return func(p Pairs) ([]bool, error) {
		out := make([]bool, p.Source.NumRows())
		for i := range out {
			out[i] = p.Source.Column(1).(*array.String).Value(i) == want
		}
		return out, nil
	}
}

// upsert is a merge by id of rows "id text".
func upsert(t *testing.T, tab *Table, rows ...string) Merge {
	t.Helper()
	m := Merge{
		SourceKey: KeyColumns("id"), TargetKey: KeyColumns("id"), SQL: "(s.id = t.id)",
		Matched: []MatchedClause{{Update: fromSource}}, NotMatched: []NotMatchedClause{{Insert: asTheyAre}},
	}
	for _, r := range rows { // a batch each
		var id int
		var p string
		if _, err := fmt.Sscan(r, &id, &p); err != nil {
			t.Fatal(err)
		}
		m.Source = append(m.Source, batch(t, tab.Cached().Schema(), fmt.Sprintf(`{"id":%d,"p":"%s"}`, id, p)))
	}
	return m
}

func TestMerge(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		partition []string
		source    []string
		change    func(m *Merge)
		want      string
		actions   string
		counts    string
	}{
		{"update and insert", nil, []string{"2 n", "5 n", "7 n"}, nil, "1x 2n 3x 4y 5n 6y 7n", "add=1 cdc=1 remove=2", "1 2 0"},
		{"only files that change are written", nil, []string{"2 n"}, nil, "1x 2n 3x 4y 5y 6y", "add=1 cdc=1 remove=1", "0 1 0"},
		{"inserts alone are an append", nil, []string{"7 n", "8 n"}, nil, "1x 2x 3x 4y 5y 6y 7n 8n", "add=1", "2 0 0"},
		{"insert only, with matches", nil, []string{"1 n", "8 n"}, func(m *Merge) { m.Matched = nil }, "1x 2x 3x 4y 5y 6y 8n", "add=1", "1 0 0"},
		{"an empty source", nil, nil, nil, "1x 2x 3x 4y 5y 6y", "none", "0 0 0"},
		{"nothing that any clause takes", nil, []string{"1 n", "9 n"}, func(m *Merge) { m.Matched, m.NotMatched = nil, nil }, "1x 2x 3x 4y 5y 6y", "none", "0 0 0"},
		{"the first clause that takes a pair", nil, []string{"1 gone", "2 new", "3 kept"}, func(m *Merge) {
			m.Matched = []MatchedClause{{When: sourceText("gone")}, {When: sourceText("new"), Update: fromSource}}
		}, "2new 3x 4y 5y 6y", "add=1 cdc=1 remove=1", "0 1 1"},
		{"deletes of a whole file", nil, []string{"1 n", "2 n", "3 n"}, func(m *Merge) { m.Matched = []MatchedClause{{}} }, "4y 5y 6y", "cdc=1 remove=1", "0 0 3"},
		{"one unconditional delete may match twice", nil, []string{"1 n", "1 m"}, func(m *Merge) { m.Matched = []MatchedClause{{}} }, "2x 3x 4y 5y 6y", "add=1 cdc=1 remove=1", "0 0 1"},
		{"a second match that no clause takes", nil, []string{"1 new", "1 other"}, func(m *Merge) {
			m.Matched = []MatchedClause{{When: sourceText("new"), Update: fromSource}}
		}, "1new 2x 3x 4y 5y 6y", "add=1 cdc=1 remove=1", "0 1 0"},
		{"what more must hold", nil, []string{"1 x", "4 x"}, func(m *Merge) {
			m.Matched = []MatchedClause{{}}
			m.On = func(p Pairs) ([]bool, error) {
				out := make([]bool, p.Target.NumRows())
				for i := range out {
					out[i] = p.Target.Column(1).ValueStr(i) == p.Source.Column(1).ValueStr(i)
				}
				return out, nil
			}
		}, "2x 3x 4x 4y 5y 6y", "add=1 cdc=1 remove=1", "1 0 1"},
		{"rows that the source lacks", nil, []string{"1 n", "2 n"}, func(m *Merge) {
			m.Matched, m.NotMatchedBySource = nil, []NotMatchedBySourceClause{{When: ids(3)}, {When: ids(4, 5), Update: withText("u")}}
		}, "1x 2x 4u 5u 6y", "add=1 cdc=1 remove=2", "0 2 1"},
		{"every row lacks a source", nil, nil, func(m *Merge) { m.NotMatchedBySource = []NotMatchedBySourceClause{{}} }, "", "cdc=1 remove=2", "0 0 6"},
		{"without keys", nil, []string{"9 n"}, func(m *Merge) {
			m.SourceKey, m.TargetKey = nil, nil
			m.On = func(p Pairs) ([]bool, error) { return ids(6)(p.Target) }
			m.Matched = []MatchedClause{{}}
		}, "1x 2x 3x 4y 5y", "add=1 cdc=1 remove=1", "0 0 1"},
		{"inserts by the first clause that takes them", nil, []string{"7 n", "8 n"}, func(m *Merge) {
			m.NotMatched = []NotMatchedClause{{When: ids(8), Insert: withText("first")}, {Insert: asTheyAre}}
		}, "1x 2x 3x 4y 5y 6y 7n 8first", "add=1", "2 0 0"},
		{"a row that moves to another partition", []string{"p"}, []string{"1 y"}, nil, "1y 2x 3x 4y 5y 6y", "add=2 cdc=2 remove=1", "0 1 0"},
		{"within a partition", []string{"p"}, []string{"1 x", "9 x"}, func(m *Merge) {
			m.Partition = map[string]string{"p": "x"}
			m.NotMatchedBySource = []NotMatchedBySourceClause{{}}
		}, "1x 4y 5y 6y 9x", "add=1 cdc=1 remove=1", "1 1 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tab := rowsTable(t, tt.partition...)
			m := upsert(t, tab, tt.source...)
			if tt.change != nil {
				tt.change(&m)
			}
			done, err := tab.Merge(t.Context(), m)
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
				return
			}
			metrics := done.Commit.Info().Map("operationMetrics")
			for name, n := range map[string]int64{
				"numTargetRowsInserted": done.Inserted, "numTargetRowsUpdated": done.Updated, "numTargetRowsDeleted": done.Deleted, "numSourceRows": int64(len(tt.source)),
			} {
				if metrics[name] != fmt.Sprint(n) {
					t.Errorf("metric %s is %s, want %d", name, metrics[name], n)
				}
			}
		})
	}
}

func TestMergeSaysWhatItDid(t *testing.T) {
	t.Parallel()
	tab := rowsTable(t)
	m := upsert(t, tab, "1 gone", "2 n", "9 n")
	m.Matched = []MatchedClause{{When: sourceText("gone"), SQL: "(s.p = gone)"}, {Update: fromSource}}
	done, err := tab.Merge(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	info := done.Commit.Info()
	want := map[string]string{
		"predicate": `["(s.id = t.id)"]`, "matchedPredicates": `[{"predicate":"(s.p = gone)","actionType":"delete"},{"actionType":"update"}]`,
		"notMatchedPredicates": `[{"actionType":"insert"}]`, "notMatchedBySourcePredicates": `[]`,
	}
	for k, v := range want {
		if got := info.Map("operationParameters")[k]; got != v {
			t.Errorf("%s: %s, want %s", k, got, v)
		}
	}
	if info.String("operation") != "MERGE" {
		t.Errorf("operation %s", info.String("operation"))
	}
}

func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		source []string
		change func(m *Merge)
		want   error
		says   string
	}{
		{"two source rows for one row", []string{"1 a", "1 b"}, nil, ErrMultipleMatches, "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE"},
		{"two that different clauses take", []string{"1 a", "1 b"}, func(m *Merge) {
			m.Matched = []MatchedClause{{When: sourceText("a")}, {When: sourceText("b"), Update: fromSource}}
		}, ErrMultipleMatches, ""},
		{"two that a conditional delete takes", []string{"1 a", "1 a"}, func(m *Merge) { m.Matched = []MatchedClause{{When: sourceText("a")}} }, ErrMultipleMatches, ""},
		{"a key on one side only", []string{"1 a"}, func(m *Merge) { m.TargetKey = nil }, nil, "keys for both sides"},
		{"a column that is not there", []string{"1 a"}, func(m *Merge) { m.TargetKey = KeyColumns("nope") }, nil, "no column nope"},
		{"an insert that is none", []string{"9 a"}, func(m *Merge) { m.NotMatched = []NotMatchedClause{{}} }, nil, "no Insert"},
		{"an insert of other columns", []string{"9 a"}, func(m *Merge) {
			m.NotMatched[0].Insert = func(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
				return array.NewRecordBatch(arrow.NewSchema(rec.Schema().Fields()[:1], nil), rec.Columns()[:1], rec.NumRows()), nil
			}
		}, nil, "1 columns"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tab := rowsTable(t)
			m := upsert(t, tab, tt.source...)
			if tt.change != nil {
				tt.change(&m)
			}
			if _, err := tab.Merge(t.Context(), m); err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v", err)
			}
			if v := tab.Cached().Version(); v != 2 {
				t.Errorf("version %d", v)
			}
		})
	}
}

func TestMergeConflictsWithAnAppend(t *testing.T) {
	t.Parallel()
	tab := rowsTable(t)
	m := upsert(t, tab, "1 n")
	m.TargetKey = func(rec arrow.RecordBatch) ([][]byte, error) {
		if tab.Cached().Version() == 2 {
			appendRows(t, tab, id(50))
		}
		return KeyColumns("id")(rec)
	}
	if _, err := tab.Merge(context.Background(), m); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "DELTA_CONCURRENT_APPEND") {
		t.Errorf("got %v", err)
	}
}

func TestKeysCompareAsSQLDoes(t *testing.T) {
	t.Parallel()
	s := testColumns(t, "a STRING", "b STRING", "n INT", "w BIGINT", "d DOUBLE")
	rec := batch(t, s, `{"a":"x","b":"yz","n":1,"w":1,"d":0}`, `{"a":"xy","b":"z","n":null,"w":2,"d":0}`)
	key := func(rec arrow.RecordBatch, i int, columns ...string) string {
		t.Helper()
		keys, err := KeyColumns(columns...)(rec)
		if err != nil {
			t.Fatal(err)
		}
		if keys[i] == nil {
			return "none"
		}
		return string(keys[i])
	}
	if key(rec, 0, "a", "b") == key(rec, 1, "a", "b") {
		t.Error("the border between two texts is lost")
	}
	if key(rec, 0, "n") != key(rec, 0, "w") {
		t.Error("1 is not 1")
	}
	if key(rec, 1, "n") != "none" || key(rec, 1, "w", "n") != "none" {
		t.Error("a null matches")
	}
	b := array.NewFloat64Builder(memory.DefaultAllocator)
	b.AppendValues([]float64{math.Copysign(0, -1)}, nil)
	neg := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "d", Type: arrow.PrimitiveTypes.Float64}}, nil), []arrow.Array{b.NewArray()}, 1)
	if key(neg, 0, "d") != key(rec, 0, "d") {
		t.Error("-0.0 is not 0.0")
	}
}
