package deltalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// newField parses a column.
func newField(t testing.TB, ddl string) Field { return testColumns(t, ddl).Fields[0] }

func TestAddedColumnsAreNullInOldRows(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{Configuration: withFeed}, "id BIGINT NOT NULL", "s STRUCT<x:INT>", "l ARRAY<STRUCT<a:INT>>", "m MAP<STRING,STRUCT<b:INT>>")
	appendRows(t, tab, `{"id":1,"s":{"x":1},"l":[{"a":1}],"m":[{"key":"k","value":{"b":1}}]}`)
	c, err := tab.AddColumns(t.Context(),
		NewColumn{Field: newField(t, "late DECIMAL(4,1)"), After: "id"}, NewColumn{Field: newField(t, "tags ARRAY<STRING>"), First: true},
		NewColumn{Parent: []string{"s"}, Field: newField(t, "y STRING")},
		NewColumn{Parent: []string{"l", "element"}, Field: newField(t, "b INT"), First: true},
		NewColumn{Parent: []string{"m", "value"}, Field: newField(t, "c INT")})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Info().Map("operationParameters")["columns"]; !strings.HasPrefix(got, `[{"column":{"name":"late","type":"decimal(4,1)","nullable":true,"metadata":{}},"position":"AFTER id"},{"column":{"name":"tags","type":"array",`) ||
		!strings.Contains(got, `"name":"s.y"`) || c.Info().String("operation") != "ADD COLUMNS" {
		t.Errorf("parameters %s", got)
	}
	want := []string{
		`{"tags":null,"id":1,"late":null,"s":{"x":1,"y":null},"l":[{"b":null,"a":1}],"m":{"k":{"b":1,"c":null}}}`,
		`{"tags":["t"],"id":2,"late":"1.5","s":{"x":2,"y":"q"},"l":[{"b":2,"a":3}],"m":{"k":{"b":1,"c":2}}}`,
	}
	appendRows(t, tab, `{"tags":["t"],"id":2,"late":"1.5","s":{"x":2,"y":"q"},"l":[{"b":2,"a":3}],"m":[{"key":"k","value":{"b":1,"c":2}}]}`)
	if got := readAll(t, tab, tab.Cached()); !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// Rewriting an old file gives it the new columns.
	if _, err := tab.Delete(t.Context(), Condition{Where: func(rec arrow.RecordBatch) ([]bool, error) { return make([]bool, rec.NumRows()), nil }}); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, tab, tab.Cached()); !slices.Equal(got, want) {
		t.Errorf("after a delete: %s", strings.Join(got, "\n"))
	}
	again, err := Open(t.Context(), tab.Store(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := readAll(t, again, again.Cached()); !slices.Equal(got, want) {
		t.Errorf("opened anew: %s", strings.Join(got, "\n"))
	}
}

func TestAlterations(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{}, "id BIGINT NOT NULL COMMENT 'old'", "s STRUCT<x:INT NOT NULL>")
	check := func(c *Commit, err error) *Commit {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := check(tab.CommentColumn(ctx, []string{"ID"}, "new"))
	if got := c.Info().Map("operationParameters")["column"]; c.Info().String("operation") != "CHANGE COLUMN" || !strings.Contains(got, `"metadata":{"comment":"new"}`) {
		t.Errorf("%s", got)
	}
	check(tab.DropNotNull(ctx, []string{"id"}))
	check(tab.DropNotNull(ctx, []string{"s", "x"}))
	if s, _ := tab.Cached().Schema().MarshalJSON(); string(s) != `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"comment":"new"}},`+
		`{"name":"s","type":{"type":"struct","fields":[{"name":"x","type":"integer","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}}]}` {
		t.Errorf("schema %s", s)
	}
	appendRows(t, tab, `{"id":null,"s":{"x":null}}`)
	check(tab.CommentColumn(ctx, []string{"id"}, ""))
	if s, _ := tab.Cached().Schema().MarshalJSON(); strings.Contains(string(s), "comment") {
		t.Errorf("schema %s", s)
	}
	c = check(tab.SetProperties(ctx, map[string]string{"delta.appendOnly": "true", "mine": "1", "comment": "told"}))
	if got := c.Info().Map("operationParameters")["properties"]; got != `{"comment":"told","delta.appendOnly":"true","mine":"1"}` {
		t.Errorf("%s", got)
	}
	if m := tab.Cached().Metadata(); m.Description != "told" || m.Configuration["mine"] != "1" || m.Configuration["comment"] != "" {
		t.Errorf("%+v", m)
	}
	if _, err := tab.Delete(ctx, Condition{}); err == nil {
		t.Error("deleted from a table that is only appended to")
	}
	c = check(tab.UnsetProperties(ctx, []string{"delta.appendOnly", "nope"}, true))
	if got := c.Info().String("operation"); got != "UNSET TBLPROPERTIES" || tab.Cached().Property("delta.appendOnly") != "" {
		t.Errorf("%s", got)
	}
	check(tab.SetProperties(ctx, map[string]string{"delta.feature.timestampNtz": "supported"}))
	if p := tab.Cached().Protocol(); p.MinReaderVersion != 3 || !slices.Contains(p.ReaderFeatures, "timestampNtz") || tab.Cached().Property("delta.feature.timestampNtz") != "" {
		t.Errorf("%+v", p)
	}
	check(tab.AddColumns(ctx, NewColumn{Field: newField(t, "at TIMESTAMP_NTZ")}))
	appendRows(t, tab, `{"id":2,"s":null,"at":"2020-01-01T00:00:00"}`)
}

func TestAlterationsRefuse(t *testing.T) {
	t.Parallel()
	column := func(ddl string, change ...func(*NewColumn)) func(*Table) error {
		return func(tab *Table) error {
			c := NewColumn{Field: newField(t, ddl)}
			for _, f := range change {
				f(&c)
			}
			_, err := tab.AddColumns(context.Background(), c)
			return err
		}
	}
	property := func(key, value string) func(*Table) error {
		return func(tab *Table) error {
			_, err := tab.SetProperties(context.Background(), map[string]string{key: value})
			return err
		}
	}
	in := func(path ...string) func(*NewColumn) { return func(c *NewColumn) { c.Parent = path } }
	tests := []struct {
		name string
		do   func(*Table) error
		says string
	}{
		{"a column that is there", column("ID INT"), "already"},
		{"NOT NULL", column("n INT NOT NULL"), "NOT NULL"},
		{"within what is no struct", column("n INT", in("id")), "has no fields"},
		{"within what is not there", column("n INT", in("nope")), "no column nope"},
		{"behind what is not there", column("n INT", func(c *NewColumn) { c.After = "nope" }), "no column nope"},
		{"VARCHAR in a struct", column("n VARCHAR(3)", in("s")), "VARCHAR"},
		{"timestamp_ntz without its feature", column("n TIMESTAMP_NTZ"), "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"},
		{"a type that is not written", column("n VARIANT"), "variant"},
		{"a name of the feed", column("_Change_Type STRING"), "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS"},
		{"deletion vectors", property("delta.enableDeletionVectors", "true"), "unsupported"},
		{"an interval that is none", property("delta.logRetentionDuration", "soon"), "interval"},
		{"a flag that is none", property("delta.enableChangeDataFeed", "maybe"), "neither"},
		{"a protocol version", property("delta.minWriterVersion", "5"), "name the feature"},
		{"a constraint", property("delta.constraints.positive", "id > 0"), "checkConstraints"},
		{"a feature that is not written", property("delta.feature.rowTracking", "supported"), "rowTracking"},
		{"a property that is not set", func(tab *Table) error {
			_, err := tab.UnsetProperties(context.Background(), []string{"nope"}, false)
			return err
		}, "DELTA_UNSET_NON_EXISTENT_PROPERTY"},
		{"a comment on no column", func(tab *Table) error {
			_, err := tab.CommentColumn(context.Background(), []string{"nope"}, "x")
			return err
		}, "no column nope"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tab := createTable(t, store.NewMemory(), quiet, TableSpec{Configuration: withFeed}, "id BIGINT NOT NULL", "s STRUCT<x:INT>")
			if err := tt.do(tab); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v", err)
			}
			if v := tab.Cached().Version(); v != 0 {
				t.Errorf("version %d", v)
			}
		})
	}
}

func TestFeedSwitchedOnLater(t *testing.T) {
	t.Parallel()
	on := map[string]string{propChangeDataFeed: "true"}
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{})
	if _, err := tab.SetProperties(t.Context(), on); err != nil || !tab.Cached().ChangeDataFeed() {
		t.Fatalf("%v, %+v", err, tab.Cached().Protocol())
	}
	appendRows(t, tab, id(1), id(2))
	if done, err := tab.Delete(t.Context(), Condition{Where: ids(1)}); err != nil || actionsOf(done.Commit) != "add=1 cdc=1 remove=1" {
		t.Errorf("%v", err)
	}
	reserved := createTable(t, store.NewMemory(), quiet, TableSpec{}, "id BIGINT", "_commit_Version BIGINT")
	if _, err := reserved.SetProperties(t.Context(), on); err == nil || !strings.Contains(err.Error(), "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS") {
		t.Errorf("got %v", err)
	}
	// A table of an old writer.
	old := createTable(t, store.NewMemory(), quiet, TableSpec{})
	if _, err := old.Commit(t.Context(), Transaction{Base: old.Cached(), Operation: "UPGRADE PROTOCOL", Protocol: &Protocol{MinReaderVersion: 1, MinWriterVersion: 2}}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.SetProperties(t.Context(), on); err != nil || old.Cached().Protocol().MinWriterVersion != 4 || !old.Cached().ChangeDataFeed() {
		t.Errorf("%v, %+v", err, old.Cached().Protocol())
	}
}

// TestAlterationsConflict: a change of the schema is met by whoever wrote rows for the one before, an append does not hinder it.
func TestAlterationsConflict(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{})
	base := tab.Cached()
	adds, err := tab.WriteFiles(t.Context(), base, rowsOf(batch(t, base.Schema(), id(1))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tab.AddColumns(t.Context(), NewColumn{Field: newField(t, "n INT")}); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Commit(t.Context(), Transaction{Base: base, Operation: "WRITE", Adds: adds}); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "DELTA_METADATA_CHANGED") {
		t.Errorf("got %v", err)
	}
	if _, err := tab.alter(t.Context(), "ADD COLUMNS", func(a *alteration) (map[string]any, error) {
		appendRows(t, tab, `{"id":1,"p":"x","n":1}`)
		return nil, a.add(NewColumn{Field: newField(t, "m INT")})
	}); err != nil {
		t.Errorf("behind an append: %v", err)
	}
	if _, err := tab.alter(t.Context(), "ADD COLUMNS", func(a *alteration) (map[string]any, error) {
		if _, err := tab.DropNotNull(t.Context(), []string{"id"}); err != nil {
			return nil, err
		}
		return nil, a.add(NewColumn{Field: newField(t, "k INT")})
	}); !errors.Is(err, ErrConflict) {
		t.Errorf("two at once: %v", err)
	}
}
