package deltalog

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// specialValues are partition values that are hard on paths (delta.md 5, bug 28).
func specialValues() []string {
	values := []string{"A/A", "B B", "R&D", "a:b", "x%y", "a%2Fb", "é", "😀", "/lead", "trail/", " lead", "trail ", "..", "a+b", "null", "__HIVE_DEFAULT_PARTITION__x", strings.Repeat("long/ä", 100)}
	for c := byte(1); c < 0x80; c++ {
		values = append(values, string([]byte{c}))
	}
	return values
}

// TestSpecialPartitionValues: every value comes back, from a directory of its own, through the path in the log decoded once.
func TestSpecialPartitionValues(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	dir := t.TempDir()
	st, err := store.NewLocal(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	schema := testColumns(t, "p STRING", "id INT")
	table, err := Create(ctx, st, TableSpec{Schema: schema, PartitionColumns: []string{"p"}}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	as, err := ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	values := specialValues()
	b := array.NewRecordBuilder(memory.DefaultAllocator, as)
	for i, v := range values {
		b.Field(0).(*array.StringBuilder).Append(v)
		b.Field(1).(*array.Int32Builder).Append(int32(i))
	}
	b.Field(0).AppendNull()
	b.Field(1).(*array.Int32Builder).Append(-1)
	b.Field(0).(*array.StringBuilder).Append("") // the log cannot tell it from null
	b.Field(1).(*array.Int32Builder).Append(-2)
	if _, err := table.Append(ctx, []arrow.RecordBatch{b.NewRecordBatch()}, "WRITE"); err != nil {
		t.Fatal(err)
	}
	again, err := Open(ctx, st, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if n := again.Cached().NumFiles(); n != len(values)+1 {
		t.Errorf("%d files for %d values and null", n, len(values))
	}
	seen := 0
	for rec, err := range again.Scan(ctx, again.Cached(), nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		p, id := rec.Column(0).(*array.String), rec.Column(1).(*array.Int32)
		for i := range int(rec.NumRows()) {
			seen++
			if n := id.Value(i); n < 0 && !p.IsNull(i) || n >= 0 && (p.IsNull(i) || p.Value(i) != values[n]) {
				t.Errorf("row %d came back as %q", n, p.Value(i))
			}
		}
	}
	if seen != len(values)+2 {
		t.Errorf("%d rows", seen)
	}
	for add := range again.Cached().Files() {
		// Other readers decode once and look the name up as it is.
		name, err := DataName(st, add.Path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Stat(ctx, name); err != nil {
			t.Error(err)
		}
		if len(filepath.Base(filepath.Dir(name))) > 255 {
			t.Errorf("a directory of %d bytes", len(name))
		}
	}
	for _, v := range values {
		n := 0
		for range again.Cached().FilesIn(map[string]string{"p": v}) {
			n++
		}
		if n != 1 {
			t.Errorf("%q: %d files", v, n)
		}
	}
}

func TestPathsAsSparkWritesThem(t *testing.T) {
	t.Parallel()
	for value, want := range map[string][2]string{ // directory, and as in the log
		"A/A":           {"p=A%2FA/", "p=A%252FA/"},
		"a%2Fb":         {"p=a%252Fb/", "p=a%25252Fb/"},
		" lead":         {"p= lead/", "p=%20lead/"},
		"~!@$()_-,;&+.": {"p=~!@$()_-,;&+./", "p=~!@$()_-,;&+./"},
		"..":            {"p=../", "p=../"},
		"a:b=c?d":       {"p=a%3Ab%3Dc%3Fd/", "p=a%253Ab%253Dc%253Fd/"},
		"\x01\x7f":      {"p=%01%7F/", "p=%2501%257F/"},
		"é":             {"p=é/", "p=%C3%A9/"},
	} {
		dir := partitionDir([]string{"p"}, map[string]*string{"p": &value})
		if dir != want[0] || encodePath(dir) != want[1] {
			t.Errorf("%q: %s and %s, want %v", value, dir, encodePath(dir), want)
		}
	}
	if dir := partitionDir([]string{"a b", "q"}, map[string]*string{}); dir != "a b=__HIVE_DEFAULT_PARTITION__/q=__HIVE_DEFAULT_PARTITION__/" {
		t.Errorf("nulls: %s", dir)
	}
}

// TestTypedPartitions: every type that can partition a table comes back exactly, from its own text and from that of other writers.
func TestTypedPartitions(t *testing.T) {
	t.Parallel()
	for sql, values := range map[string]map[string]string{ // JSON of a row: text in the log
		"STRING":        {`"a b"`: "a b", `null`: ""},
		"BIGINT":        {`-9223372036854775808`: "-9223372036854775808"},
		"INT":           {`-5`: "-5"},
		"SMALLINT":      {`32767`: "32767"},
		"TINYINT":       {`-128`: "-128"},
		"FLOAT":         {`0.1`: "0.1", `"NaN"`: "NaN"},
		"DOUBLE":        {`-1.5e-300`: "-1.5e-300", `"-Infinity"`: "-Infinity", `"Infinity"`: "Infinity"},
		"BOOLEAN":       {`true`: "true", `false`: "false"},
		"DATE":          {`"0001-01-01"`: "0001-01-01", `"9999-12-31"`: "9999-12-31"},
		"TIMESTAMP":     {`"2024-05-06T07:08:09.123456Z"`: "2024-05-06T07:08:09.123456Z", `"1969-12-31T23:59:59.999999Z"`: "1969-12-31T23:59:59.999999Z"},
		"TIMESTAMP_NTZ": {`"2024-05-06T07:08:09.5"`: "2024-05-06 07:08:09.500000"},
		"DECIMAL(38,2)": {`"-123456789012345678901234567890123456.78"`: "-123456789012345678901234567890123456.78", `"0.10"`: "0.10"},
		"BINARY":        {`"YWI="`: "ab"},
	} {
		schema := testColumns(t, "p "+sql, "x INT")
		for value, text := range values {
			table, snap := memoryTable(t, schema, "p")
			as, err := ArrowSchema(schema)
			if err != nil {
				t.Fatal(err)
			}
			b := array.NewRecordBuilder(memory.DefaultAllocator, as)
			var p *string
			if value != "null" {
				p = &text
			}
			if err := appendPartitionValue(b.Field(0), schema.Fields[0].Type, p); err != nil {
				t.Fatalf("%s %s: %v", sql, text, err)
			}
			b.Field(1).AppendNull()
			adds, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{b.NewRecordBatch()})
			if err != nil {
				t.Fatalf("%s %s: %v", sql, value, err)
			}
			if got := adds[0].PartitionValues["p"]; (got == nil) != (p == nil) || got != nil && *got != text {
				t.Errorf("%s %s: the log has %v", sql, value, got)
			}
			if got := readJSON(t, table, snap, adds, nil); len(got) != 1 || got[0] != `{"p":`+value+`,"x":null}` {
				t.Errorf("%s %s: read %s", sql, value, got)
			}
		}
	}
}

func TestPartitionValuesOfOthers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ sql, text, want string }{
		{"TIMESTAMP", "2024-05-06 07:08:09", `"2024-05-06T07:08:09Z"`},
		{"TIMESTAMP", "2024-05-06 07:08:09.1", `"2024-05-06T07:08:09.1Z"`},
		{"TIMESTAMP", "2024-05-06T07:08:09+02:00", `"2024-05-06T05:08:09Z"`},
		{"TIMESTAMP", "2024-05-06", `"2024-05-06T00:00:00Z"`},
		{"TIMESTAMP_NTZ", "2024-05-06T07:08:09.000001", `"2024-05-06T07:08:09.000001"`},
		{"DOUBLE", "1.0E10", `1e+10`},
		{"FLOAT", "Infinity", `"Infinity"`},
		{"DECIMAL(10,2)", "5", `"5.00"`},
		{"DECIMAL(10,2)", "-.5", `"-0.50"`},
		{"DECIMAL(10,2)", "1.5000", `"1.50"`},
		{"INT", "", `null`},
	} {
		schema := testColumns(t, "p "+c.sql, "x INT")
		table, snap := memoryTable(t, schema, "p")
		adds, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{batch(t, schema, `{"p":null,"x":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		adds[0].PartitionValues = map[string]*string{"p": &c.text}
		if got := readJSON(t, table, snap, adds, []string{"p"}); got[0] != `{"p":`+c.want+`}` {
			t.Errorf("%s %q: %s", c.sql, c.text, got)
		}
	}
	for sql, text := range map[string]string{
		"INT": "1.5", "BIGINT": "9223372036854775808", "TINYINT": "128", "BOOLEAN": "yes", "DATE": "2024-13-01", "TIMESTAMP": "yesterday",
		"DECIMAL(3,1)": "100.0", "DECIMAL(4,1)": "1.55", "DOUBLE": "x", "DECIMAL(4,2)": "1-2",
	} {
		schema := testColumns(t, "p "+sql, "x INT")
		table, snap := memoryTable(t, schema, "p")
		adds, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{batch(t, schema, `{"p":null,"x":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range table.ReadFile(context.Background(), snap, DataFile{Path: adds[0].Path, PartitionValues: map[string]*string{"p": &text}}, nil) {
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "column p") || !strings.Contains(err.Error(), text) {
				t.Errorf("%s %q: %v", sql, text, err)
			}
		}
	}
}

func TestBinaryPartitionsAreText(t *testing.T) {
	t.Parallel()
	schema := testColumns(t, "p BINARY", "x INT")
	table, snap := memoryTable(t, schema, "p")
	_, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{batch(t, schema, `{"p":"/w==","x":1}`)})
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "column p") {
		t.Errorf("got %v", err)
	}
}

// TestRowsArePartedByPartition: one file a combination of values, however the rows are mixed.
func TestRowsArePartedByPartition(t *testing.T) {
	t.Parallel()
	schema := testColumns(t, "a STRING", "n INT", "d DATE")
	table, snap := memoryTable(t, schema, "d", "a")
	mixed := batch(t, schema, `{"a":"x","n":1,"d":"2024-01-01"}`, `{"a":"x","n":2,"d":"2024-01-01"}`, `{"a":"y","n":3,"d":"2024-01-01"}`,
		`{"a":"x","n":4,"d":"2024-01-01"}`, `{"a":null,"n":5,"d":null}`, `{"a":"x","n":6,"d":"2024-01-02"}`, `{"a":null,"n":7,"d":null}`)
	adds, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{mixed, mixed.NewSlice(2, 4), mixed.NewSlice(3, 3)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, add := range adds {
		dir, _, _ := strings.Cut(add.Path, "/part-")
		rows := readJSON(t, table, snap, []Add{add}, []string{"n"})
		var stats Stats
		if err := json.Unmarshal([]byte(add.Stats), &stats); err != nil || *stats.NumRecords != int64(len(rows)) || stats.MinValues["a"] != nil {
			t.Errorf("%s: statistics %s", dir, add.Stats)
		}
		got = append(got, dir+": "+strings.Join(rows, ""))
	}
	want := []string{
		`d=2024-01-01/a=x: {"n":1}{"n":2}{"n":4}{"n":4}`, `d=2024-01-01/a=y: {"n":3}{"n":3}`,
		`d=__HIVE_DEFAULT_PARTITION__/a=__HIVE_DEFAULT_PARTITION__: {"n":5}{"n":7}`, `d=2024-01-02/a=x: {"n":6}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestPartitionKeysNeverCollide(t *testing.T) {
	t.Parallel()
	seen := map[string][]*string{}
	var values []*string
	for _, s := range []string{"", "a", "b", "-", "=", "1=a", "a\x00=b", "a-", "-1=a", "\x00"} {
		values = append(values, &s)
	}
	values = append(values, nil)
	for _, a := range values {
		for _, b := range values {
			key := partitionKey([]string{"a", "b"}, func(c string) *string { return map[string]*string{"a": a, "b": b}[c] })
			if other, taken := seen[key]; taken {
				t.Errorf("%v and %v share key %q", other, []*string{a, b}, key)
			}
			seen[key] = []*string{a, b}
		}
	}
}

func TestDataName(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "with blank")
	st, err := store.NewLocal(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSuffix(st.URL(""), "/")
	for path, want := range map[string]string{
		"part-1.parquet": "part-1.parquet", "p=A%252FA/x.parquet": "p=A%2FA/x.parquet", "p=a+b/x": "p=a+b/x", "p=a:/x": "p=a:/x", "./x": "x",
		root + "/p=1/x.parquet": "p=1/x.parquet", strings.Replace(root, "file://", "file:", 1) + "/y%2520z": "y%20z",
	} {
		if got, err := DataName(st, path); err != nil || got != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

func TestParsePartitionTimeIsUTC(t *testing.T) {
	t.Parallel()
	at, err := parsePartitionTime("2024-01-01 00:00:00")
	if err != nil || !at.Equal(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%v, %v", at, err)
	}
}
