package deltalog

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParseType(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]DataType{
		"BIGINT": Long, "long": Long, "Int": Integer, "INTEGER": Integer, "smallint": Short, "TINYINT": Byte, "real": Float,
		"FLOAT": Float, "double": Double, "boolean": Boolean, "string": String, "binary": Binary, "date": Date,
		"timestamp": Timestamp, "TIMESTAMP_NTZ": TimestampNTZ, "variant": Variant, "void": Void,
		"decimal": Decimal{10, 0}, "NUMERIC(5)": Decimal{5, 0}, " dec ( 38 , 37 ) ": Decimal{38, 37}, "varchar(20)": String,
		"ARRAY<INT>":              Array{Integer, true},
		"map<string,array<date>>": Map{String, Array{Date, true}, true},
		"STRUCT<a: INT NOT NULL, `b c` STRING COMMENT 'it''s', c:array<struct<x:double>>>": Struct{[]Field{
			{Name: "a", Type: Integer},
			{Name: "b c", Type: String, Nullable: true, Metadata: map[string]json.RawMessage{"comment": []byte(`"it's"`)}},
			{Name: "c", Type: Array{Struct{[]Field{{Name: "x", Type: Double, Nullable: true}}}, true}, Nullable: true},
		}},
	} {
		got, err := ParseType(sql)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, %v", sql, got, err)
		}
	}
}

func TestParseColumn(t *testing.T) {
	t.Parallel()
	meta := func(kv ...string) map[string]json.RawMessage {
		m := map[string]json.RawMessage{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = []byte(kv[i+1])
		}
		return m
	}
	for sql, want := range map[string]Field{
		"id BIGINT NOT NULL":             {Name: "id", Type: Long},
		"id bigint not null comment 'x'": {Name: "id", Type: Long, Metadata: meta("comment", `"x"`)},
		"n INT NULL":                     {Name: "n", Type: Integer, Nullable: true},
		"`a``b.c` STRING":                {Name: "a`b.c", Type: String, Nullable: true},
		"date date":                      {Name: "date", Type: Date, Nullable: true},
		"größe DOUBLE":                   {Name: "größe", Type: Double, Nullable: true},
		"v VARCHAR(5)":                   {Name: "v", Type: String, Nullable: true, Metadata: meta("__CHAR_VARCHAR_TYPE_STRING", `"varchar(5)"`)},
		"c CHARACTER(3) NOT NULL":        {Name: "c", Type: String, Metadata: meta("__CHAR_VARCHAR_TYPE_STRING", `"char(3)"`)},
		// As Spark 4.2.0 with delta 4.4.0 writes them: the whole type, beside the column.
		"a ARRAY<VARCHAR(2)>":                             {Name: "a", Type: Array{String, true}, Nullable: true, Metadata: meta("__CHAR_VARCHAR_TYPE_STRING", `"array<varchar(2)>"`)},
		"s STRUCT<x: VARCHAR(2) COMMENT 'y', `a-b`: INT>": {Name: "s", Type: Struct{[]Field{{Name: "x", Type: String, Nullable: true, Metadata: meta("comment", `"y"`)}, {Name: "a-b", Type: Integer, Nullable: true}}}, Nullable: true, Metadata: meta("__CHAR_VARCHAR_TYPE_STRING", "\"struct<x:varchar(2),`a-b`:int>\"")},
		"m MAP<VARCHAR(2),CHAR(2)>":                       {Name: "m", Type: Map{String, String, true}, Nullable: true, Metadata: meta("__CHAR_VARCHAR_TYPE_STRING", `"map<varchar(2),char(2)>"`)},
	} {
		got, err := ParseColumn(sql)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %#v, %v", sql, got, err)
		}
	}
}

func TestParseColumnErrors(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"":                             "expected a name",
		"id":                           "a type is missing",
		"id BIGNT":                     `unknown type "BIGNT"`,
		"id BIGINT NOT":                `expected "NULL"`,
		"id BIGINT 5":                  `unexpected "5"`,
		"id DECIMAL(40,2)":             "precision is 1 to 38",
		"id DECIMAL(4,2,1)":            "at most 2 numbers",
		"id DECIMAL(x)":                "expected a number",
		"id VARCHAR":                   "wants a length",
		"id ARRAY":                     `expected "<"`,
		"id ARRAY<INT":                 `expected ">"`,
		"id MAP<INT>":                  `expected ","`,
		"id STRUCT<>":                  "needs a field",
		"id STRUCT<a INT":              `expected ","`,
		"`id BIGINT":                   "quoted name does not end",
		"id STRING COMMENT x":          "wants a quoted text",
		"id INT DEFAULT 5":             "DEFAULT: unsupported",
		"id INT GENERATED ALWAYS":      "GENERATED: unsupported",
		"id STRING COLLATE UTF8_LCASE": "COLLATE: unsupported",
		"id " + strings.Repeat("ARRAY<", 200) + "INT": "nested too deeply",
	} {
		_, err := ParseColumn(sql)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", sql, err, want)
		}
		if strings.Contains(want, "unsupported") && !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: %v is not ErrUnsupported", sql, err)
		}
	}
}

func FuzzParseColumn(f *testing.F) {
	for _, s := range []string{"id BIGINT NOT NULL", "s STRUCT<a: INT NOT NULL, `b` MAP<STRING,ARRAY<DECIMAL(3,1)>>> COMMENT 'x''y'", "v VARCHAR(3)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		c, err := ParseColumn(sql)
		if err != nil {
			return
		}
		if c.Name == "" || c.Type == nil {
			t.Fatalf("%q: %#v", sql, c)
		}
		// What the schema JSON says must read back the same.
		back, err := ParseSchema([]byte(`{"type":"struct","fields":[` + string(FieldJSON(c)) + `]}`))
		if err != nil || back.Fields[0].Type.SQL() != c.Type.SQL() {
			t.Fatalf("%q: %v, %v", sql, back, err)
		}
	})
}
