package verify

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestStatisticsAreChecked edits the statistics of a file column by column: what is true is passed, what is not is found, and what is
// only imprecise is a fault of ours alone.
func TestStatisticsAreChecked(t *testing.T) {
	t.Parallel()
	const (
		row1 = `{"i":5,"b":1,"f":0.1,"d":0.5,"third":0.3333333333333333,"s":"m","long":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","dt":"2024-01-01","t":"2024-01-01T00:00:00.0005Z","n":"2024-01-01T00:00:00.0005","dec":"1.50","big":"1234567890123456789012345678.15","st":{"x":{"y":7}},"l":[1]}`
		row2 = `{"i":9,"st":{"x":null}}`
		row3 = `{}`
	)
	for _, c := range []struct {
		stats  string
		own    string // the problem in a file of our own; "" if it is none
		others string // the same in a file of another writer; a note after "note: "
	}{
		{`{"numRecords":3}`, "", ""},
		{``, "", ""},
		{`{"numRecords":4}`, "has 3 rows, its statistics say 4", "has 3 rows, its statistics say 4"},
		{`{"numRecords":`, "statistics: unexpected EOF", "note: statistics cannot be read"},
		{`{"minValues":{"i":5,"b":1,"f":0.1,"d":0.5,"s":"m","dt":"2024-01-01","t":"2024-01-01T00:00:00.000Z","n":"2024-01-01T00:00:00.000","dec":1.50,"big":1234567890123456789012345678.15,"st":{"x":{"y":7}}}}`, "", ""},
		{`{"maxValues":{"i":9,"b":1,"f":0.1,"d":0.5,"s":"m","dt":"2024-01-01","t":"2024-01-01T00:00:00.001Z","n":"2024-01-01T00:00:00.001","dec":1.50,"big":1234567890123456789012345678.15,"st":{"x":{"y":7}}}}`, "", ""},
		{`{"maxValues":{"s":"zzz","f":"NaN","t":"2024-01-01T00:00:00.000-08:00","l":"?"},"minValues":{"unknown":3}}`, "", ""},
		{`{"maxValues":{"d":"Infinity"}}`, "column d: no value is maxValues", ""},
		{`{"minValues":{"i":-1e3}}`, "column i: no value is minValues", ""},
		{`{"minValues":{"i":-1e3},"tightBounds":false}`, "", ""},
		{`{"nullCount":{"i":1,"b":2,"st":{"x":{"y":2}},"l":2}}`, "", ""},
		{`{"nullCount":{"i":2},"tightBounds":false}`, "", ""},
		{`{"nullCount":{"i":3},"tightBounds":false}`, "has 1 nulls, its statistics say 3", "has 1 nulls, its statistics say 3"},

		// What readers have to allow for.
		{`{"maxValues":{"t":"2024-01-01T00:00:00.000Z"}}`, "column t: a value is above", "note: column t: maxValues is cut to milliseconds"},
		{`{"maxValues":{"n":"2024-01-01 00:00:00"}}`, "column n: a value is above", "note: column n: maxValues is cut to milliseconds"},
		{`{"maxValues":{"big":1.2345678901234567e27}}`, "column big: a value is above", "note: column big: maxValues is rounded to a double"},
		{`{"minValues":{"big":1.234567890123457e27}}`, "column big: a value is below", "note: column big: minValues is rounded to a double"},
		{`{"minValues":{"dec":1.5000000000000002}}`, "column dec: a value is below", "note: column dec: minValues is rounded to a double"},
		{`{"maxValues":{"third":0.333333333333333}}`, "column third: a value is above", "note: column third: maxValues is rounded"},
		{`{"minValues":{"d":"x"}}`, "column d: minValues is x: not a number", "note: column d: minValues cannot be read"},
		{`{"minValues":{"s":5}}`, "column s: minValues is 5: not text", "note: column s: minValues cannot be read"},
		{`{"maxValues":{"dec":1e999999999}}`, "column dec: maxValues is", "note: column dec: maxValues cannot be read"},

		// What makes readers drop rows, whoever wrote it.
		{`{"minValues":{"i":6}}`, "column i: a value is below minValues", "column i: a value is below minValues"},
		{`{"maxValues":{"i":8}}`, "column i: a value is above maxValues", "column i: a value is above maxValues"},
		{`{"maxValues":{"i":8.5}}`, "column i: a value is above", "column i: a value is above"},
		{`{"maxValues":{"b":0}}`, "column b: a value is above", "column b: a value is above"},
		{`{"maxValues":{"f":0.09}}`, "column f: a value is above", "column f: a value is above"},
		{`{"minValues":{"d":0.6}}`, "column d: a value is below", "column d: a value is below"},
		{`{"maxValues":{"third":0.33333333333}}`, "column third: a value is above", "column third: a value is above"},
		{`{"minValues":{"s":"n"}}`, "column s: a value is below", "column s: a value is below"},
		{`{"maxValues":{"s":"mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm"}}`, "", ""},
		{`{"maxValues":{"long":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}}`, "column long: a value is above", "column long: a value is above"},
		{`{"maxValues":{"dt":"2023-12-31"}}`, "column dt: a value is above", "column dt: a value is above"},
		{`{"minValues":{"t":"2024-01-01T00:00:00.001Z"}}`, "column t: a value is below", "column t: a value is below"},
		{`{"maxValues":{"n":"2023-12-31T23:59:59.999"}}`, "column n: a value is above", "column n: a value is above"},
		{`{"maxValues":{"dec":1.49}}`, "column dec: a value is above", "column dec: a value is above"},
		{`{"maxValues":{"big":1.23456789012345e27}}`, "column big: a value is above", "column big: a value is above"},
		{`{"maxValues":{"st":{"x":{"y":6}}}}`, "column st.x.y: a value is above", "column st.x.y: a value is above"},
		{`{"nullCount":{"i":0}}`, "column i has 1 nulls, its statistics say 0", "column i has 1 nulls, its statistics say 0"},
		{`{"nullCount":{"st":{"x":{"y":1}}}}`, "column st.x.y has 2 nulls, its statistics say 1", "column st.x.y has 2 nulls, its statistics say 1"},
		{`{"nullCount":{"l":0}}`, "column l has 2 nulls", "column l has 2 nulls"},
	} {
		for writer, want := range map[string]string{"": c.own, "delta-rs:1.6.6": c.others} {
			r := statisticsReport(t, writer, c.stats, row1, row2, row3)
			found := strings.Join(r.Problems, "\n")
			if note, ok := strings.CutPrefix(want, "note: "); ok {
				want = "written by " + writer + ": " + note
				if found = strings.Join(r.Notes, "\n"); len(r.Problems) > 0 {
					t.Errorf("%s by %s: problems %q", c.stats, writer, r.Problems)
				}
			} else if len(r.Notes) > 0 {
				t.Errorf("%s by %s: notes %q", c.stats, writer, r.Notes)
			}
			if (want == "") != (found == "") || !strings.Contains(found, want) || strings.Contains(found, "\n") {
				t.Errorf("%s by %s: %q, want %q", c.stats, writer, found, want)
			}
		}
	}
}

// statisticsReport verifies a table of one file with those rows, which engine committed with the statistics.
func statisticsReport(t *testing.T, engine, stats string, rows ...string) *Report {
	t.Helper()
	st := store.NewMemory()
	var s deltalog.Struct
	for _, d := range []string{"i BIGINT", "b TINYINT", "f FLOAT", "d DOUBLE", "third DOUBLE", "s STRING", "long STRING", "dt DATE", "t TIMESTAMP", "n TIMESTAMP_NTZ", "dec DECIMAL(9,2)", "big DECIMAL(38,2)", "st STRUCT<x: STRUCT<y: INT>>", "l ARRAY<INT>"} {
		f, err := deltalog.ParseColumn(d)
		if err != nil {
			t.Fatal(err)
		}
		s.Fields = append(s.Fields, f)
	}
	tab, err := deltalog.Create(t.Context(), st, deltalog.TableSpec{Schema: s}, deltalog.Options{CheckpointInterval: -1, EngineInfo: engine})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := deltalog.ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for _, row := range rows {
		if err := b.UnmarshalJSON([]byte(row)); err != nil {
			t.Fatal(err)
		}
	}
	adds, err := tab.WriteFiles(t.Context(), tab.Cached(), []arrow.RecordBatch{b.NewRecordBatch()})
	if err != nil {
		t.Fatal(err)
	}
	adds[0].Stats = stats
	if _, err := tab.Commit(t.Context(), deltalog.Transaction{Base: tab.Cached(), Operation: "WRITE", Adds: adds}); err != nil {
		t.Fatal(err)
	}
	r, err := Verify(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRemarksAreGathered: what is to be said of many files of one writer is said once.
func TestRemarksAreGathered(t *testing.T) {
	t.Parallel()
	a := &audit{report: &Report{}, writers: map[string]string{"a": "x", "b": "x", "c": "y"}, remarks: map[string]remark{}}
	for _, f := range []string{"a", "b", "c", "d"} {
		a.remark(f, "it is so")
	}
	a.noteRemarks()
	const want = "1 files, such as d, written by an unknown writer: it is so\n2 files, such as a, written by x: it is so\n1 files, such as c, written by y: it is so"
	if got := strings.Join(a.report.Notes, "\n"); got != want {
		t.Errorf("got %s", got)
	}
}
