package cdf

import (
	"errors"
	"strings"
	"testing"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

func TestSchemasThatFit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ then, now, want string }{
		{"a INT", "a INT", ""},
		{"a INT; b STRING", "c DATE; B STRING; A INT", ""},
		{"a INT NOT NULL", "a INT", ""},
		{"a INT", "a INT NOT NULL", "column a, which may no longer be null"},
		{"a INT; b INT", "a INT", "column b, which the table no longer has"},
		{"a INT", "a BIGINT", "column a, which is bigint now, not int"},
		{"a DECIMAL(5,2)", "a DECIMAL(6,2)", "decimal(6,2) now"},
		{"a INT", "a ARRAY<INT>", "array<int> now"},
		{"a ARRAY<INT>", "a INT", "is int now"},
		{"s STRUCT<x: INT>", "s STRUCT<y: INT, x: INT>", ""},
		{"s STRUCT<x: INT, y: INT>", "s STRUCT<x: INT>", "column s.y"},
		{"l ARRAY<STRUCT<x: INT>>", "l ARRAY<STRUCT<x: STRING>>", "column l.element.x"},
		{"m MAP<STRING,INT>", "m MAP<BINARY,INT>", "column m.key"},
		{"m MAP<STRING,STRUCT<x: INT>>", "m MAP<STRING,STRUCT<x: INT NOT NULL>>", "column m.value.x"},
	} {
		schema := func(text string) (s deltalog.Struct) {
			for d := range strings.SplitSeq(text, "; ") {
				f, err := deltalog.ParseColumn(d)
				if err != nil {
					t.Fatal(err)
				}
				s.Fields = append(s.Fields, f)
			}
			return s
		}
		err := checkSchema(7, "CLASS", schema(c.then), schema(c.now))
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrIncompatibleSchema) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "version 7")) {
			t.Errorf("%s, then %s: %v", c.then, c.now, err)
		}
	}
}

// alter commits a change of the schema.
func alter(t *testing.T, tab *deltalog.Table, ddl ...string) {
	t.Helper()
	var s deltalog.Struct
	for _, d := range ddl {
		f, err := deltalog.ParseColumn(d)
		if err != nil {
			t.Fatal(err)
		}
		s.Fields = append(s.Fields, f)
	}
	text, err := s.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	m := *tab.Cached().Metadata()
	m.SchemaString = string(text)
	if _, err := tab.Commit(t.Context(), deltalog.Transaction{Base: tab.Cached(), Operation: "CHANGE COLUMN", Metadata: &m}); err != nil {
		t.Fatal(err)
	}
}

// TestSchemaChangesWithin: an added column is null in older rows; rows that would lose or change a column are refused, not read wrongly.
func TestSchemaChangesWithin(t *testing.T) {
	t.Parallel()
	tab := newTable(t, store.NewMemory(), 2, nil)
	alter(t, tab, "id BIGINT", "note STRING") // version 3
	var got []string
	for b, err := range Read(t.Context(), tab, versions(1, -1), []string{"note", "id"}) {
		if err != nil {
			t.Fatal(err)
		}
		row, err := deltalog.AppendRowJSON(nil, b.Rows, 0)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(row))
	}
	if strings.Join(got, " ") != `{"note":null,"id":0} {"note":null,"id":1}` {
		t.Errorf("an added column: %s", got)
	}

	follower := Follow(tab, 0, nil)
	if v, err := follower.Next(t.Context()); err != nil || v.Version != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	alter(t, tab, "id STRING", "note STRING") // version 4
	for _, c := range []struct {
		from, to int64
		class    string
	}{{1, -1, "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE"}, {3, 3, "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA"}} {
		if err := second(read(tab, versions(c.from, c.to))); !errors.Is(err, ErrIncompatibleSchema) || !strings.Contains(err.Error(), c.class) {
			t.Errorf("%d to %d: %v", c.from, c.to, err)
		}
	}
	if got, err := read(tab, versions(4, -1)); err != nil || got != "" {
		t.Errorf("from the change on: %q, %v", got, err)
	}
	if v, err := follower.Next(t.Context()); !errors.Is(err, ErrIncompatibleSchema) || !strings.Contains(err.Error(), "version 3") {
		t.Errorf("a follower that is behind: %+v, %v", v, err)
	}
	if v, err := Follow(tab, 3, nil).Next(t.Context()); err != nil || v.Version != 4 {
		t.Errorf("a follower from the change on: %+v, %v", v, err)
	}
}

func second[T any](_ T, err error) error { return err }
