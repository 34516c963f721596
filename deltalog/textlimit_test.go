package deltalog

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestTextsKeepToTheirLength: as Spark 4.2.0 with delta 4.4.0 does it: characters count, at any depth, and nothing is trimmed or padded.
func TestTextsKeepToTheirLength(t *testing.T) {
	t.Parallel()
	ddl := []string{
		"v VARCHAR(3)", "c CHAR(3)", "a ARRAY<VARCHAR(2)>", "st STRUCT<n: INT, x: VARCHAR(2)>", "m MAP<VARCHAR(2),CHAR(2)>",
		"deep ARRAY<STRUCT<m: MAP<INT,ARRAY<CHAR(1)>>>>", "free STRING",
	}
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{}, ddl...)
	for row, column := range map[string]string{
		`{"v":"abc","c":"ab","free":"abcdefgh"}`: "", `{"v":"äöü","c":""}`: "", `{"v":"😀😀😀"}`: "", `{}`: "",
		`{"a":["ab",null],"st":{"n":1,"x":"ab"},"m":[{"key":"ab","value":"x"}],"deep":[{"m":[{"key":1,"value":["x"]}]},null]}`: "",
		`{"v":"abcd"}`: "v", `{"v":"abc  "}`: "v", `{"c":"abcd"}`: "c", `{"v":"😀😀😀😀"}`: "v",
		`{"a":["ab","abc"]}`: "a.element", `{"st":{"x":"abc"}}`: "st.x", `{"m":[{"key":"abc","value":"x"}]}`: "m.key",
		`{"m":[{"key":"ab","value":"xyz"}]}`: "m.value", `{"deep":[null,{"m":[{"key":1,"value":["xy"]}]}]}`: "deep.element.m.value.element",
	} {
		_, err := tab.Append(t.Context(), []arrow.RecordBatch{batch(t, tab.Cached().Schema(), `{}`, row)}, "WRITE")
		if column == "" && err != nil {
			t.Errorf("%s: %v", row, err)
		}
		if column != "" && (!errors.Is(err, ErrInvalidValue) || !strings.Contains(err.Error(), "[DELTA_EXCEED_CHAR_VARCHAR_LIMIT] invalid value: column "+column+": ")) {
			t.Errorf("%s: %v", row, err)
		}
	}
}

// TestDeclaredTypesOfOthers: what a column's metadata says counts as far as it fits the column; what cannot be read stops writers only.
func TestDeclaredTypesOfOthers(t *testing.T) {
	t.Parallel()
	text := func(s string) map[string]json.RawMessage {
		return map[string]json.RawMessage{charTypeKey: json.RawMessage(s)}
	}
	nested := Struct{[]Field{{Name: "X", Type: String, Metadata: text(`"char(1)"`)}, {Name: "y", Type: String}}}
	for name, c := range map[string]struct {
		field Field
		want  string // the limits as JSON; "" for an error
	}{
		"none":                    {Field{Type: String}, `null`},
		"of spark":                {Field{Type: String, Metadata: text(`"varchar(3)"`)}, `{"Type":"varchar(3)","Max":3,"Nested":null}`},
		"longer than any text":    {Field{Type: String, Metadata: text(`"varchar(99999999999)"`)}, `{"Type":"varchar(99999999999)","Max":99999999999,"Nested":null}`},
		"by name":                 {Field{Type: Struct{[]Field{{Name: "new", Type: String}, {Name: "y", Type: String}}}, Metadata: text(`"struct<x:int,Y:char(2)>"`)}, `{"Type":"","Max":0,"Nested":[null,{"Type":"char(2)","Max":2,"Nested":null}]}`},
		"of another type":         {Field{Type: Long, Metadata: text(`"varchar(3)"`)}, `null`},
		"of another shape":        {Field{Type: Array{String, true}, Metadata: text(`"map<varchar(3),int>"`)}, `null`},
		"a struct that was a map": {Field{Type: nested, Metadata: text(`"map<varchar(3),int>"`)}, `null`},
		"beside a nested field":   {Field{Type: Map{Long, Array{nested, true}, true}}, `{"Type":"","Max":0,"Nested":[null,{"Type":"","Max":0,"Nested":[{"Type":"","Max":0,"Nested":[{"Type":"char(1)","Max":1,"Nested":null},null]}]}]}`},
		"without a limit":         {Field{Type: String, Metadata: text(`"string"`)}, `null`},
		"unknown":                 {Field{Type: String, Metadata: text(`"text(3)"`)}, ``},
		"more than a type":        {Field{Type: String, Metadata: text(`"varchar(3) collate x"`)}, ``},
		"no text":                 {Field{Type: String, Metadata: text(`3`)}, ``},
	} {
		limit, err := c.field.TextLimit()
		if c.want == "" {
			if !errors.Is(err, ErrUnsupported) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if got, _ := json.Marshal(limit); err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	st := store.NewMemory()
	createTable(t, st, quiet, TableSpec{}, "v VARCHAR(3)")
	data, err := st.Get(t.Context(), logName(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Put(t.Context(), logName(0), []byte(strings.Replace(string(data), "varchar(3)", "text(3)", 1)), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	tab, err := Open(t.Context(), st, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Commit(t.Context(), Transaction{Base: tab.Cached(), Operation: "WRITE", Adds: []Add{*fileNamed("x")}}); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "text(3)") {
		t.Errorf("commit: %v", err)
	}
}
