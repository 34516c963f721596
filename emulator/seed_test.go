package emulator

import (
	"context"
	"strings"
	"testing"

	"github.com/deltabus/deltabus-local/deltalog"
)

const seedText = `
# a seed of everything
catalogs: [dev]
schemas:
  - dev.sales
buses: [dev.events]
tables:
  - name: dev.sales.orders
    comment: what was sold
    columns:
      - id BIGINT NOT NULL
      - {name: price, type: "decimal(10,2)", nullable: false, comment: with tax}
      - {name: tags, type: "array<string>"}
      - day DATE
    partition_by: [day]
    cdf: true
    properties:
      owner.team: sales
  - name: main.other.t
    columns: [x INT]
`

func TestSeed(t *testing.T) {
	t.Parallel()
	seed, err := ParseSeed([]byte(seedText))
	if err != nil {
		t.Fatal(err)
	}
	if len(seed.Buses) != 1 || seed.Buses[0] != "dev.events" {
		t.Errorf("buses %q", seed.Buses)
	}
	dir := t.TempDir()
	for range 2 { // what is there already stays
		e := Run(t, WithDataDir(dir), WithSeed(seed), WithoutListener())
		table, err := e.Table(t.Context(), "dev.sales.orders")
		if err != nil {
			t.Fatal(err)
		}
		snap := table.Cached()
		if got, want := columns(snap.Schema()), `id bigint NOT NULL, price "decimal(10,2)" NOT NULL, tags {"type":"array","elementType":"string","containsNull":true}, day date`; got != want {
			t.Errorf("columns are\n%s, want\n%s", got, want)
		}
		if string(snap.Schema().Fields[1].Metadata["comment"]) != `"with tax"` {
			t.Errorf("metadata %s", snap.Schema().Fields[1].Metadata)
		}
		if !snap.ChangeDataFeed() || snap.Property("owner.team") != "sales" || snap.Metadata().Description != "what was sold" || snap.Version() != 0 {
			t.Errorf("table is %+v at version %d", snap.Metadata(), snap.Version())
		}
		if got := snap.Metadata().PartitionColumns; len(got) != 1 || got[0] != "day" {
			t.Errorf("partitioned by %q", got)
		}
		all, err := e.Workspace().List(t.Context(), "", "")
		if err != nil || len(all) != 2 {
			t.Errorf("tables %v, %v", all, err)
		}
		schemas, err := e.Workspace().Schemas(t.Context(), "DEV")
		if err != nil || strings.Join(schemas, " ") != "sales" {
			t.Errorf("schemas %q, %v", schemas, err)
		}
		catalogs, err := e.Workspace().Catalogs(t.Context())
		if err != nil || strings.Join(catalogs, " ") != "dev main" {
			t.Errorf("catalogs %q, %v", catalogs, err)
		}
		if err := e.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// What is there and differs is an error that says how, and the table stays as it is.
func TestSeedThatDisagrees(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(text string) error {
		t.Helper()
		seed, err := ParseSeed([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		e, err := Start(t.Context(), WithDataDir(dir), WithSeed(seed), WithoutListener())
		if err == nil {
			err = e.Stop(context.Background())
		}
		return err
	}
	if err := start("tables: [{name: main.s.t, columns: [id BIGINT NOT NULL, d DATE], partition_by: [d], cdf: true}]"); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"tables: [{name: main.s.t, columns: [id INT NOT NULL, d DATE], partition_by: [d]}]":                        "other columns: id bigint NOT NULL, d date; not id int NOT NULL",
		"tables: [{name: main.s.t, columns: [id BIGINT, d DATE], partition_by: [d]}]":                              "other columns",
		"tables: [{name: main.s.t, columns: [id BIGINT NOT NULL, d DATE]}]":                                        "other partition columns",
		`tables: [{name: main.s.t, columns: [id BIGINT NOT NULL, d DATE], partition_by: [d], properties: {a: b}}]`: `property a: "", not "b"`,
	} {
		if err := start(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "main.s.t") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := start("tables: [{name: MAIN.S.T, columns: [id BIGINT NOT NULL, d DATE], partition_by: [d]}]"); err != nil {
		t.Errorf("the same table: %v", err)
	}
}

func TestParseSeedRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"catalogs: [a]\nshemas: [a.b]\n":                                             {"shemas", "[2:1]"},
		"tables:\n  - name: main.s.t\n    columns: [id INT]\n    cdc: true":          {"cdc", "[4:5]"},
		"tables: [{name: main.s.t, columns: [{name: a, type: int, nulable: true}]}]": {"nulable"},
		"tables: [{name: main.s.t}]":                                                 {"main.s.t", "columns"},
		"tables: [{name: s.t, columns: [id INT]}]":                                   {"s.t", "2 parts"},
		"tables: [{name: main.s.t, columns: [id NUMBER]}]":                           {"NUMBER"},
		"tables: [{name: main.s.t, columns: [{name: id, type: number}]}]":            {"number", "id"},
		"tables: [{name: main.s.t, columns: [{type: int}]}]":                         {"needs a name"},
		"catalogs: [a-b]":   {"a-b"},
		"schemas: [main]":   {"main", "1 parts"},
		"buses: [main.a.b]": {"main.a.b", "3 parts"},
		"catalogs: {a: b}":  {"catalogs"},
		"[":                 {"seed"},
	} {
		_, err := ParseSeed([]byte(text))
		if err == nil {
			t.Errorf("%s: no error", text)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v; want %q in it", text, err, w)
			}
		}
	}
	for _, empty := range []string{"", "# nothing\n", "{}"} {
		if s, err := ParseSeed([]byte(empty)); err != nil || s == nil {
			t.Errorf("%q: %v", empty, err)
		}
	}
}

func FuzzParseSeed(f *testing.F) {
	f.Add([]byte(seedText))
	f.Add([]byte("tables: [{name: a.b.c, columns: [{name: x, type: int}, y STRING]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSeed(data)
		if err != nil {
			return
		}
		for _, table := range s.Tables {
			spec, err := table.spec()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range spec.Schema.Fields {
				if deltalog.FieldJSON(f) == nil {
					t.Fatalf("field %+v has no JSON", f)
				}
			}
		}
	})
}
