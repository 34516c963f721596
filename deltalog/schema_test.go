package deltalog

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestSchemaJSON(t *testing.T) {
	t.Parallel()
	const text = `{"type":"struct","fields":[` +
		`{"name":"id","type":"long","nullable":false,"metadata":{}},` +
		`{"name":"d","type":"decimal(38,18)","nullable":true,"metadata":{"comment":"<money> & more","x":{"a":[1,1.50,null,12345678901234567890]}}},` +
		`{"name":"a","type":{"type":"array","elementType":"string","containsNull":false},"nullable":true,"metadata":{}},` +
		`{"name":"m","type":{"type":"map","keyType":"integer","valueType":{"type":"struct","fields":[` +
		`{"name":"x","type":"timestamp_ntz","nullable":false,"metadata":{"k":"v"}}]},"valueContainsNull":true},"nullable":true,"metadata":{}},` +
		`{"name":"v","type":"variant","nullable":true,"metadata":{}}]}`
	s, err := ParseSchema([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := Struct{Fields: []Field{
		{Name: "id", Type: Long, Metadata: map[string]json.RawMessage{}},
		{Name: "d", Type: Decimal{38, 18}, Nullable: true, Metadata: s.Fields[1].Metadata},
		{Name: "a", Type: Array{String, false}, Nullable: true, Metadata: map[string]json.RawMessage{}},
		{
			Name: "m", Type: Map{Integer, Struct{[]Field{{Name: "x", Type: TimestampNTZ, Metadata: map[string]json.RawMessage{"k": []byte(`"v"`)}}}}, true},
			Nullable: true, Metadata: map[string]json.RawMessage{},
		},
		{Name: "v", Type: Variant, Nullable: true, Metadata: map[string]json.RawMessage{}},
	}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %#v", s)
	}
	if own, err := s.MarshalJSON(); err != nil || string(own) != text {
		t.Errorf("%v, written as\n%s\nread as\n%s", err, own, text)
	}
}

func TestParseSchemaErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"long"`: "is a struct, not bigint",
		`{"type":"struct","fields":[{"name":"a","type":"int128","nullable":true}]}`:         `field a: unknown type "int128"`,
		`{"type":"struct","fields":[{"name":"a","type":"decimal(39,0)","nullable":true}]}`:  "precision is 1 to 38",
		`{"type":"struct","fields":[{"name":"a","type":"decimal(3,4)","nullable":true}]}`:   "scale 0 to precision",
		`{"type":"struct","fields":[{"name":"a","type":"decimal(3,1)x","nullable":true}]}`:  "unknown type",
		`{"type":"struct","fields":[{"name":"a","type":{"type":"list"},"nullable":true}]}`:  `unknown type "list"`,
		`{"type":"struct","fields":[{"name":"a","type":{"type":"array"},"nullable":true}]}`: "field a",
		`{"type":"struct","fields":[{"name":"a"}]}`:                                         "field a",
		`{"type":"struct"`: "unexpected end",
		``:                 "parse schema",
		strings.Repeat(`{"type":"array","elementType":`, 200) + `"long"` + strings.Repeat(`,"containsNull":true}`, 200): "nested too deeply",
	} {
		if _, err := ParseSchema([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", text, err, want)
		}
	}
}

func TestSchemaNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s    Struct
		want string
	}{
		"same in another case":   {Struct{[]Field{{Name: "Id", Type: Long}, {Name: "iD", Type: Long}}}, "column iD is there twice"},
		"in a struct":            {Struct{[]Field{{Name: "s", Type: Array{Struct{[]Field{{Name: "a", Type: Long}, {Name: "A", Type: Long}}}, true}}}}, "column s: column A is there twice"},
		"in a map":               {Struct{[]Field{{Name: "s", Type: Map{String, Struct{[]Field{{Name: "", Type: Long}}}, true}}}}, "a column has no name"},
		"a blank":                {Struct{[]Field{{Name: "a b", Type: Long}}}, "names may not contain"},
		"no type":                {Struct{[]Field{{Name: "a"}}}, "has no type"},
		"decimal out of range":   {Struct{[]Field{{Name: "a", Type: Decimal{0, 0}}}}, "precision is 1 to 38"},
		"letters and dots alike": {Struct{[]Field{{Name: "ä.b", Type: Long}, {Name: "a-b", Type: Long}}}, ""},
	} {
		err := c.s.validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestArrowTypes(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"string": "utf8", "bigint": "int64", "int": "int32", "smallint": "int16", "tinyint": "int8", "float": "float32",
		"double": "float64", "boolean": "bool", "binary": "binary", "date": "date32", "timestamp": "timestamp[us, tz=UTC]",
		"timestamp_ntz": "timestamp[us]", "variant": "variant", "void": "null", "decimal(38,4)": "decimal(38, 4)",
		"array<int>":                 "list<element: int32, nullable>",
		"map<string,struct<a:date>>": "map<utf8, struct<a: date32 nullable>, items_nullable>",
	} {
		dt, err := ParseType(sql)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ArrowType(dt)
		if err != nil || got.String() != want {
			t.Errorf("%s: %v, %v, want %s", sql, got, err, want)
		}
	}
}

func FuzzParseSchema(f *testing.F) {
	f.Add([]byte(`{"type":"struct","fields":[{"name":"a","type":"decimal(3,1)","nullable":true,"metadata":{"x":1e5}}]}`))
	f.Add([]byte(`{"type":"struct","fields":[{"name":"a","type":{"type":"map","keyType":"long","valueType":"string","valueContainsNull":false},"nullable":false}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSchema(data)
		if err != nil {
			return
		}
		text, err := s.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseSchema(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if second, err := again.MarshalJSON(); err != nil || string(second) != string(text) {
			t.Fatalf("%s became %s, %v", text, second, err)
		}
		_ = s.SQL()
		_ = s.validate()
	})
}
