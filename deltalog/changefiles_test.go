package deltalog

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

var withFeed = map[string]string{propChangeDataFeed: "true"}

// storedColumns are the columns that a file itself has.
func storedColumns(t *testing.T, tab *Table, path string) []string {
	t.Helper()
	name, err := DataName(tab.Store(), path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := tab.Store().Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pf, err := parquet.OpenFile(f, f.Size())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range pf.Root().Columns() {
		out = append(out, c.Name())
	}
	return out
}

func TestChangeFilesAreWhereReadersExpectThem(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{Configuration: withFeed, PartitionColumns: []string{"p"}})
	rows := batch(t, tab.Cached().Schema(), `{"id":1,"p":"a/b"}`, `{"id":2,"p":null}`)
	files, err := tab.WriteChangeFiles(t.Context(), tab.Cached(), []ChangedRows{{ChangePreimage, rows}, {ChangePostimage, rows}})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 || files[0].DataChange || *files[0].PartitionValues["p"] != "a/b" || files[1].PartitionValues["p"] != nil {
		t.Fatalf("%+v", files)
	}
	for i, dir := range []string{"p=a%252Fb", "p=__HIVE_DEFAULT_PARTITION__"} {
		if want := regexp.MustCompile(`^_change_data/` + dir + `/cdc-00000-[0-9a-f-]{36}\.c000\.snappy\.parquet$`); !want.MatchString(files[i].Path) {
			t.Errorf("path %s", files[i].Path)
		}
	}
	if got := storedColumns(t, tab, files[0].Path); !slices.Equal(got, []string{"id", "_change_type"}) {
		t.Errorf("stored %v", got)
	}
	c, err := tab.Commit(t.Context(), Transaction{Base: tab.Cached(), Operation: "UPDATE", ReadTable: true, Changes: files})
	if err != nil {
		t.Fatal(err)
	}
	data, err := tab.Store().Get(t.Context(), logName(c.Version))
	if err != nil || !strings.Contains(string(data), `{"cdc":{"path":"`+files[1].Path+`","partitionValues":{"p":null},"size":`) || !strings.Contains(string(data), `"dataChange":false`) {
		t.Errorf("%v\n%s", err, data)
	}
}

// TestWritersOfDataAndChangesAreApart: a pooled writer of change files never writes a data file.
func TestWritersOfDataAndChangesAreApart(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{Configuration: withFeed})
	rows := batch(t, tab.Cached().Schema(), id(1))
	for range 3 {
		files, err := tab.WriteChangeFiles(t.Context(), tab.Cached(), []ChangedRows{{ChangeInsert, rows}})
		if err != nil {
			t.Fatal(err)
		}
		adds, err := tab.writeFiles(t.Context(), tab.Cached(), rowsOf(rows))
		if err != nil {
			t.Fatal(err)
		}
		if got := storedColumns(t, tab, files[0].Path); !slices.Equal(got, []string{"id", "p", "_change_type"}) {
			t.Errorf("change file: %v", got)
		}
		if got := storedColumns(t, tab, adds[0].Path); !slices.Equal(got, []string{"id", "p"}) {
			t.Errorf("data file: %v", got)
		}
	}
}

func TestChangeFilesWantTheFeed(t *testing.T) {
	t.Parallel()
	off := createTable(t, store.NewMemory(), quiet, TableSpec{})
	rows := batch(t, off.Cached().Schema(), id(1))
	if _, err := off.WriteChangeFiles(t.Context(), off.Cached(), []ChangedRows{{ChangeInsert, rows}}); err == nil {
		t.Error("written without a feed")
	}
	change := []CDC{{Path: "_change_data/x.parquet", PartitionValues: map[string]*string{}}}
	if _, err := off.Commit(t.Context(), Transaction{Base: off.Cached(), Operation: "DELETE", Changes: change}); err == nil {
		t.Error("committed without a feed")
	}
	on := createTable(t, store.NewMemory(), quiet, TableSpec{Configuration: withFeed})
	if _, err := on.WriteChangeFiles(t.Context(), on.Cached(), []ChangedRows{{"upsert", rows}}); err == nil {
		t.Error("an unknown change type was written")
	}
	if _, err := on.Commit(t.Context(), Transaction{Base: on.Cached(), Operation: "OPTIMIZE", NoDataChange: true, Changes: change}); err == nil {
		t.Error("a rearrangement has changes")
	}
}

// TestFeedSwitchedUnderARewrite: who decided without change files may not commit after the feed came on, and the other way round.
func TestFeedSwitchedUnderARewrite(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{Configuration: withFeed})
	appendRows(t, tab, id(1))
	base := tab.Cached()
	off := *base.Metadata()
	off.Configuration = map[string]string{}
	if _, err := tab.Commit(t.Context(), Transaction{Base: base, Operation: "SET TBLPROPERTIES", Metadata: &off}); err != nil {
		t.Fatal(err)
	}
	tx := Transaction{Base: base, Operation: "DELETE", ReadTable: true}
	for a := range base.Files() {
		tx.Removes = append(tx.Removes, a)
	}
	if _, err := tab.Commit(t.Context(), tx); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "DELTA_METADATA_CHANGED") {
		t.Errorf("got %v", err)
	}
}
