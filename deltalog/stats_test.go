package deltalog

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// statsOf writes rows and returns the statistics of their file.
func statsOf(tb testing.TB, schema Struct, config map[string]string, batches ...arrow.RecordBatch) string {
	tb.Helper()
	table, snap := memoryTable(tb, schema)
	meta := *snap.metadata
	meta.Configuration = config
	s := *snap
	s.metadata = &meta
	adds, err := table.WriteFiles(context.Background(), &s, batches)
	if err != nil {
		tb.Fatal(err)
	}
	if !json.Valid([]byte(adds[0].Stats)) {
		tb.Fatalf("not JSON: %s", adds[0].Stats)
	}
	return adds[0].Stats
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		columns string
		rows    []string
		want    string // what follows numRecords
	}{
		"integers are exact": {"a BIGINT; b INT; c SMALLINT; d TINYINT", []string{
			`{"a":9223372036854775807,"b":-2147483648,"c":7,"d":-128}`, `{"a":-9223372036854775808,"b":5,"c":null,"d":127}`,
		}, `"minValues":{"a":-9223372036854775808,"b":-2147483648,"c":7,"d":-128},"maxValues":{"a":9223372036854775807,"b":5,"c":7,"d":127},"nullCount":{"a":0,"b":0,"c":1,"d":0}`},
		"decimals are exact": {"d DECIMAL(38,2); e DECIMAL(4,4)", []string{
			`{"d":"123456789012345678901234567890123456.78","e":"0.0001"}`, `{"d":"-0.10","e":"-0.5"}`,
		}, `"minValues":{"d":-0.10,"e":-0.5000},"maxValues":{"d":123456789012345678901234567890123456.78,"e":0.0001},"nullCount":{"d":0,"e":0}`},
		"times: least down, greatest up to the millisecond": {"t TIMESTAMP; n TIMESTAMP_NTZ; d DATE", []string{
			`{"t":"2024-01-01T12:00:00.123456Z","n":"2024-01-01T12:00:00.123456","d":"2024-02-29"}`, `{"t":"1969-12-31T23:59:59.999001Z","n":"1969-12-31T23:59:59.999001","d":"1583-01-01"}`,
		}, `"minValues":{"t":"1969-12-31T23:59:59.999Z","n":"1969-12-31T23:59:59.999","d":"1583-01-01"},"maxValues":{"t":"2024-01-01T12:00:00.124Z","n":"2024-01-01T12:00:00.124","d":"2024-02-29"},"nullCount":{"t":0,"n":0,"d":0}`},
		"whole milliseconds stay":            {"t TIMESTAMP", []string{`{"t":"2024-01-01T12:00:00.123Z"}`}, `"minValues":{"t":"2024-01-01T12:00:00.123Z"},"maxValues":{"t":"2024-01-01T12:00:00.123Z"},"nullCount":{"t":0}`},
		"years that readers see differently": {"t TIMESTAMP; d DATE", []string{`{"t":"9999-12-31T23:59:59.9999Z","d":"1582-10-04"}`, `{"t":"0001-01-01T00:00:00Z","d":"9999-12-31"}`}, `"minValues":{},"maxValues":{"d":"9999-12-31"},"nullCount":{"t":0,"d":0}`},
		"types without order":                {"b BOOLEAN; x BINARY; l ARRAY<INT>; m MAP<STRING,INT>", []string{`{"b":true,"x":"AAA=","l":[null,1],"m":[]}`, `{}`}, `"minValues":{},"maxValues":{},"nullCount":{"b":1,"x":1,"l":1,"m":1}`},
		"nulls only":                         {"a BIGINT; s STRING; t TIMESTAMP; f DOUBLE; d DECIMAL(3,1)", []string{`{}`, `{}`}, `"minValues":{},"maxValues":{},"nullCount":{"a":2,"s":2,"t":2,"f":2,"d":2}`},
		"structs mirror the schema":          {"s STRUCT<a: INT, t: STRUCT<b: STRING, l: ARRAY<INT>>>", []string{`{"s":{"a":1,"t":{"b":"x","l":[1]}}}`, `{"s":{"a":null,"t":null}}`, `{"s":null}`}, `"minValues":{"s":{"a":1,"t":{"b":"x"}}},"maxValues":{"s":{"a":1,"t":{"b":"x"}}},"nullCount":{"s":{"a":2,"t":{"b":2,"l":2}}}`},
		"names that JSON quotes":             {"`a\"b\\<` INT", []string{`{"a\"b\\<":1}`}, `"minValues":{"a\"b\\<":1},"maxValues":{"a\"b\\<":1},"nullCount":{"a\"b\\<":0}`},
	} {
		var defs []string
		for _, d := range strings.Split(c.columns, ";") {
			defs = append(defs, strings.TrimSpace(d))
		}
		schema := testColumns(t, defs...)
		want := fmt.Sprintf(`{"numRecords":%d,%s}`, len(c.rows), c.want)
		if got := statsOf(t, schema, nil, batch(t, schema, c.rows...)); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
		// The same rows in batches of one.
		var single []arrow.RecordBatch
		for _, r := range c.rows {
			single = append(single, batch(t, schema, r))
		}
		if got := statsOf(t, schema, nil, single...); got != want {
			t.Errorf("%s, in batches of one:\ngot  %s\nwant %s", name, got, want)
		}
	}
}

func TestStatisticsOfFloats(t *testing.T) {
	t.Parallel()
	schema := testColumns(t, "f FLOAT", "d DOUBLE")
	as, err := ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	inf, nan, negZero := math.Inf(1), math.NaN(), math.Copysign(0, -1)
	for _, c := range []struct {
		values []float64
		want   string // of both columns: bounds of f, which d has too
	}{
		{[]float64{0.5, -2}, `-2 0.5`},
		{[]float64{1, nan, 2}, ` `},
		{[]float64{nan}, ` `},
		{[]float64{-inf, 3}, ` 3`},
		{[]float64{inf, 3}, `3 `},
		{[]float64{0, 1}, `-0.0 1`},
		{[]float64{negZero, -1}, `-1 0.0`},
	} {
		b := array.NewRecordBuilder(memory.DefaultAllocator, as)
		for _, v := range c.values {
			b.Field(0).(*array.Float32Builder).Append(float32(v))
			b.Field(1).(*array.Float64Builder).Append(v)
		}
		stats, err := ParseStats(statsOf(t, schema, nil, b.NewRecordBatch()))
		if err != nil {
			t.Fatal(err)
		}
		for _, column := range []string{"f", "d"} {
			if got := string(stats.MinValues[column]) + " " + string(stats.MaxValues[column]); got != c.want {
				t.Errorf("%v: %s has %q, want %q", c.values, column, got, c.want)
			}
		}
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, as)
	b.Field(0).(*array.Float32Builder).Append(0.1)
	b.Field(1).(*array.Float64Builder).Append(0.1)
	if got := statsOf(t, schema, nil, b.NewRecordBatch()); !strings.Contains(got, `"minValues":{"f":0.1,"d":0.1}`) {
		t.Errorf("shortest text of a float: %s", got)
	}
}

// TestStatisticsOfStrings: 32 characters in UTF-16 units are kept, none is cut, and the bounds hold.
func TestStatisticsOfStrings(t *testing.T) {
	t.Parallel()
	x := strings.Repeat("x", 31)
	schema := testColumns(t, "s STRING")
	for _, c := range []struct{ value, low, high string }{
		{x + "a", x + "a", x + "a"},
		{x + "ab", x + "a", x + "a\x7f"},
		{x + "aé", x + "a", x + "a\U0010ffff"},
		{x + "a\x7f", x + "a", x + "a\U0010ffff"},
		{x + "😀", x, x + "\U0010ffff"}, // 33 units: the emoji would be cut
		{x + "a\U0010ffff", x + "a", ""},
		{strings.Repeat("é", 40), strings.Repeat("é", 32), strings.Repeat("é", 32) + "\U0010ffff"},
		{strings.Repeat("😀", 16), strings.Repeat("😀", 16), strings.Repeat("😀", 16)},
		{"", "", ""},
		{"a\"\\\n", "a\"\\\n", "a\"\\\n"},
	} {
		b, err := json.Marshal(map[string]string{"s": c.value})
		if err != nil {
			t.Fatal(err)
		}
		stats, err := ParseStats(statsOf(t, schema, nil, batch(t, schema, string(b))))
		if err != nil {
			t.Fatal(err)
		}
		low, high := "", ""
		for raw, to := range map[*json.RawMessage]*string{ptr(stats.MinValues["s"]): &low, ptr(stats.MaxValues["s"]): &high} {
			if len(*raw) > 0 && json.Unmarshal(*raw, to) != nil {
				t.Fatalf("%s", *raw)
			}
		}
		if low != c.low || high != c.high {
			t.Errorf("%q: %q to %q", c.value, low, high)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func FuzzStringBounds(f *testing.F) {
	f.Add("abc", strings.Repeat("x", 40))
	f.Add(strings.Repeat("😀", 20), strings.Repeat("é", 31)+"\U0010ffff\U0010ffff")
	f.Fuzz(func(t *testing.T, a, b string) {
		builder := array.NewStringBuilder(memory.DefaultAllocator)
		builder.AppendStringValues([]string{a, b}, nil)
		low, high := stringBounds([]span{{builder.NewArray(), 0, 2}})
		for raw, isLow := range map[*[]byte]bool{&low: true, &high: false} {
			if *raw == nil {
				continue
			}
			var bound string
			if err := json.Unmarshal(*raw, &bound); err != nil || !utf8.ValidString(bound) {
				t.Fatalf("%q: %v", *raw, err)
			}
			if isLow && bound > min(a, b) || !isLow && bound < max(a, b) {
				t.Fatalf("%q and %q: bound %q", a, b, bound)
			}
			if n := len(utf16.Encode([]rune(bound))); n > maxStatsString+2 {
				t.Fatalf("a bound of %d units", n)
			}
		}
	})
}

// TestStatisticsOfTheFirstColumns: 32 leaf columns, or as many as the table says.
func TestStatisticsOfTheFirstColumns(t *testing.T) {
	t.Parallel()
	defs := []string{"s STRUCT<a: INT, b: INT>"}
	row := `{"s":{"a":1,"b":2}`
	for i := range 40 {
		defs = append(defs, fmt.Sprintf("c%d INT", i))
		row += fmt.Sprintf(`,"c%d":%d`, i, i)
	}
	schema := testColumns(t, defs...)
	for setting, want := range map[string]int{"": 31, "-1": 41, "0": 0, "1": 1, "2": 1, "3": 2, "nonsense": 31} {
		config := map[string]string{propIndexedCols: setting}
		stats, err := ParseStats(statsOf(t, schema, config, batch(t, schema, row+"}")))
		if err != nil {
			t.Fatal(err)
		}
		if len(stats.NullCount) != want || len(stats.MinValues) != want || *stats.NumRecords != 1 {
			t.Errorf("%q: %d columns", setting, len(stats.NullCount))
		}
		if setting == "1" && string(stats.MinValues["s"]) != `{"a":1}` {
			t.Errorf("one leaf: %s", stats.MinValues["s"])
		}
	}
}

func TestParseStats(t *testing.T) {
	t.Parallel()
	if s, err := ParseStats(""); err != nil || s.NumRecords != nil {
		t.Errorf("absent: %v, %v", s, err)
	}
	if s, err := ParseStats(`{"numRecords":9007199254740993,"unknown":1}`); err != nil || *s.NumRecords != 9007199254740993 {
		t.Errorf("large: %v, %v", s, err)
	}
	if _, err := ParseStats(`{"numRecords":"x"`); err == nil {
		t.Error("broken statistics were taken")
	}
}
