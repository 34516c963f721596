package deltalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

func TestTypes(t *testing.T) {
	t.Parallel()
	for ddl, want := range map[string]string{
		"a BIGINT NOT NULL":            `{"name":"a","type":"long","nullable":false,"metadata":{}}`,
		"`a b` string COMMENT 'it''s'": `{"name":"a b","type":"string","nullable":true,"metadata":{"comment":"it's"}}`,
		"a decimal(10, 2)":             `{"name":"a","type":"decimal(10,2)","nullable":true,"metadata":{}}`,
		"a NUMERIC":                    `{"name":"a","type":"decimal(10,0)","nullable":true,"metadata":{}}`,
		"a VARCHAR(10)":                `{"name":"a","type":"string","nullable":true,"metadata":{"__CHAR_VARCHAR_TYPE_STRING":"varchar(10)"}}`,
		"a ARRAY<MAP<STRING, STRUCT<x: INT NOT NULL, y DOUBLE>>>": `{"name":"a","type":{"type":"array","elementType":{"type":"map","keyType":"string","valueType":{"type":"struct","fields":[{"name":"x","type":"integer","nullable":false,"metadata":{}},{"name":"y","type":"double","nullable":true,"metadata":{}}]},"valueContainsNull":true},"containsNull":true},"nullable":true,"metadata":{}}`,
	} {
		f, err := ParseColumn(ddl)
		if err != nil {
			t.Errorf("%s: %v", ddl, err)
			continue
		}
		if got := string(FieldJSON(f)); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", ddl, got, want)
		}
		s, err := ParseSchema([]byte(`{"type":"struct","fields":[` + want + `]}`))
		if err != nil || s.Fields[0].Type.SQL() != f.Type.SQL() || s.Fields[0].Nullable != f.Nullable {
			t.Errorf("%s: read back as %+v, %v", ddl, s, err)
		}
	}
	for _, bad := range []string{
		"", "a", "a NOPE", "a DECIMAL(39,0)", "a DECIMAL(5,6)", "a ARRAY<INT", "a MAP<INT>", "a STRUCT<>", "a INT NOT", "a INT DEFAULT 1", "a INT x",
		"a VARCHAR", "`a INT", "a INT COMMENT x", "a " + strings.Repeat("ARRAY<", 200) + "INT" + strings.Repeat(">", 200),
	} {
		if f, err := ParseColumn(bad); err == nil {
			t.Errorf("%q was taken as %+v", bad, f)
		}
	}
	for _, spec := range []TableSpec{
		{},
		{Schema: testColumns(t, "a INT", "A STRING")},
		{Schema: testColumns(t, "a VARIANT")},
		{Schema: testColumns(t, "a INT"), PartitionColumns: []string{"b"}},
		{Schema: testColumns(t, "a INT"), PartitionColumns: []string{"a"}},
		{Schema: testColumns(t, "a INT", "b ARRAY<INT>"), PartitionColumns: []string{"b"}},
		{Schema: testColumns(t, "a INT"), Configuration: map[string]string{"delta.logRetentionDuration": "soon"}},
		{Schema: testColumns(t, "a INT"), Configuration: map[string]string{"delta.columnMapping.mode": "name"}},
		{Schema: testColumns(t, "_commit_version INT"), Configuration: map[string]string{"delta.enableChangeDataFeed": "true"}},
	} {
		if _, err := Create(t.Context(), store.NewMemory(), spec, quiet); err == nil {
			t.Errorf("a table was made by %+v", spec)
		}
	}
}

// everyType is a column of each type, and rows with values, extremes and nulls.
var everyType = []string{
	"b BOOLEAN", "i8 TINYINT", "i16 SMALLINT", "i32 INT", "i64 BIGINT", "f32 FLOAT", "f64 DOUBLE", "s STRING", "x BINARY", "d DATE", "ts TIMESTAMP",
	"ntz TIMESTAMP_NTZ", "d5 DECIMAL(5,2)", "d15 DECIMAL(15,3)", "d38 DECIMAL(38,10)", "l ARRAY<STRING>", "ll ARRAY<ARRAY<INT>>", "m MAP<STRING,INT>",
	"st STRUCT<a INT, b STRUCT<c STRING, d ARRAY<BIGINT>>>", "ls ARRAY<STRUCT<k STRING, v DOUBLE>>", "ml MAP<INT, ARRAY<STRING>>",
}

var everyRow = []string{
	`{"b":true,"i8":-128,"i16":32767,"i32":-2147483648,"i64":9223372036854775807,"f32":1.5,"f64":-0.1,"s":"é😀","x":"AAEC","d":"2024-02-29","ts":"2024-01-02 03:04:05.123456Z","ntz":"1969-12-31 23:59:59.999999","d5":"-999.99","d15":"123456789012.345","d38":"-1234567890123456789012345678.0123456789","l":["a",null,""],"ll":[[1,2],[],null],"m":[{"key":"k","value":1},{"key":"","value":null}],"st":{"a":1,"b":{"c":"x","d":[1,null]}},"ls":[{"k":"a","v":1.5},null],"ml":[{"key":1,"value":["x"]},{"key":2,"value":[]}]}`,
	`{}`,
	`{"l":[],"ll":[],"m":[],"st":{"a":null,"b":null},"ls":[],"ml":[],"s":"","x":""}`,
	`{"st":{"a":null,"b":{"c":null,"d":null}},"s":"x"}`,
}

func TestEveryTypeComesBack(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{}, everyType...)
	want := batch(t, tab.Cached().Schema(), everyRow...)
	for range 2 { // the second time with a used writer
		appendRows(t, tab, everyRow...)
	}
	if _, err := tab.Append(t.Context(), []arrow.RecordBatch{want.NewSlice(1, 3), want.NewSlice(0, 1)}, "WRITE"); err != nil {
		t.Fatal(err)
	}
	var expected []string
	for _, i := range []int{0, 1, 2, 3, 0, 1, 2, 3, 1, 2, 0} {
		row, err := AppendRowJSON(nil, want, i)
		if err != nil {
			t.Fatal(err)
		}
		expected = append(expected, string(row))
	}
	got := readAll(t, tab, tab.Cached())
	if !slices.Equal(got, expected) {
		for i := range min(len(got), len(expected)) {
			if got[i] != expected[i] {
				t.Errorf("row %d:\ngot  %s\nwant %s", i, got[i], expected[i])
			}
		}
		t.Errorf("%d rows, want %d", len(got), len(expected))
	}
}

func TestColumnsAreReadByName(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{}, "a INT", "b STRING", "c ARRAY<INT>")
	appendRows(t, tab, `{"a":1,"b":"x","c":[1]}`)
	for rec, err := range tab.Scan(t.Context(), tab.Cached(), []string{"c", "a"}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		row, _ := AppendRowJSON(nil, rec, 0)
		if string(row) != `{"c":[1],"a":1}` {
			t.Errorf("got %s", row)
		}
	}
	for _, err := range tab.Scan(t.Context(), tab.Cached(), []string{"nope"}, nil) {
		if err == nil {
			t.Error("an unknown column was read")
		}
	}
}

func TestPartitionValues(t *testing.T) {
	t.Parallel()
	st, err := store.NewLocal(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	ddl := []string{"v INT", "s STRING", "i INT", "l BIGINT", "b BOOLEAN", "d DATE", "ts TIMESTAMP", "n TIMESTAMP_NTZ", "dec DECIMAL(10,2)", "f DOUBLE"}
	tab := createTable(t, st, quiet, TableSpec{PartitionColumns: []string{"s", "i", "l", "b", "d", "ts", "n", "dec", "f"}}, ddl...)
	rest := `"i":-5,"l":7,"b":true,"d":"2024-02-29","ts":"2024-01-02 03:04:05.000006Z","n":"2024-01-02 03:04:05.000006","dec":"-1.50","f":0.5}`
	var rows []string
	for i, s := range []string{"a", "A/A", "a b", "x%y", "%41", "é", "😀", "..", ".", "a=b", "a:b?c#d", " lead", "+", "__x", "\t"} {
		rows = append(rows, fmt.Sprintf(`{"v":%d,"s":%s,%s`, i, mustJSON(s), rest))
	}
	rows = append(rows, `{"v":99}`)
	appendRows(t, tab, rows...)
	again, err := Open(t.Context(), st, quiet)
	if err != nil {
		t.Fatal(err)
	}
	want := batch(t, tab.Cached().Schema(), rows...)
	got := map[string]bool{}
	for _, r := range readAll(t, again, again.Cached()) {
		got[r] = true
	}
	for i := range rows {
		row, _ := AppendRowJSON(nil, want, i)
		if !got[string(row)] {
			t.Errorf("lost %s", row)
		}
	}
	if n := again.Cached().NumFiles(); n != len(rows) {
		t.Errorf("%d files", n)
	}
}

func TestNotNullIsEnforced(t *testing.T) {
	t.Parallel()
	for ddl, row := range map[string]string{
		"c INT NOT NULL": `{}`, "c STRUCT<a INT NOT NULL>": `{"c":{"a":null}}`, "c ARRAY<STRUCT<a INT NOT NULL>>": `{"c":[{"a":null}]}`,
	} {
		tab := createTable(t, store.NewMemory(), quiet, TableSpec{}, ddl, "d INT")
		s := tab.Cached().Schema()
		schema, err := ArrowSchema(Struct{nullable(s.Fields)})
		if err != nil {
			t.Fatal(err)
		}
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		if err := b.UnmarshalJSON([]byte(row)); err != nil {
			t.Fatal(err)
		}
		_, err = tab.Append(t.Context(), []arrow.RecordBatch{b.NewRecordBatch()}, "WRITE")
		if !errors.Is(err, ErrNotNull) || !strings.Contains(err.Error(), "column c") {
			t.Errorf("%s: %v", ddl, err)
		}
	}
}

func FuzzParseCommit(f *testing.F) {
	f.Add([]byte(`{"add":{"path":"a","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true}}` + "\n" + `{"unknown":{}}`))
	f.Add([]byte(`{"metaData":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		actions, err := ParseCommit(data)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v", err)
		}
		if err == nil { // what was taken can be written, and is taken again
			out, err := encodeCommit(actions)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := ParseCommit(out); err != nil || len(again) != len(actions) {
				t.Errorf("read back %d of %d actions: %v", len(again), len(actions), err)
			}
		}
	})
}
