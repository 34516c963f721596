package deltalog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/parquet/variant"
	"github.com/parquet-go/parquet-go"
)

// built is the binary form of a value.
func built(tb testing.TB, v any) (metadata, value []byte) {
	tb.Helper()
	var b variant.Builder
	if err := b.Append(v); err != nil {
		tb.Fatal(err)
	}
	out, err := b.Build()
	if err != nil {
		tb.Fatal(err)
	}
	return out.Metadata().Bytes(), out.Bytes()
}

func TestVariantsAsJSON(t *testing.T) {
	t.Parallel()
	long := string(make([]byte, 100))
	for _, c := range []struct {
		value any
		want  string
	}{
		{nil, `null`},
		{true, `true`},
		{int64(-5), `-5`},
		{int64(9007199254740993), `9007199254740993`},
		{1.5, `1.5`},
		{"ä\"", `"ä\""`},
		{long, "\"" + strings.Repeat(`\u0000`, 100) + "\""},
		{[]byte{0, 255}, `"AP8="`},
		{variant.DecimalValue[decimal.Decimal64]{Scale: 2, Value: decimal.Decimal64(-12345)}, `-123.45`},
		{arrow.Date32(19723), `"2024-01-01"`},
		{time.Date(2024, 1, 2, 3, 4, 5, 6000, time.UTC), `"2024-01-02 03:04:05.000006"`},
		{[]any{int64(1), nil, "x"}, `[1,null,"x"]`},
		{map[string]any{"b": int64(1), "a": []any{}}, `{"a":[],"b":1}`},
	} {
		metadata, value := built(t, c.value)
		got, err := variantJSON(metadata, value)
		if err != nil || string(got) != c.want {
			t.Errorf("%v: %s, %v, expected %s", c.value, got, err, c.want)
		}
	}
	const micros = 12 << 2 // with a zone
	if got, err := variantJSON([]byte{1, 0, 0}, []byte{micros, 1, 0, 0, 0, 0, 0, 0, 0}); err != nil || string(got) != `"1970-01-01 00:00:00.000001+00:00"` {
		t.Errorf("%s, %v", got, err)
	}
}

// TestVariantColumns: in a file they are a group of two binaries.
func TestVariantColumns(t *testing.T) {
	t.Parallel()
	table, snap := memoryTable(t, testColumns(t, "c STRING"))
	later := *snap
	later.schema = Struct{Fields: []Field{{Name: "c", Type: Variant, Nullable: true}}}
	metadata, value := built(t, map[string]any{"a": int64(1)})
	leaf := parquet.Leaf(parquet.ByteArrayType)
	node := parquet.Group{"c": parquet.Optional(parquet.Group{"metadata": leaf, "value": leaf})}
	add := putFile(t, table, "x.parquet", writeForeign(t, node, []parquet.Row{
		{parquet.ByteArrayValue(metadata).Level(0, 1, 0), parquet.ByteArrayValue(value).Level(0, 1, 1)},
		{parquet.NullValue().Level(0, 0, 0), parquet.NullValue().Level(0, 0, 1)},
	}))
	if got := readJSON(t, table, &later, []Add{add}, nil); len(got) != 2 || got[0] != `{"c":{"a":1}}` || got[1] != `{"c":null}` {
		t.Errorf("got %v", got)
	}
	shredded := parquet.Group{"c": parquet.Optional(parquet.Group{"metadata": leaf, "value": leaf, "typed_value": parquet.Optional(leaf)})}
	add = putFile(t, table, "y.parquet", writeForeign(t, shredded, []parquet.Row{{parquet.NullValue(), parquet.NullValue().Level(0, 0, 1), parquet.NullValue().Level(0, 0, 2)}}))
	for _, err := range table.ReadFile(t.Context(), &later, add.DataFile(), nil) {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("a shredded one: %v", err)
		}
	}
}

// FuzzVariant: JSON or an error, never a panic or what lies behind the bytes.
func FuzzVariant(f *testing.F) {
	for _, v := range []any{int64(1), "text", []any{"x", nil}, map[string]any{"a": map[string]any{"b": 1.5}}} {
		metadata, value := built(f, v)
		f.Add(metadata, value)
	}
	f.Add([]byte{1, 0, 0}, []byte{0x40, 0xff, 0xff, 0xff, 0x7f}) // a text of 2 GB
	f.Fuzz(func(t *testing.T, metadata, value []byte) {
		text, err := variantJSON(metadata, value)
		if err != nil && !errors.Is(err, ErrCorrupt) || err == nil && len(text) == 0 {
			t.Fatalf("%s, %v", text, err)
		}
	})
}
