package deltalog

import (
	"fmt"
	"maps"
	"testing"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestCheckpointOfManyFilesReadsBack: over several pages, with texts longer than a chunk, partitions that are shared, null or look alike, and tags and
// vectors that few files have.
func TestCheckpointOfManyFilesReadsBack(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tab := createTable(t, st, quiet, TableSpec{PartitionColumns: []string{"p", "q"}}, "id BIGINT", "p STRING", "q STRING")
	want := map[string]*Add{}
	var actions []Action
	for i := range 5_000 {
		p, q := fmt.Sprint(i%3), `"",`
		add := &Add{Path: fmt.Sprintf("part-%036d", i), Size: int64(i), ModificationTime: int64(2 * i), PartitionValues: map[string]*string{"p": &p, "q": nil}}
		switch i % 4 {
		case 1:
			add.PartitionValues["q"] = &q
		case 2:
			add.PartitionValues = map[string]*string{"q": &p, "p": nil}
		}
		if i%1000 == 7 {
			add.Stats = fmt.Sprintf(`{"numRecords":%d,"minValues":{"x":"%05000d"}}`, i, i)
			add.Tags = map[string]string{"k": "v"}
		}
		if i%1000 == 8 {
			row := int64(i)
			add.BaseRowID, add.DeletionVector = &row, &DeletionVector{StorageType: "u", PathOrInlineDV: "x", SizeInBytes: 1, Cardinality: 2}
		}
		want[add.Path] = add
		actions = append(actions, Action{Add: add})
	}
	s, err := tab.Cached().next(&Commit{Version: 1, Actions: actions})
	if err != nil {
		t.Fatal(err)
	}
	if err := tab.Checkpoint(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	got, err := newTable(st, tab.opts).readCheckpoint(t.Context(), classic(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range got {
		if a.Add == nil {
			continue
		}
		w := want[a.Add.Path]
		if w == nil {
			t.Fatalf("%s is there twice, or was never", a.Add.Path)
		}
		if string(mustJSON(a.Add)) != string(mustJSON(w)) || !maps.EqualFunc(a.Add.PartitionValues, w.PartitionValues, func(x, y *string) bool { return (x == nil) == (y == nil) }) {
			t.Fatalf("got %s, want %s", mustJSON(a.Add), mustJSON(w))
		}
		delete(want, a.Add.Path)
	}
	if len(want) > 0 {
		t.Errorf("%d files are missing", len(want))
	}
}
