package deltalog

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/deprecated"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// writeForeign writes rows (one value a leaf column, with levels) as other writers would.
func writeForeign(tb testing.TB, node parquet.Node, rows []parquet.Row, opts ...parquet.WriterOption) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := parquet.NewGenericWriter[any](&out, append(opts, parquet.NewSchema("spark_schema", node))...)
	if _, err := w.WriteRows(rows); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func putFile(tb testing.TB, t *Table, name string, data []byte) Add {
	tb.Helper()
	if err := t.Store().Put(context.Background(), name, data, store.PutOptions{}); err != nil {
		tb.Fatal(err)
	}
	return Add{Path: encodePath(name), Size: int64(len(data))}
}

// TestReadsOneColumnOfOthers: every physical form that a type is found in.
func TestReadsOneColumnOfOthers(t *testing.T) {
	t.Parallel()
	big := func(n int64, size int) []byte { // big-endian two's complement
		b := make([]byte, 8)
		binary.BigEndian.PutUint64(b, uint64(n))
		for len(b) < size {
			b = append([]byte{byte(n >> 63)}, b...)
		}
		return b[len(b)-size:]
	}
	int96 := func(day uint32, nanos uint64) parquet.Value {
		return parquet.Int96Value(deprecated.Int96{uint32(nanos), uint32(nanos >> 32), day})
	}
	flba := parquet.FixedLenByteArrayValue
	for name, c := range map[string]struct {
		sql    string
		node   parquet.Node
		values []parquet.Value
		want   string
	}{
		"int96":               {"TIMESTAMP", parquet.Leaf(parquet.Int96Type), []parquet.Value{int96(2440588, 0), int96(2440587, 86_399_999_999_999), int96(2460311, 3_723_004_005_999)}, `"1970-01-01T00:00:00Z" "1969-12-31T23:59:59.999999Z" "2024-01-01T01:02:03.004005Z"`},
		"int96 without zone":  {"TIMESTAMP_NTZ", parquet.Leaf(parquet.Int96Type), []parquet.Value{int96(2440588, 1000)}, `"1970-01-01T00:00:00.000001"`},
		"milliseconds":        {"TIMESTAMP", parquet.TimestampAdjusted(parquet.Millisecond, true), []parquet.Value{parquet.Int64Value(-1)}, `"1969-12-31T23:59:59.999Z"`},
		"nanoseconds":         {"TIMESTAMP", parquet.TimestampAdjusted(parquet.Nanosecond, true), []parquet.Value{parquet.Int64Value(-1), parquet.Int64Value(1999)}, `"1969-12-31T23:59:59.999999Z" "1970-01-01T00:00:00.000001Z"`},
		"plain int64 time":    {"TIMESTAMP", parquet.Leaf(parquet.Int64Type), []parquet.Value{parquet.Int64Value(1_500_000)}, `"1970-01-01T00:00:01.5Z"`},
		"decimal in int32":    {"DECIMAL(20,3)", parquet.Decimal(2, 9, parquet.Int32Type), []parquet.Value{parquet.Int32Value(-12345)}, `"-123.450"`},
		"decimal in int64":    {"DECIMAL(10,2)", parquet.Decimal(2, 10, parquet.Int64Type), []parquet.Value{parquet.Int64Value(-1)}, `"-0.01"`},
		"decimal in flba":     {"DECIMAL(9,2)", parquet.Decimal(2, 9, parquet.FixedLenByteArrayType(4)), []parquet.Value{flba(big(-12345, 4))}, `"-123.45"`},
		"decimal in flba16":   {"DECIMAL(38,2)", parquet.Decimal(2, 38, parquet.FixedLenByteArrayType(16)), []parquet.Value{flba(big(12345, 16)), flba(big(-12345, 16))}, `"123.45" "-123.45"`},
		"decimal in flba20":   {"DECIMAL(38,2)", parquet.Decimal(2, 38, parquet.FixedLenByteArrayType(20)), []parquet.Value{flba(big(-12345, 20))}, `"-123.45"`},
		"decimal in bytes":    {"DECIMAL(9,2)", parquet.Decimal(2, 9, parquet.ByteArrayType), []parquet.Value{parquet.ByteArrayValue(big(-12345, 3)), parquet.ByteArrayValue(nil)}, `"-123.45" "0.00"`},
		"string without type": {"STRING", parquet.Leaf(parquet.ByteArrayType), []parquet.Value{parquet.ByteArrayValue([]byte("ä"))}, `"ä"`},
		"string in flba":      {"STRING", parquet.Leaf(parquet.FixedLenByteArrayType(2)), []parquet.Value{flba([]byte("ab"))}, `"ab"`},
		"binary in flba":      {"BINARY", parquet.Leaf(parquet.FixedLenByteArrayType(2)), []parquet.Value{flba([]byte{0, 255})}, `"AP8="`},
		"byte without type":   {"TINYINT", parquet.Leaf(parquet.Int32Type), []parquet.Value{parquet.Int32Value(-128)}, `-128`},
		"widened int":         {"BIGINT", parquet.Leaf(parquet.Int32Type), []parquet.Value{parquet.Int32Value(-5)}, `-5`},
		"int as double":       {"DOUBLE", parquet.Leaf(parquet.Int32Type), []parquet.Value{parquet.Int32Value(-5)}, `-5`},
		"int as decimal":      {"DECIMAL(12,2)", parquet.Leaf(parquet.Int32Type), []parquet.Value{parquet.Int32Value(-5)}, `"-5.00"`},
		"date as time":        {"TIMESTAMP_NTZ", parquet.Date(), []parquet.Value{parquet.Int32Value(-1), parquet.Int32Value(19723)}, `"1969-12-31T00:00:00" "2024-01-01T00:00:00"`},
		"padded text":         {"CHAR(3)", parquet.String(), []parquet.Value{parquet.ByteArrayValue([]byte("ä")), parquet.ByteArrayValue([]byte("long"))}, `"ä  " "long"`},
		"text that may vary":  {"VARCHAR(3)", parquet.String(), []parquet.Value{parquet.ByteArrayValue([]byte("a"))}, `"a"`},
		"widened float":       {"DOUBLE", parquet.Leaf(parquet.FloatType), []parquet.Value{parquet.FloatValue(0.5)}, `0.5`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := testColumns(t, "c "+c.sql)
			table, snap := memoryTable(t, schema)
			for form, node := range map[string]parquet.Node{"required": c.node, "optional": parquet.Optional(c.node), "dictionary": parquet.Optional(parquet.Encoded(c.node, &parquet.RLEDictionary))} {
				def := 1
				if form == "required" {
					def = 0
				}
				var written []parquet.Row
				for _, v := range c.values {
					written = append(written, parquet.Row{v.Level(0, def, 0)})
				}
				add := putFile(t, table, form+".parquet", writeForeign(t, parquet.Group{"c": node}, written))
				var got []string
				for _, row := range readJSON(t, table, snap, []Add{add}, nil) {
					got = append(got, strings.TrimSuffix(strings.TrimPrefix(row, `{"c":`), "}"))
				}
				if strings.Join(got, " ") != c.want {
					t.Errorf("%s: got %s, want %s", form, got, c.want)
				}
			}
		})
	}
}

// TestReadsCodecsAndPages: whatever codec, page version, page size and encoding.
func TestReadsCodecsAndPages(t *testing.T) {
	t.Parallel()
	schema := testColumns(t, "n BIGINT", "s STRING")
	const count = 20_000
	var written []parquet.Row
	for i := range count {
		s := parquet.ByteArrayValue([]byte(fmt.Sprintf("text %d", i%100))).Level(0, 1, 1)
		if i%7 == 0 {
			s = parquet.NullValue().Level(0, 0, 1)
		}
		written = append(written, parquet.Row{parquet.Int64Value(int64(i)).Level(0, 1, 0), s})
	}
	table, snap := memoryTable(t, schema)
	for name, codec := range map[string]compress.Codec{"none": &parquet.Uncompressed, "snappy": &parquet.Snappy, "gzip": &parquet.Gzip, "zstd": &parquet.Zstd, "lz4": &parquet.Lz4Raw, "brotli": &parquet.Brotli} {
		for version := 1; version <= 2; version++ {
			for _, dictionary := range []bool{false, true} {
				text := parquet.String()
				if dictionary {
					text = parquet.Encoded(text, &parquet.RLEDictionary)
				}
				node := parquet.Group{"n": parquet.Optional(parquet.Encoded(parquet.Leaf(parquet.Int64Type), &parquet.DeltaBinaryPacked)), "s": parquet.Optional(text)}
				data := writeForeign(t, node, written, parquet.Compression(codec), parquet.DataPageVersion(version), parquet.PageBufferSize(4096), parquet.MaxRowsPerRowGroup(9000))
				add := putFile(t, table, fmt.Sprintf("%s-%d-%v.parquet", name, version, dictionary), data)
				got := readJSON(t, table, snap, []Add{add}, nil)
				if len(got) != count {
					t.Fatalf("%s: %d rows", add.Path, len(got))
				}
				for i, row := range got {
					want := fmt.Sprintf(`{"n":%d,"s":"text %d"}`, i, i%100)
					if i%7 == 0 {
						want = fmt.Sprintf(`{"n":%d,"s":null}`, i)
					}
					if row != want {
						t.Fatalf("%s: row %d is %s", add.Path, i, row)
					}
				}
			}
		}
	}
}

// TestReadsLegacyLists: lists of two levels, as writers before the standard left them, and maps whose entries have another name.
func TestReadsLegacyLists(t *testing.T) {
	t.Parallel()
	schema := testColumns(t, "a ARRAY<INT>", "s ARRAY<STRUCT<x: INT>>", "r ARRAY<INT>", "m MAP<STRING,INT>")
	number := parquet.Leaf(parquet.Int32Type)
	two := parquet.Optional(parquet.Group{"array": parquet.Repeated(number)})
	tuple := parquet.Optional(parquet.Group{"s_tuple": parquet.Repeated(parquet.Group{"x": parquet.Optional(number)})})
	entries := parquet.Optional(parquet.Group{"entries": parquet.Repeated(parquet.Group{"k": parquet.String(), "v": parquet.Optional(number)})})
	node := parquet.Group{"a": two, "m": entries, "r": parquet.Repeated(number), "s": tuple} // columns a, m.k, m.v, r, s.x
	null := parquet.NullValue()
	n := func(i int32) parquet.Value { return parquet.Int32Value(i) }
	text := func(s string) parquet.Value { return parquet.ByteArrayValue([]byte(s)) }
	data := writeForeign(t, node, []parquet.Row{
		{
			n(1).Level(0, 2, 0), n(2).Level(1, 2, 0), text("k").Level(0, 2, 1), text("l").Level(1, 2, 1), n(5).Level(0, 3, 2), null.Level(1, 2, 2),
			n(7).Level(0, 1, 3), n(8).Level(1, 1, 3), n(3).Level(0, 3, 4), null.Level(1, 2, 4),
		},
		{null.Level(0, 1, 0), null.Level(0, 1, 1), null.Level(0, 1, 2), null.Level(0, 0, 3), null.Level(0, 1, 4)},
		{null.Level(0, 0, 0), null.Level(0, 0, 1), null.Level(0, 0, 2), n(9).Level(0, 1, 3), null.Level(0, 0, 4)},
	})
	table, snap := memoryTable(t, schema)
	got := readJSON(t, table, snap, []Add{putFile(t, table, "legacy.parquet", data)}, nil)
	want := []string{
		`{"a":[1,2],"s":[{"x":3},{"x":null}],"r":[7,8],"m":{"k":5,"l":null}}`,
		`{"a":[],"s":[],"r":[],"m":{}}`,
		`{"a":null,"s":null,"r":[9],"m":null}`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestRefusesOtherLayouts(t *testing.T) {
	t.Parallel()
	number := parquet.Optional(parquet.Leaf(parquet.Int32Type))
	for name, c := range map[string]struct {
		sql  string
		node parquet.Node
		want error
	}{
		"text for a number":     {"BIGINT", parquet.Optional(parquet.String()), ErrUnsupported},
		"a group for a number":  {"BIGINT", parquet.Optional(parquet.Group{"x": number}), ErrCorrupt},
		"a number for a struct": {"STRUCT<x: INT>", number, ErrCorrupt},
		"a number for a list":   {"ARRAY<INT>", number, ErrUnsupported},
		"a struct for a map":    {"MAP<STRING,INT>", parquet.Optional(parquet.Group{"a": parquet.Group{"x": number, "y": number}}), ErrUnsupported},
		"a larger scale":        {"DECIMAL(9,1)", parquet.Optional(parquet.Decimal(2, 9, parquet.Int32Type)), ErrUnsupported},
		"a date as a float":     {"DATE", parquet.Optional(parquet.Leaf(parquet.FloatType)), ErrUnsupported},
		"a boolean as a number": {"BOOLEAN", number, ErrUnsupported},
	} {
		schema := testColumns(t, "c "+c.sql)
		table, snap := memoryTable(t, schema)
		leaves := 0
		var count func(parquet.Node)
		count = func(n parquet.Node) {
			if n.Leaf() {
				leaves++
				return
			}
			for _, f := range n.Fields() {
				count(f)
			}
		}
		count(c.node)
		row := make(parquet.Row, leaves)
		for i := range row {
			row[i] = parquet.NullValue().Level(0, 0, i)
		}
		add := putFile(t, table, "x.parquet", writeForeign(t, parquet.Group{"c": c.node}, []parquet.Row{row}))
		for _, err := range table.ReadFile(context.Background(), snap, DataFile{Path: add.Path}, nil) {
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), "column c") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// wholeFile is a small file with every kind of column, of two row groups.
func wholeFile(tb testing.TB) (Struct, []byte) {
	schema := testColumns(tb, "id BIGINT", "s STRING", "d DECIMAL(30,2)", "l ARRAY<STRUCT<x: INT, y: MAP<STRING,DATE>>>", "b BOOLEAN")
	table, snap := memoryTable(tb, schema)
	line := `{"id":1,"s":"text","d":"12.34","l":[{"x":5,"y":[{"key":"k","value":"2024-01-01"}]},null],"b":true}`
	adds, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{batch(tb, schema, line, line, `{"id":null,"s":null,"d":null,"l":null,"b":null}`)})
	if err != nil {
		tb.Fatal(err)
	}
	data, err := table.Store().Get(context.Background(), adds[0].Path)
	if err != nil {
		tb.Fatal(err)
	}
	return schema, data
}

// readDamaged reads a file that may be broken in any way: rows or an error, and the error says that the table is corrupt.
func readDamaged(tb testing.TB, table *Table, snap *Snapshot, data []byte) {
	tb.Helper()
	add := putFile(tb, table, "damaged.parquet", data)
	for rec, err := range table.ReadFile(context.Background(), snap, DataFile{Path: add.Path}, nil) {
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				tb.Fatalf("error of another kind: %v", err)
			}
			return
		}
		for i := range int(rec.NumRows()) {
			if _, err := AppendRowJSON(nil, rec, i); err != nil {
				tb.Fatal(err)
			}
		}
	}
}

// TestDamagedFiles changes every byte of a file, and cuts it everywhere.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	schema, data := wholeFile(t)
	table, snap := memoryTable(t, schema)
	for i := range data {
		readDamaged(t, table, snap, data[:i])
		for _, x := range []byte{0x01, 0x80, 0xff} {
			damaged := bytes.Clone(data)
			damaged[i] ^= x
			readDamaged(t, table, snap, damaged)
		}
	}
}

func FuzzReadFile(f *testing.F) {
	schema, data := wholeFile(f)
	f.Add(data)
	f.Add(data[:len(data)/2])
	table, snap := memoryTable(f, schema)
	f.Fuzz(func(t *testing.T, data []byte) { readDamaged(t, table, snap, data) })
}

func TestReadFileMissing(t *testing.T) {
	t.Parallel()
	table, snap := memoryTable(t, testColumns(t, "a INT"))
	for path, want := range map[string]error{
		"gone.parquet": store.ErrNotExist, "../out.parquet": ErrCorrupt, "a%2F..%2F..%2Fb": ErrCorrupt, "%zz": ErrCorrupt, "": ErrCorrupt,
		"s3://bucket/table/a.parquet": ErrUnsupported, "/elsewhere/a.parquet": ErrUnsupported,
	} {
		n := 0
		for _, err := range table.ReadFile(context.Background(), snap, DataFile{Path: path}, nil) {
			if n++; !errors.Is(err, want) {
				t.Errorf("%q: %v", path, err)
			}
		}
		if n != 1 {
			t.Errorf("%q: %d answers", path, n)
		}
	}
}

// TestConsumersPanicIsTheirs: the recovery that is meant for broken files does not swallow a panic of the code that reads.
func TestConsumersPanicIsTheirs(t *testing.T) {
	t.Parallel()
	schema, data := wholeFile(t)
	table, snap := memoryTable(t, schema)
	add := putFile(t, table, "x.parquet", data)
	defer func() {
		if r := recover(); r != "mine" {
			t.Errorf("recovered %v", r)
		}
	}()
	for _, err := range table.ReadFile(context.Background(), snap, DataFile{Path: add.Path}, nil) {
		if err != nil {
			t.Error(err)
		}
		panic("mine")
	}
}

// TestScanStops: a scan ends when its context does, or when nobody wants more.
func TestScanStops(t *testing.T) {
	t.Parallel()
	schema, data := wholeFile(t)
	table, snap := memoryTable(t, schema)
	add := putFile(t, table, "x.parquet", data)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range table.ReadFile(ctx, snap, DataFile{Path: add.Path}, nil) {
		if !errors.Is(err, context.Canceled) || errors.Is(err, ErrCorrupt) {
			t.Errorf("cancelled: %v", err)
		}
	}
	for _, err := range table.ReadFile(context.Background(), snap, DataFile{Path: add.Path}, nil) {
		if err != nil {
			t.Error(err)
		}
		break
	}
}
