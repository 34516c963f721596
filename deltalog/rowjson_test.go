package deltalog

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func TestRowJSON(t *testing.T) {
	t.Parallel()
	for sql, values := range map[string]map[string]string{ // as arrow-go reads it: as we write it
		"STRING":                             {`"a\"\\\n\r\t\u0001é😀<>&\u2028"`: `"a\"\\\n\r\t\u0001é😀<>&` + "\u2028" + `"`, `""`: `""`, `null`: `null`},
		"BIGINT":                             {`9223372036854775807`: `9223372036854775807`},
		"INT":                                {`-1`: `-1`},
		"SMALLINT":                           {`-1`: `-1`},
		"TINYINT":                            {`-1`: `-1`},
		"FLOAT":                              {`0.1`: `0.1`, `1e10`: `1e+10`, `-0.0`: `-0`},
		"DOUBLE":                             {`0.1`: `0.1`, `1e300`: `1e+300`, `5`: `5`},
		"BOOLEAN":                            {`true`: `true`, `false`: `false`},
		"BINARY":                             {`"AP8="`: `"AP8="`, `""`: `""`},
		"DATE":                               {`"2024-02-29"`: `"2024-02-29"`, `"0001-01-01"`: `"0001-01-01"`},
		"TIMESTAMP":                          {`"2024-01-01T00:00:00Z"`: `"2024-01-01T00:00:00Z"`, `"2024-01-01T00:00:00.120000Z"`: `"2024-01-01T00:00:00.12Z"`, `"1969-12-31T23:59:59.999999Z"`: `"1969-12-31T23:59:59.999999Z"`},
		"TIMESTAMP_NTZ":                      {`"2024-01-01T00:00:00"`: `"2024-01-01T00:00:00"`, `"2024-01-01T00:00:00.000001"`: `"2024-01-01T00:00:00.000001"`},
		"DECIMAL(38,10)":                     {`"1234567890123456789012345678.0123456789"`: `"1234567890123456789012345678.0123456789"`, `"-0.5"`: `"-0.5000000000"`},
		"DECIMAL(5,0)":                       {`"12"`: `"12"`},
		"ARRAY<INT>":                         {`[1,null]`: `[1,null]`, `[]`: `[]`, `null`: `null`},
		"MAP<STRING,INT>":                    {`[{"key":"b\"","value":1},{"key":"a","value":null}]`: `{"b\"":1,"a":null}`, `[]`: `{}`},
		"MAP<INT,STRING>":                    {`[{"key":1,"value":"x"},{"key":2,"value":null}]`: `[[1,"x"],[2,null]]`, `[]`: `[]`},
		"STRUCT<a: INT, b: STRUCT<c: DATE>>": {`{"a":1,"b":{"c":"2024-01-01"}}`: `{"a":1,"b":{"c":"2024-01-01"}}`, `{"a":null,"b":null}`: `{"a":null,"b":null}`},
		"ARRAY<MAP<STRING,ARRAY<STRUCT<x: DECIMAL(3,1)>>>>": {
			`[[{"key":"k","value":[{"x":"1.5"},null]}],null]`: `[{"k":[{"x":"1.5"},null]},null]`,
		},
	} {
		schema := testColumns(t, "`a b` INT", "c "+sql)
		for in, want := range values {
			rec := batch(t, schema, `{"a b":1,"c":`+in+`}`)
			got, err := AppendRowJSON([]byte("> "), rec, 0)
			if err != nil || string(got) != `> {"a b":1,"c":`+want+`}` {
				t.Errorf("%s %s: %s, %v", sql, in, got, err)
			}
			if !json.Valid(got[2:]) {
				t.Errorf("%s %s: not JSON: %s", sql, in, got)
			}
		}
	}
}

func TestRowJSONOfWhatJSONLacks(t *testing.T) {
	t.Parallel()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "f", Type: arrow.PrimitiveTypes.Float32},
		{Name: "d", Type: arrow.PrimitiveTypes.Float64},
		{Name: "s", Type: arrow.BinaryTypes.String},
		{Name: "t", Type: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	b.Field(0).(*array.Float32Builder).Append(float32(math.Inf(-1)))
	b.Field(1).(*array.Float64Builder).Append(math.NaN())
	b.Field(2).(*array.StringBuilder).Append("a\xffb\xc3")
	b.Field(3).(*array.TimestampBuilder).Append(253402300800000000) // the year 10000
	const want = `{"f":"-Infinity","d":"NaN","s":"a` + "\ufffd" + `b` + "\ufffd" + `","t":"10000-01-01T00:00:00Z"}`
	if got, err := AppendRowJSON(nil, b.NewRecordBatch(), 0); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	large := array.NewLargeStringBuilder(memory.DefaultAllocator)
	large.Append("x")
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "l", Type: arrow.BinaryTypes.LargeString}}, nil), []arrow.Array{large.NewArray()}, 1)
	if _, err := AppendRowJSON(nil, rec, 0); err == nil {
		t.Error("a type that no table has was taken")
	}
}

func FuzzJSONString(f *testing.F) {
	f.Add("a\"\\\x00\x1f\x7fé\xff😀\xed\xa0\x80")
	f.Fuzz(func(t *testing.T, s string) {
		var back, want string
		if err := json.Unmarshal(appendJSONString(nil, s), &back); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		for _, r := range s { // each byte that is no UTF-8 is one U+FFFD
			want += string(r)
		}
		if back != want {
			t.Fatalf("%q came back as %q", s, back)
		}
	})
}
