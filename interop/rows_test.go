package interop

import (
	"encoding/base64"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// column is a column of the test table: its definition, what a row holds in it as Zerobus JSON has it (zerobus.md 8.4) and as
// our canonical JSON has it. The two differ for times only.
type column struct {
	name, definition string
	proto            string // its field in a hand-written proto2 message
	value            func(i int) (wire, canonical string)
}

// same is a value that is written alike on the wire and in canonical JSON.
func same(f func(i int) string) func(int) (string, string) {
	return func(i int) (string, string) { s := f(i); return s, s }
}

// micros is the moment of row i: all over the centuries that every peer can hold, before 1970 too.
func micros(i int) int64 {
	switch i % 8 {
	case 0:
		return -62135596800000000 + int64(i) // year 1
	case 1:
		return 253402300799999999 - int64(i)*1e6 // end of year 9999
	case 2:
		return -1 - int64(i)
	case 3:
		return int64(i) * 1e6
	}
	return 1_790_000_000_000_000 + int64(i)*1_234_567
}

func isoTime(us int64, zone string) string {
	return `"` + time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.999999") + zone + `"`
}

var texts = []string{"", "plain", "žluťoučký kůň", "日本語 🦆", `quotes " and \ and /`, "line\nbreak\ttab", "\u0000\u0001 control", "e\u0301 combining"}

func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// edge takes one of the extreme values in some rows.
func edge(i int, otherwise int64, extremes ...int64) string {
	if k := i % 11; k < len(extremes) {
		return fmt.Sprint(extremes[k])
	}
	return fmt.Sprint(otherwise)
}

var id = column{"id", "id BIGINT NOT NULL", "required int64", same(func(i int) string { return fmt.Sprint(i) })}

// generatable are the columns of every type that generate_proto knows.
var generatable = []column{
	id,
	{"flag", "flag BOOLEAN", "optional bool", same(func(i int) string { return fmt.Sprint(i%3 == 0) })},
	{"i8", "i8 TINYINT", "optional int32", same(func(i int) string { return edge(i, int64(i%100), math.MinInt8, math.MaxInt8) })},
	{"i16", "i16 SMALLINT", "optional int32", same(func(i int) string { return edge(i, int64(i%30000), math.MinInt16, math.MaxInt16) })},
	{"i32", "i32 INT", "optional int32", same(func(i int) string { return edge(i, int64(-i*7), math.MinInt32, math.MaxInt32) })},
	{"i64", "i64 BIGINT", "optional int64", same(func(i int) string { return edge(i, int64(i)<<40, math.MinInt64, math.MaxInt64) })},
	{"f32", "f32 FLOAT", "optional float", same(func(i int) string { return fmt.Sprintf("%g", float32(i)/8-100) })},
	{"f64", "f64 DOUBLE", "optional double", same(func(i int) string { return fmt.Sprintf("%.17g", math.Sqrt(float64(i))*1e100) })},
	{"text", "text STRING", "optional string", same(func(i int) string { return quote(texts[i%len(texts)] + fmt.Sprint(i)) })},
	{"bin", "bin BINARY", "optional bytes", same(func(i int) string {
		return `"` + base64.StdEncoding.EncodeToString([]byte{0, 0xff, byte(i), byte(i >> 8)}[:i%5]) + `"`
	})},
	{"day", "day DATE", "optional int32", func(i int) (string, string) {
		d := (micros(i) - ((micros(i)%86_400_000_000)+86_400_000_000)%86_400_000_000) / 86_400_000_000
		return fmt.Sprint(d), `"` + time.Unix(d*86400, 0).UTC().Format(time.DateOnly) + `"`
	}},
	{"ts", "ts TIMESTAMP", "optional int64", func(i int) (string, string) { return fmt.Sprint(micros(i)), isoTime(micros(i), "Z") }},
	{"ntz", "ntz TIMESTAMP_NTZ", "optional int64", func(i int) (string, string) { return fmt.Sprint(micros(i + 1)), isoTime(micros(i+1), "") }},
	{"ints", "ints ARRAY<INT>", "repeated int32", same(func(i int) string { return fmt.Sprintf("[%d,%d,%d]", i, -i, i%2) })},
	{"words", "words ARRAY<STRING>", "repeated string", same(func(i int) string { return "[" + quote(texts[i%len(texts)]) + `,"b"]` })},
	{"counts", "counts MAP<STRING,BIGINT>", "map<string, int64>", same(func(i int) string { return fmt.Sprintf(`{"a":%d,"k%d":%d}`, i, i%10, int64(i)<<33) })},
	{"place", "place STRUCT<x:INT,label:STRING,inner:STRUCT<q:DOUBLE,at:TIMESTAMP>>", "optional Place", func(i int) (string, string) {
		label := quote(texts[(i+3)%len(texts)])
		f := `{"x":%d,"label":%s,"inner":{"q":%d.5,"at":%s}}`
		return fmt.Sprintf(f, i, label, i, fmt.Sprint(micros(i+2))), fmt.Sprintf(f, i, label, i, isoTime(micros(i+2), "Z"))
	}},
	{"items", "items ARRAY<STRUCT<name:STRING,n:BIGINT>>", "repeated Item", same(func(i int) string {
		return fmt.Sprintf(`[{"name":"one","n":%d},{"name":null,"n":%d}]`, i, -i)
	})},
}

// everything adds the decimals, which generate_proto does not know, so that a message for them is written by hand.
var everything = append(append([]column{}, generatable...),
	column{"price", "price DECIMAL(10,2)", "optional string", same(func(i int) string { return fmt.Sprintf(`"%d.%02d"`, i-5000, i%100) })},
	column{"big", "big DECIMAL(38,10)", "optional string", same(func(i int) string { return fmt.Sprintf(`"1234567890123456789%09d.%010d"`, i, i) })},
	column{"sums", "sums MAP<STRING,DECIMAL(20,3)>", "map<string, string>", same(func(i int) string { return fmt.Sprintf(`{"s":"%d.125"}`, i) })},
)

// protoSource is the message for columns, written as a user would by hand.
func protoSource(columns []column) string {
	var b strings.Builder
	b.WriteString("syntax = \"proto2\";\nmessage Row {\n")
	for i, c := range columns {
		fmt.Fprintf(&b, "  %s %s = %d;\n", c.proto, c.name, i+1)
	}
	b.WriteString("  message Inner { optional double q = 1; optional int64 at = 2; }\n")
	b.WriteString("  message Place { optional int32 x = 1; optional string label = 2; optional Inner inner = 3; }\n")
	b.WriteString("  message Item { optional string name = 1; optional int64 n = 2; }\n}\n")
	return b.String()
}

func definitions(columns []column) (out []string) {
	for _, c := range columns {
		out = append(out, c.definition)
	}
	return out
}

// row is row i as Zerobus JSON and as canonical JSON. Every seventh row has a null in one nullable column that is neither a
// list nor a map, which protobuf cannot leave out.
func row(columns []column, i int) (wire, canonical string) {
	null := -1
	if k := 1 + i/7%(len(columns)-1); i%7 == 6 && !strings.Contains(columns[k].proto, "repeated") && !strings.Contains(columns[k].proto, "map") {
		null = k
	}
	var w, c strings.Builder
	for k, col := range columns {
		sep := ","
		if k == 0 {
			sep = "{"
		}
		wv, cv := col.value(i)
		if k == null {
			wv, cv = "null", "null"
		}
		fmt.Fprintf(&w, "%s%q:%s", sep, col.name, wv)
		fmt.Fprintf(&c, "%s%q:%s", sep, col.name, cv)
	}
	return w.String() + "}", c.String() + "}"
}

// writeRows writes rows [from, to) as JSON lines for a peer to send, and returns what the table must then hold.
func writeRows(t *testing.T, columns []column, from, to int) (path string, expected []string) {
	t.Helper()
	var b strings.Builder
	for i := from; i < to; i++ {
		w, c := row(columns, i)
		b.WriteString(w)
		b.WriteByte('\n')
		expected = append(expected, c)
	}
	path = filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, expected
}
