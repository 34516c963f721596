package deltalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// memoryTable makes a table in memory.
func memoryTable(tb testing.TB, schema Struct, partition ...string) (*Table, *Snapshot) {
	tb.Helper()
	t, err := Create(context.Background(), store.NewMemory(), TableSpec{Schema: schema, PartitionColumns: partition}, quiet)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = t.Close() })
	return t, t.Cached()
}

// readJSON reads the rows of files, as AppendRowJSON writes them.
func readJSON(tb testing.TB, t *Table, snap *Snapshot, adds []Add, names []string) []string {
	tb.Helper()
	var out []string
	for _, add := range adds {
		for rec, err := range t.ReadFile(context.Background(), snap, add.DataFile(), names) {
			if err != nil {
				tb.Fatal(err)
			}
			for i := range int(rec.NumRows()) {
				row, err := AppendRowJSON(nil, rec, i)
				if err != nil {
					tb.Fatal(err)
				}
				out = append(out, string(row))
			}
		}
	}
	return out
}

// randomType is a type nested at most that deep.
func randomType(r *rand.Rand, depth int) DataType {
	if depth > 0 {
		switch r.IntN(6) {
		case 0:
			return Array{randomType(r, depth-1), true}
		case 1:
			return Map{[]DataType{String, Long, Date, Decimal{20, 3}}[r.IntN(4)], randomType(r, depth-1), true}
		case 2, 3:
			var s Struct
			for i := range 1 + r.IntN(3) {
				s.Fields = append(s.Fields, Field{Name: fmt.Sprintf("z%d", 9-i), Type: randomType(r, depth-1), Nullable: true})
			}
			return s
		}
	}
	flat := []DataType{
		String, Long, Integer, Short, Byte, Float, Double, Boolean, Binary, Date, Timestamp, TimestampNTZ,
		Decimal{9, 2},
		Decimal{18, 0},
		Decimal{19, 19},
		Decimal{38, 10},
	}
	return flat[r.IntN(len(flat))]
}

// appendRandom appends a random value, often null or extreme.
func appendRandom(r *rand.Rand, b array.Builder, t DataType, nullable bool) {
	if nullable && r.IntN(4) == 0 {
		b.AppendNull()
		return
	}
	n := []int64{0, 1, -1, 127, -128, 32767, 1<<31 - 1, -1 << 31, 1<<53 + 1, 1<<63 - 1, -1 << 63}[r.IntN(11)]
	if r.IntN(2) == 0 {
		n = int64(r.Uint64())
	}
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(strings.Repeat([]string{"", "x", "ä😀", "\x00"}[r.IntN(4)], r.IntN(40)))
	case *array.BinaryBuilder:
		b.Append([]byte{byte(n), 0xff}[:r.IntN(3)])
	case *array.Int64Builder:
		b.Append(n)
	case *array.Int32Builder:
		b.Append(int32(n))
	case *array.Int16Builder:
		b.Append(int16(n))
	case *array.Int8Builder:
		b.Append(int8(n))
	case *array.Float32Builder:
		b.Append(float32(n) / 3)
	case *array.Float64Builder:
		b.Append(float64(n) / 3)
	case *array.BooleanBuilder:
		b.Append(n%2 == 0)
	case *array.Date32Builder:
		b.Append(arrow.Date32(n % 1_000_000))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(n))
	case *array.Decimal128Builder:
		d := t.(Decimal)
		limit := decimal128.GetScaleMultiplier(d.Precision).Sub(decimal128.FromI64(1)) // all nines
		b.Append([]decimal128.Num{limit, limit.Negate(), decimal128.FromI64(n % 100_000_000), decimal128.FromI64(0)}[r.IntN(4)])
	case *array.StructBuilder:
		b.Append(true)
		for i, f := range t.(Struct).Fields {
			appendRandom(r, b.FieldBuilder(i), f.Type, f.Nullable)
		}
	case *array.ListBuilder:
		b.Append(true)
		for range r.IntN(4) {
			appendRandom(r, b.ValueBuilder(), t.(Array).Element, true)
		}
	case *array.MapBuilder:
		b.Append(true)
		for range r.IntN(4) {
			appendRandom(r, b.KeyBuilder(), t.(Map).Key, false)
			appendRandom(r, b.ItemBuilder(), t.(Map).Value, true)
		}
	}
}

// TestRoundTrip writes random rows of random schemas and reads them back, also as slices of larger batches.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 1))
		var schema Struct
		for i := range 1 + r.IntN(6) {
			schema.Fields = append(schema.Fields, Field{Name: fmt.Sprintf("c%d", 9-i), Type: randomType(r, 3), Nullable: true})
		}
		table, snap := memoryTable(t, schema)
		as, err := ArrowSchema(schema)
		if err != nil {
			t.Fatal(err)
		}
		b := array.NewRecordBuilder(memory.DefaultAllocator, as)
		n := 1 + r.IntN(1500)
		for range n {
			for i, f := range schema.Fields {
				appendRandom(r, b.Field(i), f.Type, true)
			}
		}
		whole := b.NewRecordBatch()
		cut := int64(r.IntN(n + 1))
		for _, batches := range [][]arrow.RecordBatch{{whole}, {whole.NewSlice(cut, int64(n)), whole.NewSlice(0, cut)}} {
			adds, err := table.WriteFiles(context.Background(), snap, batches)
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, schema.SQL(), err)
			}
			var at int64
			want := whole
			if len(batches) == 2 {
				if want, err = array.NewRecordBatch(as, nil, 0), error(nil); err != nil {
					t.Fatal(err)
				}
				cols := make([]arrow.Array, len(schema.Fields))
				for i := range cols {
					if cols[i], err = array.Concatenate([]arrow.Array{batches[0].Column(i), batches[1].Column(i)}, memory.DefaultAllocator); err != nil {
						t.Fatal(err)
					}
				}
				want = array.NewRecordBatch(as, cols, int64(n))
			}
			for rec, err := range table.ReadFile(context.Background(), snap, adds[0].DataFile(), nil) {
				if err != nil {
					t.Fatalf("seed %d, %s: %v", seed, schema.SQL(), err)
				}
				if part := want.NewSlice(at, at+rec.NumRows()); !array.RecordEqual(part, rec) {
					for i := range schema.Fields {
						if !array.Equal(part.Column(i), rec.Column(i)) {
							t.Fatalf("seed %d: column %s %s:\nwrote %.300v\nread  %.300v", seed, schema.Fields[i].Name, schema.Fields[i].Type.SQL(), part.Column(i), rec.Column(i))
						}
					}
				}
				at += rec.NumRows()
			}
			if at != int64(n) {
				t.Errorf("seed %d: %d rows of %d", seed, at, n)
			}
		}
	}
}

// TestColumnsBySchema: columns in the order asked for, in any case; those a file lacks are null, those the table lacks are ignored.
func TestColumnsBySchema(t *testing.T) {
	t.Parallel()
	old := testColumns(t, "a INT", "gone STRING", "s STRUCT<x: INT, y: ARRAY<INT>>", "l ARRAY<STRUCT<x: ARRAY<INT>>>")
	table, snap := memoryTable(t, old)
	adds, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{batch(t, old,
		`{"a":1,"gone":"x","s":{"x":5,"y":[1,2]},"l":[{"x":[1,2]},{"x":[]},null]}`, `{"a":2,"gone":null,"s":null,"l":[]}`,
		`{"a":null,"gone":"z","s":{"x":null,"y":null},"l":null}`)})
	if err != nil {
		t.Fatal(err)
	}
	later := *snap
	later.schema = testColumns(t, "s STRUCT<`new`: STRING, X: INT>", "A BIGINT", "added DATE", "l ARRAY<STRUCT<other: STRING>>")
	got := readJSON(t, table, &later, adds, nil)
	want := []string{
		`{"s":{"new":null,"X":5},"A":1,"added":null,"l":[{"other":null},{"other":null},null]}`,
		`{"s":null,"A":2,"added":null,"l":[]}`,
		`{"s":{"new":null,"X":null},"A":null,"added":null,"l":null}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
	if got := readJSON(t, table, &later, adds, []string{"added", "a"}); !slices.Equal(got, []string{`{"added":null,"A":1}`, `{"added":null,"A":2}`, `{"added":null,"A":null}`}) {
		t.Errorf("projected: %s", got)
	}
	if got := readJSON(t, table, &later, adds, []string{}); !slices.Equal(got, []string{"{}", "{}", "{}"}) {
		t.Errorf("no columns: %s", got)
	}
	for _, err := range table.ReadFile(context.Background(), &later, DataFile{Path: adds[0].Path}, []string{"gone"}) {
		if err == nil || !strings.Contains(err.Error(), "no column gone") {
			t.Errorf("unknown column: %v", err)
		}
	}
}

// openParquet opens a file of a table.
func openParquet(tb testing.TB, t *Table, add Add) *parquet.File {
	tb.Helper()
	data, err := t.Store().Get(context.Background(), add.Path)
	if err != nil {
		tb.Fatal(err)
	}
	pf, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		tb.Fatal(err)
	}
	return pf
}

// TestRowGroupsEnd: the bytes of a row group do not grow without bound, nor those of a page.
func TestRowGroupsEnd(t *testing.T) {
	t.Parallel()
	schema := testColumns(t, "id BIGINT", "s STRING", "l ARRAY<STRING>")
	table, snap := memoryTable(t, schema)
	as, err := ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, as)
	big := strings.Repeat("x", 1<<20)
	const n = 140
	for i := range int64(n) {
		b.Field(0).(*array.Int64Builder).Append(i)
		b.Field(1).(*array.StringBuilder).Append(big)
		l := b.Field(2).(*array.ListBuilder)
		l.Append(true)
		for range 2 {
			l.ValueBuilder().(*array.StringBuilder).Append(big[:i])
		}
	}
	batch := b.NewRecordBatch()
	adds, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{batch, batch.NewSlice(7, 8)})
	if err != nil {
		t.Fatal(err)
	}
	pf := openParquet(t, table, adds[0])
	if groups := pf.RowGroups(); len(groups) != 2 || groups[0].NumRows() > n-1 {
		t.Errorf("%d row groups, the first of %d rows", len(groups), groups[0].NumRows())
	}
	pages := pf.RowGroups()[0].ColumnChunks()[1].Pages()
	page, err := pages.ReadPage()
	if err != nil {
		t.Fatal(err)
	}
	if page.Size() > 4<<20 {
		t.Errorf("a page of %d bytes", page.Size())
	}
	parquet.Release(page)
	_ = pages.Close()
	if got := readJSON(t, table, snap, adds, []string{"id"}); len(got) != n+1 || got[n-1] != `{"id":139}` || got[n] != `{"id":7}` {
		t.Errorf("%d rows", len(got))
	}
}

// TestFooterKeepsNoLongValues: a value is in a file once, not again as the least and as the greatest of its column.
func TestFooterKeepsNoLongValues(t *testing.T) {
	t.Parallel()
	schema := testColumns(t, "topic STRING", "payload STRING", "b BINARY", "n BIGINT")
	table, snap := memoryTable(t, schema)
	random := make([]byte, 50_000)
	for i := range random {
		random[i] = byte('a' + rand.IntN(26))
	}
	for range 3 { // the writer is used again
		adds, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{batch(t, schema, fmt.Sprintf(`{"topic":"orders","payload":%q,"b":"AAEC","n":5}`, random))})
		if err != nil {
			t.Fatal(err)
		}
		if adds[0].Size > 55_000 {
			t.Errorf("%d bytes for a value of %d", adds[0].Size, len(random))
		}
		pf := openParquet(t, table, adds[0])
		for i, want := range []string{"orders", "", "\x00\x01\x02", "\x05\x00\x00\x00\x00\x00\x00\x00"} {
			s := pf.Metadata().RowGroups[0].Columns[i].MetaData.Statistics
			if string(s.MinValue) != want || string(s.MaxValue) != want {
				t.Errorf("column %d: %q to %q", i, s.MinValue, s.MaxValue)
			}
		}
		if got := readJSON(t, table, snap, adds, nil); len(got) != 1 || got[0] != fmt.Sprintf(`{"topic":"orders","payload":%q,"b":"AAEC","n":5}`, random) {
			t.Errorf("read %.100s", got)
		}
	}
}

func TestWriteFilesRefuses(t *testing.T) {
	t.Parallel()
	notNull := testColumns(t, "id BIGINT NOT NULL", "s STRUCT<a: INT NOT NULL, b: STRUCT<c: STRING NOT NULL>>", "l ARRAY<STRUCT<x: INT NOT NULL>>", "m MAP<STRING,STRING>")
	notNull.Fields = append(notNull.Fields, Field{Name: "e", Type: Array{Integer, false}, Nullable: true}, Field{Name: "v", Type: Map{String, Integer, false}, Nullable: true})
	loose := testColumns(t, "id BIGINT", "s STRUCT<a: INT, b: STRUCT<c: STRING>>", "l ARRAY<STRUCT<x: INT>>", "m MAP<STRING,STRING>", "e ARRAY<INT>", "v MAP<STRING,INT>")
	fine := `{"id":1,"s":{"a":1,"b":{"c":"x"}},"l":[{"x":1},null],"m":[{"key":"k","value":null}],"e":[1],"v":[{"key":"k","value":1}]}`
	for name, c := range map[string]struct {
		row  string
		want string // "" if it is fine
	}{
		"all there":                   {fine, ""},
		"nulls above what may not be": {`{"id":1,"s":null,"l":null,"m":null,"e":null,"v":null}`, ""},
		"a null struct in a struct":   {`{"id":1,"s":{"a":1,"b":null},"l":[null,null],"m":[],"e":[],"v":[]}`, ""},
		"a column":                    {`{"id":null,"s":null}`, "column id"},
		"a field":                     {`{"id":1,"s":{"a":null,"b":null}}`, "column s.a"},
		"a field of a field":          {`{"id":1,"s":{"a":1,"b":{"c":null}}}`, "column s.b.c"},
		"a field of an element":       {`{"id":1,"l":[{"x":1},null,{"x":null}]}`, "column l.element.x"},
		"an element":                  {`{"id":1,"e":[1,null]}`, "column e.element"},
		"a value":                     {`{"id":1,"v":[{"key":"a","value":null}]}`, "column v.value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table, snap := memoryTable(t, notNull)
			bad := batch(t, loose, fine, c.row, fine)
			_, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{bad})
			if c.want == "" && err != nil {
				t.Fatal(err)
			}
			if c.want != "" && (!errors.Is(err, ErrNotNull) || !strings.HasSuffix(err.Error(), c.want+" SQLSTATE: 23502")) {
				t.Errorf("got %v", err)
			}
			// What lies outside a slice is not written, so it breaks nothing.
			if _, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{bad.NewSlice(2, 3), bad.NewSlice(0, 1)}); err != nil {
				t.Errorf("slices without it: %v", err)
			}
		})
	}
}

// TestNullParentsHideTheirFields: Arrow allows any value below a null struct; none of it counts.
func TestNullParentsHideTheirFields(t *testing.T) {
	t.Parallel()
	schema := testColumns(t, "s STRUCT<a: INT NOT NULL, b: STRING>")
	table, snap := memoryTable(t, schema)
	as, err := ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	x, y := array.NewInt32Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
	x.AppendValues([]int32{5, -1000, 7, 1000}, nil)
	y.AppendStringValues([]string{"m", "a", "n", "\xff"}, nil)
	data := array.NewData(as.Field(0).Type, 4, []*memory.Buffer{memory.NewBufferBytes([]byte{0b0101})}, []arrow.ArrayData{x.NewArray().Data(), y.NewArray().Data()}, 2, 0)
	batch := array.NewRecordBatch(as, []arrow.Array{array.NewStructData(data)}, 4)
	adds, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{batch})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"numRecords":4,"minValues":{"s":{"a":5,"b":"m"}},"maxValues":{"s":{"a":7,"b":"n"}},"nullCount":{"s":{"a":2,"b":2}}}`
	if adds[0].Stats != want {
		t.Errorf("statistics %s", adds[0].Stats)
	}
	if got := readJSON(t, table, snap, adds, nil); strings.Join(got, " ") != `{"s":{"a":5,"b":"m"}} {"s":null} {"s":{"a":7,"b":"n"}} {"s":null}` {
		t.Errorf("read %s", got)
	}
}

func TestWriteFilesRefusesOtherTypes(t *testing.T) {
	t.Parallel()
	schema := testColumns(t, "a BIGINT", "d DECIMAL(9,2)", "l ARRAY<STRUCT<x: TIMESTAMP>>", "m MAP<STRING,INT>")
	table, snap := memoryTable(t, schema)
	as, err := ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	ts := func(tz string, unit arrow.TimeUnit) arrow.DataType {
		return arrow.ListOf(arrow.StructOf(arrow.Field{Name: "x", Type: &arrow.TimestampType{Unit: unit, TimeZone: tz}, Nullable: true}))
	}
	for name, c := range map[string]struct {
		column int
		field  arrow.Field
		want   string // "" if it is fine
	}{
		"an alias of UTC":     {2, arrow.Field{Name: "l", Type: ts("Europe/Berlin", arrow.Microsecond)}, ""},
		"another type":        {0, arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int32}, "column a: a batch has int32, the table int64"},
		"another name":        {0, arrow.Field{Name: "b", Type: arrow.PrimitiveTypes.Int64}, "column 1 of a batch is b, of the table a"},
		"another scale":       {1, arrow.Field{Name: "d", Type: &arrow.Decimal128Type{Precision: 9, Scale: 3}}, "column d"},
		"milliseconds":        {2, arrow.Field{Name: "l", Type: ts("UTC", arrow.Millisecond)}, "column l"},
		"no zone":             {2, arrow.Field{Name: "l", Type: ts("", arrow.Microsecond)}, "column l"},
		"another field":       {2, arrow.Field{Name: "l", Type: arrow.ListOf(arrow.StructOf(arrow.Field{Name: "y", Type: as.Field(2).Type.(*arrow.ListType).Elem().(*arrow.StructType).Field(0).Type}))}, "column l"},
		"another type of key": {3, arrow.Field{Name: "m", Type: arrow.MapOf(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int32)}, "column m"},
		"large strings":       {3, arrow.Field{Name: "m", Type: arrow.MapOf(arrow.BinaryTypes.LargeString, arrow.PrimitiveTypes.Int32)}, "column m"},
	} {
		fields := slices.Clone(as.Fields())
		fields[c.column] = c.field
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
		for _, f := range b.Fields() {
			f.AppendNull()
		}
		_, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{b.NewRecordBatch()})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{array.NewRecordBatch(arrow.NewSchema(nil, nil), nil, 0)}); err == nil {
		t.Error("a batch without columns was taken")
	}
	if adds, err := table.WriteFiles(context.Background(), snap, nil); err != nil || len(adds) != 0 {
		t.Errorf("no rows: %v, %v", adds, err)
	}
}

func TestWriteFilesRefusesInvalidValues(t *testing.T) {
	t.Parallel()
	schema := testColumns(t, "s STRING", "d DECIMAL(4,2)", "l ARRAY<STRING>", "p STRING")
	for name, build := range map[string]func(*array.RecordBuilder){
		"column s: invalid value: text": func(b *array.RecordBuilder) { b.Field(0).(*array.StringBuilder).Append("a\xff") },
		"column d: invalid value: a number of more than 4 digits": func(b *array.RecordBuilder) {
			b.Field(1).(*array.Decimal128Builder).Append(decimal128.FromI64(-10_000))
		},
		"column l: invalid value: text": func(b *array.RecordBuilder) {
			b.Field(2).(*array.ListBuilder).Append(true)
			b.Field(2).(*array.ListBuilder).ValueBuilder().(*array.StringBuilder).Append("\xc0\x80")
		},
		"column p: invalid value: text": func(b *array.RecordBuilder) { b.Field(3).(*array.StringBuilder).Append("\xed\xa0\x80") },
	} {
		table, snap := memoryTable(t, schema, "p")
		as, err := ArrowSchema(schema)
		if err != nil {
			t.Fatal(err)
		}
		b := array.NewRecordBuilder(memory.DefaultAllocator, as)
		build(b)
		for _, f := range b.Fields() {
			if f.Len() == 0 {
				f.AppendNull()
			}
		}
		_, err = table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{b.NewRecordBatch()})
		if !errors.Is(err, ErrInvalidValue) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
		// The writer that met it is not used again.
		adds, err := table.WriteFiles(context.Background(), snap, []arrow.RecordBatch{batch(t, schema, `{"s":"fine","d":"12.34","l":[],"p":"q"}`)})
		if err != nil {
			t.Fatal(err)
		}
		if got := readJSON(t, table, snap, adds, nil); len(got) != 1 || got[0] != `{"s":"fine","d":"12.34","l":[],"p":"q"}` {
			t.Errorf("%s: then %s", name, got)
		}
	}
}
