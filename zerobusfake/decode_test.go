package zerobusfake

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/deltabus/deltabus-local/deltalog"
)

func newTestRows(t testing.TB, ddl ...string) *rows {
	t.Helper()
	r, err := newRows(columnsOf(t, ddl...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lastRow is the last row as canonical JSON.
func lastRow(t testing.TB, r *rows) string {
	t.Helper()
	rec := r.batch()
	defer rec.Release()
	row, err := deltalog.AppendRowJSON(nil, rec, r.root.n-1)
	if err != nil {
		t.Fatal(err)
	}
	return string(row)
}

func TestJSONTypes(t *testing.T) {
	t.Parallel()
	tests := []struct{ ddl, value, want string }{
		{"c BOOLEAN", `true`, `true`},
		{"c TINYINT", `-128`, `-128`},
		{"c SMALLINT", `"32767"`, `32767`},
		{"c INT", `0`, `0`},
		{"c BIGINT", `9223372036854775807`, `9223372036854775807`},
		{"c BIGINT", `"-9223372036854775808"`, `-9223372036854775808`},
		{"c FLOAT", `1.5`, `1.5`},
		{"c DOUBLE", `-1e-3`, `-0.001`},
		{"c DOUBLE", `NaN`, `"NaN"`},
		{"c DOUBLE", `"Infinity"`, `"Infinity"`},
		{"c STRING", `"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é"`, "\"a\\\"\\\\/\\u0008\\u000c\\n\\r\\té😀é\""},
		{"c BINARY", `"AAH/"`, `"AAH/"`},
		{"c BINARY", `"_-8"`, `"/+8="`},
		{"c DATE", `19723`, `"2024-01-01"`},
		{"c TIMESTAMP", `1700000000123456`, `"2023-11-14T22:13:20.123456Z"`},
		{"c TIMESTAMP_NTZ", `-1`, `"1969-12-31T23:59:59.999999"`},
		{"c DECIMAL(5,2)", `"123.45"`, `"123.45"`},
		{"c DECIMAL(5,2)", `-0.10`, `"-0.10"`},
		{"c DECIMAL(20,3)", `1E+3`, `"1000.000"`},
		{"c DECIMAL(20,3)", `"-12.5e-1"`, `"-1.250"`},
		{"c DECIMAL(20,3)", `"1200e-5"`, `"0.012"`},
		{"c DECIMAL(5,2)", `0e100`, `"0.00"`},
		{"c DECIMAL(38,0)", `"-99999999999999999999999999999999999999"`, `"-99999999999999999999999999999999999999"`},
		{"c ARRAY<INT>", `[1, null ,3]`, `[1,null,3]`},
		{"c ARRAY<ARRAY<STRING>>", `[["a"],[],null]`, `[["a"],[],null]`},
		{"c MAP<STRING,BIGINT>", `{"b":1,"a":null}`, `{"b":1,"a":null}`},
		{"c MAP<INT,STRING>", `{"1":"x"}`, `[[1,"x"]]`},
		{"c MAP<DOUBLE,INT>", `{"1.5":1}`, `[[1.5,1]]`},
		{"c STRUCT<a INT, b STRUCT<c STRING>>", `{"b":{"c":"x"}}`, `{"a":null,"b":{"c":"x"}}`},
		{"c ARRAY<STRUCT<k STRING NOT NULL, v DOUBLE>>", `[{"v":1,"k":"a"}]`, `[{"k":"a","v":1}]`},
		{"c STRING", `null`, `null`},
	}
	for _, tt := range tests {
		r := newTestRows(t, tt.ddl)
		var d jsonDecoder
		if err := d.decode(" {\t\"c\" : "+tt.value+" }\n", r); err != nil {
			t.Errorf("%s %s: %v", tt.ddl, tt.value, err)
			continue
		}
		if got := lastRow(t, r); got != `{"c":`+tt.want+`}` {
			t.Errorf("%s %s: got %s", tt.ddl, tt.value, got)
		}
	}
}

func TestJSONRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ ddl, value string }{
		{"c TINYINT", `128`},
		{"c SMALLINT", `-32769`},
		{"c INT", `1e3`},
		{"c INT", `0x10`},
		{"c INT", `-`},
		{"c INT", `true`},
		{"c BIGINT", `9223372036854775808`},
		{"c BIGINT", `""`},
		{"c FLOAT", `1e39`},
		{"c DOUBLE", `1e309`},
		{"c DOUBLE", `.5`},
		{"c DOUBLE", `01`},
		{"c BOOLEAN", `1`},
		{"c BOOLEAN", `"true"`},
		{"c DATE", `"2024-01-01"`},
		{"c TIMESTAMP", `"2024-01-01T00:00:00Z"`},
		{"c DECIMAL(5,2)", `"1234.5"`},
		{"c DECIMAL(5,2)", `"0.001"`},
		{"c DECIMAL(5,2)", `"x"`},
		{"c DECIMAL(5,2)", `""`},
		{"c DECIMAL(5,2)", `"."`},
		{"c DECIMAL(5,2)", `1e3`},
		{"c DECIMAL(5,2)", `1e-3`},
		{"c DECIMAL(5,2)", `"e1"`},
		{"c DECIMAL(5,2)", `"1e"`},
		{"c DECIMAL(5,2)", `"1e2e3"`},
		{"c DECIMAL(5,2)", `"1e999999999"`},
		{"c BIGINT", `"+5"`},
		{"c BIGINT", `"+1234567890123456789"`},
		{"c DOUBLE", `"1.5"`},
		{"c MAP<DOUBLE,INT>", `{"x":1}`},
		{"c BINARY", `"*"`},
		{"c ARRAY<INT>", `{}`},
		{"c MAP<STRING,INT>", `{"a":1,"a":2}`},
		{"c STRUCT<a INT>", `{"b":1}`},
		{"c STRUCT<a INT>", `[]`},
		{"c ARRAY<STRUCT<a INT NOT NULL>>", `[{}]`},
		{"c STRING", `"\x"`},
		{"c STRING", `"\u12"`},
		{"c STRING", `"`},
		{"c STRING", `nul`},
	} {
		r := newTestRows(t, tt.ddl)
		var d jsonDecoder
		if err := d.decode(`{"c":`+tt.value+`}`, r); err == nil {
			t.Errorf("%s %s was taken as %s", tt.ddl, tt.value, lastRow(t, r))
		}
	}
}

// TestFieldsStayApartOnLongStreams: the count of objects must not come round to what an old one, or none, left behind.
func TestFieldsStayApartOnLongStreams(t *testing.T) {
	t.Parallel()
	r := newTestRows(t, "a INT", "b INT")
	r.root.object = math.MaxUint32
	var d jsonDecoder
	if err := d.decode(`{"a":1}`, r); err != nil {
		t.Fatal(err)
	}
	if got := lastRow(t, r); got != `{"a":1,"b":null}` {
		t.Errorf("got %s", got)
	}
}

// TestTruncateTakesBackWhatFailed: after a bad record the rows are what they were, whatever it left half done.
func TestTruncateTakesBackWhatFailed(t *testing.T) {
	t.Parallel()
	ddl := []string{"a INT NOT NULL", "b STRING", "c ARRAY<STRUCT<x INT, y STRING>>", "d MAP<STRING,ARRAY<INT>>", "e BOOLEAN", "f DECIMAL(20,2)"}
	good := `{"a":1,"b":"x","c":[{"x":1,"y":"q"},null],"d":{"k":[1,2]},"e":true,"f":"1.50"}`
	r := newTestRows(t, ddl...)
	var d jsonDecoder
	for range 3 {
		if err := d.decode(good, r); err != nil {
			t.Fatal(err)
		}
	}
	want := lastRow(t, r)
	for cut := range good { // every beginning of a record fails
		if err := d.decode(good[:cut], r); err == nil {
			t.Fatalf("%q was taken", good[:cut])
		}
		r.root.truncate(3)
		if err := d.decode(good, r); err != nil {
			t.Fatalf("after %q: %v", good[:cut], err)
		}
		if got := lastRow(t, r); got != want {
			t.Fatalf("after %q: %s", good[:cut], got)
		}
		r.root.truncate(3)
	}
}

func repeated(f *descriptorpb.FieldDescriptorProto) *descriptorpb.FieldDescriptorProto {
	f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	return f
}

func message(name string, number int32, typeName string) *descriptorpb.FieldDescriptorProto {
	f := field(name, number, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
	f.TypeName = &typeName
	return f
}

// everything is a descriptor with a field of each kind, type names as a generated class sends them.
func everything(t testing.TB) ([]string, []byte) {
	d := &descriptorpb.DescriptorProto{
		Name: proto.String("All"),
		Field: []*descriptorpb.FieldDescriptorProto{
			field("b", 1, descriptorpb.FieldDescriptorProto_TYPE_BOOL), field("i8", 2, int32Type), field("i32", 3, descriptorpb.FieldDescriptorProto_TYPE_SINT32),
			field("i64", 4, descriptorpb.FieldDescriptorProto_TYPE_SFIXED64), field("f32", 5, descriptorpb.FieldDescriptorProto_TYPE_FLOAT),
			field("f64", 6, descriptorpb.FieldDescriptorProto_TYPE_DOUBLE), field("s", 7, stringType), field("x", 8, descriptorpb.FieldDescriptorProto_TYPE_BYTES),
			field("dec", 9, stringType), repeated(field("list", 10, int32Type)), repeated(message("m", 300, ".pkg.All.MEntry")), message("st", 12, "Inner"),
			repeated(message("sts", 13, ".pkg.All.Inner")),
		},
		NestedType: []*descriptorpb.DescriptorProto{
			{
				Name: proto.String("MEntry"), Field: []*descriptorpb.FieldDescriptorProto{field("key", 1, stringType), field("value", 2, int32Type)},
				Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
			},
			{Name: proto.String("Inner"), Field: []*descriptorpb.FieldDescriptorProto{field("a", 1, int32Type), field("b", 2, stringType)}},
		},
	}
	data, err := proto.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"b BOOLEAN", "i8 TINYINT", "i32 INT", "i64 BIGINT", "f32 FLOAT", "f64 DOUBLE", "s STRING", "x BINARY", "dec DECIMAL(20,3)", "list ARRAY<INT>",
		"m MAP<STRING,INT>", "st STRUCT<a INT, b STRING>", "sts ARRAY<STRUCT<a INT, b STRING>>",
	}, data
}

func protoRows(t testing.TB) (*rows, protoDecoder) {
	t.Helper()
	ddl, desc := everything(t)
	r := newTestRows(t, ddl...)
	plan, err := planProto(desc, r.root)
	if err != nil {
		t.Fatal(err)
	}
	return r, protoDecoder{plan}
}

func TestProtoKinds(t *testing.T) {
	t.Parallel()
	r, d := protoRows(t)
	var b []byte
	varint := func(n protowire.Number, v uint64) {
		b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
	}
	text := func(n protowire.Number, v string) {
		b = protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
	}
	text(7, "first")
	varint(1, 1)
	varint(2, uint64(math.MaxUint64)) // -1
	varint(3, protowire.EncodeZigZag(-5))
	b = protowire.AppendFixed64(protowire.AppendTag(b, 4, protowire.Fixed64Type), 1<<63)
	b = protowire.AppendFixed32(protowire.AppendTag(b, 5, protowire.Fixed32Type), math.Float32bits(1.5))
	b = protowire.AppendFixed64(protowire.AppendTag(b, 6, protowire.Fixed64Type), math.Float64bits(-2.5))
	text(7, "last wins")
	text(8, "\x00\xff")
	text(9, "-12.5")
	varint(10, 1)             // unpacked
	text(10, "\x02\x03")      // packed
	text(300, "\n\x01k\x10*") // key k, value 42
	text(300, "\n\x01j")      // the value is its default
	text(12, "\x08\x01\x12\x01q")
	text(13, "\x08\x07")
	text(13, "")
	text(99, "unknown")
	if err := d.decode(b, r); err != nil {
		t.Fatal(err)
	}
	want := `{"b":true,"i8":-1,"i32":-5,"i64":-9223372036854775808,"f32":1.5,"f64":-2.5,"s":"last wins","x":"AP8=","dec":"-12.500","list":[1,2,3],"m":{"k":42,"j":0},"st":{"a":1,"b":"q"},"sts":[{"a":7,"b":null},{"a":null,"b":null}]}`
	if got := lastRow(t, r); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := d.decode(nil, r); err != nil {
		t.Fatal(err)
	}
	if got := lastRow(t, r); strings.Count(got, "null") != 13 {
		t.Errorf("an empty message: %s", got)
	}
	for _, bad := range [][]byte{
		protowire.AppendVarint([]byte{0x10}, 128), // i8 out of range
		append([]byte{0x4a, 1}, 'x'),              // dec
		{0x62, 2, 0x08},                           // st cut off
	} {
		n := r.root.n
		if err := d.decode(bad, r); err == nil {
			t.Errorf("%x was taken", bad)
		}
		r.root.truncate(n)
	}
}

func TestDescriptorsAreNestedTooDeeply(t *testing.T) {
	t.Parallel()
	ddl, typ := "INT", field("a", 1, int32Type)
	var nested []*descriptorpb.DescriptorProto
	for i := range 150 {
		name := fmt.Sprintf("N%d", i)
		nested = append(nested, &descriptorpb.DescriptorProto{Name: &name, Field: []*descriptorpb.FieldDescriptorProto{typ}})
		ddl, typ = "STRUCT<a "+ddl+">", message("a", 1, name)
	}
	data, err := proto.Marshal(&descriptorpb.DescriptorProto{Name: proto.String("R"), Field: []*descriptorpb.FieldDescriptorProto{typ}, NestedType: nested})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deltalog.ParseColumn("a " + ddl); err == nil {
		t.Error("a column of 150 levels was taken")
	}
	r := newTestRows(t, "a STRUCT<a INT>")
	if _, err := planProto(data, r.root); err == nil {
		t.Error("a descriptor of 150 levels was taken")
	}
}

// TestJSONAndProtoAgree: the same random row by both encodings.
func TestJSONAndProtoAgree(t *testing.T) {
	t.Parallel()
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed))
	ddl := []string{"i INT", "l BIGINT", "d DOUBLE", "s STRING", "a ARRAY<BIGINT>"}
	desc := descriptor(t, field("i", 1, int32Type), field("l", 2, descriptorpb.FieldDescriptorProto_TYPE_INT64),
		field("d", 3, descriptorpb.FieldDescriptorProto_TYPE_DOUBLE), field("s", 4, stringType), repeated(field("a", 5, descriptorpb.FieldDescriptorProto_TYPE_INT64)))
	j, p := newTestRows(t, ddl...), newTestRows(t, ddl...)
	plan, err := planProto(desc, p.root)
	if err != nil {
		t.Fatal(err)
	}
	var dec jsonDecoder
	for range 500 {
		i, l, d := int32(rng.Uint32()), int64(rng.Uint64()), rng.NormFloat64()
		s := strings.Repeat(string(rune(0x20+rng.IntN(0x3000))), rng.IntN(5))
		record := fmt.Sprintf(`{"s":%q,"d":%v,"i":%d,"l":%d,"a":[%d,%d]}`, "x"+strings.ToValidUTF8(s, ""), d, i, l, l, i)
		var b []byte
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(int64(i)))
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(l))
		b = protowire.AppendFixed64(protowire.AppendTag(b, 3, protowire.Fixed64Type), math.Float64bits(d))
		b = protowire.AppendString(protowire.AppendTag(b, 4, protowire.BytesType), "x"+s)
		for _, v := range []int64{l, int64(i)} {
			b = protowire.AppendVarint(protowire.AppendTag(b, 5, protowire.VarintType), uint64(v))
		}
		if strings.ContainsAny(record, "\x7f") || strings.Contains(record, `\x`) || strings.Contains(record, `\a`) || strings.Contains(record, `\v`) || strings.Contains(record, `\U`) {
			continue // %q escapes what JSON has no escape for
		}
		if err := dec.decode(record, j); err != nil {
			t.Fatalf("seed %d: %s: %v", seed, record, err)
		}
		if err := (protoDecoder{plan}).decode(b, p); err != nil {
			t.Fatalf("seed %d: %x: %v", seed, b, err)
		}
		if a, b := lastRow(t, j), lastRow(t, p); a != b {
			t.Fatalf("seed %d:\njson  %s\nproto %s", seed, a, b)
		}
	}
}

// checkAfter decodes data twice over a good row, and checks that a failure leaves the row as it was.
func checkAfter(t *testing.T, r *rows, decode func() error) {
	t.Helper()
	n := r.root.n
	before := lastRow(t, r)
	if decode() != nil {
		r.root.truncate(n)
	}
	rec := r.batch() // Arrow checks the lengths of what belongs together
	rec.Release()
	if got := func() string { r.root.truncate(n); return lastRow(t, r) }(); got != before {
		t.Errorf("the row before was %s and is %s", before, got)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add(`{"a":1,"b":"x","c":[1],"d":{"k":1.5},"e":{"f":null}}`)
	f.Add("{\"b\":\"\\ud83d\\ude00\\u00e9\",\"a\":\"5\"}")
	f.Add(`{"c":[[[[`)
	f.Fuzz(func(t *testing.T, record string) {
		r := newTestRows(t, "a INT", "b STRING", "c ARRAY<INT>", "d MAP<STRING,DOUBLE>", "e STRUCT<f DECIMAL(10,2), g BINARY>", "h TIMESTAMP")
		var d jsonDecoder
		if err := d.decode(`{"a":7,"b":"before","c":[1,2],"d":{"x":1},"e":{"f":"1","g":"AA=="},"h":1}`, r); err != nil {
			t.Fatal(err)
		}
		checkAfter(t, r, func() error { return d.decode(record, r) })
	})
}

func FuzzProto(f *testing.F) {
	f.Add([]byte{0x08, 1, 0x52, 2, 1, 2, 0x3a, 1, 'a'})
	f.Add([]byte{0x62, 2, 0x08, 1, 0x6a, 0})
	f.Fuzz(func(t *testing.T, record []byte) {
		r, d := protoRows(t)
		if err := d.decode([]byte{0x08, 1, 0x52, 2, 1, 2, 0x3a, 1, 'a'}, r); err != nil {
			t.Fatal(err)
		}
		checkAfter(t, r, func() error { return d.decode(record, r) })
	})
}

func FuzzDescriptor(f *testing.F) {
	_, desc := everything(f)
	f.Add(desc)
	f.Fuzz(func(t *testing.T, data []byte) {
		ddl, _ := everything(t)
		r := newTestRows(t, ddl...)
		plan, err := planProto(data, r.root)
		if err != nil {
			return
		}
		_ = protoDecoder{plan}.decode([]byte{0x08, 1}, r) // a plan that was taken decodes or refuses
	})
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		for at := range 20 {
			s := strings.Repeat("~", at) + string([]byte{byte(c)}) + strings.Repeat(" ", 20-at)
			want := len(s)
			if c < 0x20 || c == '"' || c == '\\' || c >= 0x80 {
				want = at
			}
			if got := plain(s); got != want {
				t.Fatalf("byte %#x at %d: %d, want %d", c, at, got, want)
			}
		}
	}
}

// TestColumnsThatNobodyCanFill are refused by name before a record comes, also in nested types.
func TestColumnsThatNobodyCanFill(t *testing.T) {
	t.Parallel()
	for _, bad := range []deltalog.DataType{deltalog.Variant, deltalog.Void, deltalog.Array{Element: deltalog.Variant, ContainsNull: true}} {
		if _, err := newRows(deltalog.Struct{Fields: []deltalog.Field{{Name: "c", Type: bad, Nullable: true}}}); !errors.Is(err, deltalog.ErrUnsupported) {
			t.Errorf("%s: %v", bad.SQL(), err)
		}
	}
}
