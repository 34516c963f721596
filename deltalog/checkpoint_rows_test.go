package deltalog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestCheckpointHoldsEveryField that a snapshot has, nulls apart from empty values.
func TestCheckpointHoldsEveryField(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	number := func(n int64) *int64 { return &n }
	now := time.Now().UnixMilli()
	for name, protocol := range map[string]*Protocol{
		"legacy":         {MinReaderVersion: 1, MinWriterVersion: 4},
		"named features": {MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"timestampNtz"}, WriterFeatures: []string{"timestampNtz", "domainMetadata", "rowTracking"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := store.NewMemory()
			tab := createTable(t, st, quiet, TableSpec{Name: "n", Description: "d", PartitionColumns: []string{"p"}, Configuration: map[string]string{"a.b": "", "c": "d"}})
			actions := []Action{
				{Protocol: protocol},
				{Add: &Add{
					Path: "p=a/x%20y", PartitionValues: map[string]*string{"p": text("a")}, Size: 1 << 40, ModificationTime: 5, Stats: `{"numRecords":1}`,
					Tags: map[string]string{"k": "v", "empty": ""}, BaseRowID: number(0), DefaultRowCommitVersion: number(7), ClusteringProvider: "liquid",
				}},
				{Add: &Add{Path: "none", PartitionValues: map[string]*string{"p": nil}}},
				{Add: &Add{Path: "empty", PartitionValues: map[string]*string{"p": text("")}}},
				{Remove: &Remove{Path: "gone", DeletionTimestamp: &now, ExtendedFileMetadata: true, PartitionValues: map[string]*string{"p": nil}, Size: number(0)}},
				{Txn: &Txn{AppID: "a", Version: -1}},
				{Txn: &Txn{AppID: "b", Version: 1 << 50, LastUpdated: &now}},
				{DomainMetadata: &DomainMetadata{Domain: "dom", Configuration: `{"x":1}`}},
			}
			s, err := tab.Cached().next(&Commit{Version: 1, Timestamp: time.Now(), Actions: actions})
			if err != nil {
				t.Fatal(err)
			}
			if err := tab.Checkpoint(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			want := canonical(t, append(actions, Action{Metadata: s.metadata}))
			got, err := tab.readCheckpoint(t.Context(), classic(1))
			if err != nil {
				t.Fatal(err)
			}
			if got := canonical(t, got); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func canonical(t *testing.T, actions []Action) []string {
	t.Helper()
	var out []string
	for _, a := range actions {
		data, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(data))
	}
	slices.Sort(out)
	return out
}

// TestCheckpointSchema is what Spark and delta-rs select from by name: structs that are null as a whole where they do not apply, maps as
// key_value, lists in three levels.
func TestCheckpointSchema(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tab := history(t, st)
	f, err := st.Open(t.Context(), checkpointName(7))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	pf, err := parquet.OpenFile(f, f.Size())
	if err != nil {
		t.Fatal(err)
	}
	columns := map[string]bool{}
	for _, path := range pf.Schema().Columns() {
		columns[strings.Join(path, ".")] = true
	}
	for _, name := range []string{
		"txn.appId", "add.partitionValues.key_value.key", "add.partitionValues.key_value.value", "add.tags.key_value.value", "add.deletionVector.storageType",
		"remove.deletionTimestamp", "metaData.partitionColumns.list.element", "metaData.format.options.key_value.key", "metaData.configuration.key_value.value",
		"protocol.readerFeatures.list.element", "protocol.writerFeatures.list.element", "domainMetadata.domain",
	} {
		if !columns[name] {
			t.Errorf("no column %s in %v", name, pf.Schema().Columns())
		}
	}
	rows := make([]checkpointRow, pf.NumRows())
	if n, err := parquet.NewGenericReader[checkpointRow](f).Read(rows); n != len(rows) {
		t.Fatal(n, err)
	}
	kinds := map[string]int{}
	for _, r := range rows {
		kind, set := "", 0
		for name, there := range map[string]bool{"txn": r.Txn != nil, "add": r.Add != nil, "remove": r.Remove != nil, "metaData": r.Metadata != nil, "protocol": r.Protocol != nil, "domainMetadata": r.DomainMetadata != nil} {
			if there {
				kind = name
				set++
			}
		}
		kinds[kind]++
		if set != 1 {
			t.Errorf("a row of %d actions", set)
		}
		if r.Add != nil && (r.Add.DeletionVector != nil || r.Add.DataChange || r.Add.Stats == nil) {
			t.Errorf("add %+v", r.Add)
		}
		if r.Remove != nil && (r.Remove.DeletionVector != nil || r.Remove.DataChange) {
			t.Errorf("remove %+v", r.Remove)
		}
		if r.Protocol != nil && (r.Protocol.ReaderFeatures != nil || len(r.Protocol.WriterFeatures) != 3) {
			t.Errorf("protocol %+v", r.Protocol)
		}
	}
	if got, want := fmt.Sprint(kinds), fmt.Sprint(map[string]int{"add": tab.Cached().NumFiles() - 1, "remove": 3, "txn": 1, "metaData": 1, "protocol": 1}); got != want {
		t.Errorf("rows %s, want %s", got, want)
	}
}

// TestEmptyFeatureLists are no missing ones: the log and its checkpoint say so.
func TestEmptyFeatureLists(t *testing.T) {
	t.Parallel()
	const line = `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":[]}}`
	actions, err := ParseCommit([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := encodeCommit(actions); err != nil || string(out) != line+"\n" {
		t.Errorf("%s, %v", out, err)
	}
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{})
	s, err := tab.Cached().next(&Commit{Version: 1, Timestamp: time.Now(), Actions: actions})
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Checkpoint(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	got, err := tab.readCheckpoint(t.Context(), classic(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range got {
		if p := a.Protocol; p != nil && (p.ReaderFeatures == nil || p.WriterFeatures == nil) {
			t.Errorf("from the checkpoint: %+v", p)
		}
	}
}

// TestExpressionsAreRefused for writing, at any depth.
func TestExpressionsAreRefused(t *testing.T) {
	t.Parallel()
	field := func(key string) Field {
		return Field{Name: "x", Type: Long, Nullable: true, Metadata: map[string]json.RawMessage{key: json.RawMessage(`"y"`)}}
	}
	for name, s := range map[string]Struct{
		"top":    {Fields: []Field{field("delta.generationExpression")}},
		"struct": {Fields: []Field{{Name: "s", Type: Struct{Fields: []Field{field("delta.invariants")}}}}},
		"array":  {Fields: []Field{{Name: "s", Type: Array{Element: Struct{Fields: []Field{field("delta.invariants")}}}}}},
		"map":    {Fields: []Field{{Name: "s", Type: Map{Key: String, Value: Struct{Fields: []Field{field("CURRENT_DEFAULT")}}}}}},
	} {
		err := checkWritable(&Protocol{MinReaderVersion: 1, MinWriterVersion: 2}, &Metadata{}, s)
		if err == nil || !strings.Contains(err.Error(), "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE") || !strings.Contains(err.Error(), "x has") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
