package deltalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// v2Row is a row of a V2 checkpoint as others write it.
type v2Row struct {
	checkpointRow
	V2      *v2MetadataRow `parquet:"checkpointMetadata,optional"`
	Sidecar *v2SidecarRow  `parquet:"sidecar,optional"`
}

type v2MetadataRow struct {
	Version int64             `parquet:"version"`
	Tags    map[string]string `parquet:"tags,optional"`
}

type v2SidecarRow struct {
	Path             string `parquet:"path"`
	SizeInBytes      int64  `parquet:"sizeInBytes"`
	ModificationTime int64  `parquet:"modificationTime"`
}

// sidecarRow is a row of a sidecar: it has no other columns.
type sidecarRow struct {
	Add    *checkpointAdd    `parquet:"add,optional"`
	Remove *checkpointRemove `parquet:"remove,optional"`
}

func parquetOf[T any](t testing.TB, rows []T) string {
	t.Helper()
	var out bytes.Buffer
	w := parquet.NewGenericWriter[T](&out)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// jsonOf is rows of a V2 checkpoint as JSON.
func jsonOf(t testing.TB, rows []v2Row) string {
	t.Helper()
	var out strings.Builder
	for _, r := range rows {
		var action any
		switch {
		case r.V2 != nil:
			action = map[string]any{"checkpointMetadata": map[string]any{"version": r.V2.Version, "tags": r.V2.Tags}}
		case r.Sidecar != nil:
			action = map[string]any{"sidecar": map[string]any{"path": r.Sidecar.Path, "sizeInBytes": r.Sidecar.SizeInBytes, "modificationTime": 1, "tags": nil}}
		case r.Add != nil:
			action = Action{Add: &Add{Path: r.Add.Path, PartitionValues: r.Add.PartitionValues, Size: r.Add.Size, ModificationTime: r.Add.ModificationTime, Stats: *r.Add.Stats}}
		case r.Remove != nil:
			action = Action{Remove: &Remove{Path: r.Remove.Path, DeletionTimestamp: r.Remove.DeletionTimestamp, PartitionValues: r.Remove.PartitionValues, Size: r.Remove.Size}}
		case r.Txn != nil:
			action = Action{Txn: &Txn{r.Txn.AppID, r.Txn.Version, r.Txn.LastUpdated}}
		case r.Metadata != nil:
			m := r.Metadata
			action = Action{Metadata: &Metadata{ID: m.ID, Format: Format{Provider: "parquet"}, SchemaString: m.SchemaString, PartitionColumns: m.PartitionColumns, Configuration: m.Configuration, CreatedTime: m.CreatedTime}}
		case r.Protocol != nil:
			p := r.Protocol
			action = Action{Protocol: &Protocol{int(p.MinReaderVersion), int(p.MinWriterVersion), p.ReaderFeatures, p.WriterFeatures}}
		}
		line, err := json.Marshal(action)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(line, '\n'))
	}
	return out.String()
}

const (
	uuid1 = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"
	uuid2 = "80a083e8-7026-4e79-81be-64bd76c43a11"
)

// uuidName is the name of a V2 checkpoint.
func uuidName(version int64, id, ending string) string {
	return fmt.Sprintf("%s%020d.checkpoint.%s.%s", logDir, version, id, ending)
}

// rowsAt are what checkpoints of history's version 7 hold, files apart from the rest.
func rowsAt(t *testing.T, tab *Table) (head, files []v2Row) {
	t.Helper()
	s, err := tab.SnapshotAt(t.Context(), 7)
	if err != nil {
		t.Fatal(err)
	}
	head = append(head, v2Row{V2: &v2MetadataRow{Version: 7, Tags: map[string]string{"numOfAddFiles": fmt.Sprint(s.NumFiles())}}})
	for _, r := range s.headRows(tab.opts.Clock()) {
		if r.Remove != nil {
			files = append(files, v2Row{checkpointRow: r})
		} else {
			head = append(head, v2Row{checkpointRow: r})
		}
	}
	for add := range s.Files() {
		files = append(files, v2Row{checkpointRow: checkpointRow{Add: toCheckpointAdd(add)}})
	}
	return head, files
}

func sidecarsOf(t *testing.T, st store.Store, files []v2Row, parts int) (rows []v2Row) {
	t.Helper()
	for part := range parts {
		var in []sidecarRow
		for i, f := range files {
			if i%parts == part {
				in = append(in, sidecarRow{f.Add, f.Remove})
			}
		}
		name := fmt.Sprintf("part %d.parquet", part)
		data := parquetOf(t, in)
		put(t, st, sidecarDir+name, data)
		rows = append(rows, v2Row{Sidecar: &v2SidecarRow{Path: strings.ReplaceAll(name, " ", "%20"), SizeInBytes: int64(len(data))}})
	}
	return rows
}

// multiPartOf writes rows as a checkpoint of many parts, one of which may be left out.
func multiPartOf(t *testing.T, st store.Store, rows []v2Row, parts, without int) {
	t.Helper()
	for part := range parts {
		var in []checkpointRow
		for i, r := range rows {
			if i%parts == part && r.V2 == nil {
				in = append(in, r.checkpointRow)
			}
		}
		if part+1 != without {
			put(t, st, multiPartName(7, part+1, parts), parquetOf(t, in))
		}
	}
}

// TestCheckpointKinds: each kind of checkpoint gives the table that the commits gave, when it is all that is left of them, found by the hint and
// without it.
func TestCheckpointKinds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hint  string
		write func(t *testing.T, st store.Store, head, files []v2Row)
	}{
		"JSON, sidecars": {`{"version":7,"v2Checkpoint":{"path":"` + strings.TrimPrefix(uuidName(7, uuid1, "json"), logDir) + `"}}`, func(t *testing.T, st store.Store, head, files []v2Row) {
			put(t, st, uuidName(7, uuid1, "json"), jsonOf(t, append(head, sidecarsOf(t, st, files, 3)...)))
		}},
		"JSON, inline": {`{"version":7,"v2Checkpoint":{}}`, func(t *testing.T, st store.Store, head, files []v2Row) {
			put(t, st, uuidName(7, uuid1, "json"), jsonOf(t, append(files, head...)))
		}},
		"Parquet, sidecars": {`{"version":7,"v2Checkpoint":{"path":"../x"}}`, func(t *testing.T, st store.Store, head, files []v2Row) {
			put(t, st, uuidName(7, uuid1, "parquet"), parquetOf(t, append(sidecarsOf(t, st, files, 2), head...)))
		}},
		"Parquet, inline": {`{"version":7,"parts":3}`, func(t *testing.T, st store.Store, head, files []v2Row) {
			put(t, st, uuidName(7, uuid1, "parquet"), parquetOf(t, append(head, files...)))
		}},
		"classic name, sidecars": {`{"version":7}`, func(t *testing.T, st store.Store, head, files []v2Row) {
			put(t, st, checkpointName(7), parquetOf(t, append(head, sidecarsOf(t, st, files, 1)...)))
		}},
		"multi-part": {`{"version":7,"parts":4}`, func(t *testing.T, st store.Store, head, files []v2Row) {
			multiPartOf(t, st, append(head, files...), 4, 0)
		}},
		"one part": {`{"version":7,"parts":1}`, func(t *testing.T, st store.Store, head, files []v2Row) {
			multiPartOf(t, st, append(head, files...), 1, 0)
		}},
		"all kinds, the preferred ones broken": {`{"version":7}`, func(t *testing.T, st store.Store, head, files []v2Row) {
			put(t, st, uuidName(7, uuid2, "parquet"), "PAR1")
			put(t, st, uuidName(7, uuid1, "json"), jsonOf(t, head[1:]))
			put(t, st, checkpointName(7), "")
			multiPartOf(t, st, append(head, files...), 5, 2)
			multiPartOf(t, st, append(head, files...), 3, 0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := store.NewMemory()
			tab := history(t, st)
			want := describe(t, tab)
			head, files := rowsAt(t, tab)
			del(t, st, checkpointName(7))
			c.write(t, st, head, files)
			delCommits(t, st, 0, 7)
			for _, hint := range []string{c.hint, "{"} {
				put(t, st, lastCheckpointName, hint)
				again, err := Open(t.Context(), st, quiet)
				if err != nil {
					t.Fatalf("%s: %v", hint, err)
				}
				if got := describe(t, again); got != want {
					t.Errorf("%s:\ngot  %s\nwant %s", hint, got, want)
				}
			}
		})
	}
}

// TestCheckpointThatDoesNotHoldTogether is passed over while the commits are there, and refused, naming why, when it is the only way. None gives part of a
// table.
func TestCheckpointThatDoesNotHoldTogether(t *testing.T) {
	t.Parallel()
	for why, write := range map[string]func(t *testing.T, st store.Store, head, files []v2Row){
		"no checkpointMetadata": func(t *testing.T, st store.Store, head, files []v2Row) {
			put(t, st, uuidName(7, uuid1, "json"), jsonOf(t, append(head[1:], files...)))
		},
		"2 checkpointMetadata": func(t *testing.T, st store.Store, head, files []v2Row) {
			put(t, st, uuidName(7, uuid1, "parquet"), parquetOf(t, append(append(head, head[0]), files...)))
		},
		"checkpointMetadata of version 6": func(t *testing.T, st store.Store, head, files []v2Row) {
			head[0].V2.Version = 6
			put(t, st, uuidName(7, uuid1, "json"), jsonOf(t, append(head, files...)))
		},
		"in sidecars and beside them": func(t *testing.T, st store.Store, head, files []v2Row) {
			rows := append(sidecarsOf(t, st, files[1:], 2), head...)
			put(t, st, uuidName(7, uuid1, "json"), jsonOf(t, append(rows, files[:1]...)))
		},
		"is missing": func(t *testing.T, st store.Store, head, files []v2Row) {
			put(t, st, checkpointName(7), parquetOf(t, append(head, sidecarsOf(t, st, files, 2)...)))
			del(t, st, sidecarDir+"part 1.parquet")
		},
		"holds more than files": func(t *testing.T, st store.Store, head, files []v2Row) {
			put(t, st, uuidName(7, uuid1, "json"), jsonOf(t, append(head, sidecarsOf(t, st, files, 1)...)))
			put(t, st, sidecarDir+"part 0.parquet", parquetOf(t, append(head[1:], files...)))
		},
		"its checkpointMetadata says": func(t *testing.T, st store.Store, head, files []v2Row) { // cut off between two lines
			rows := append(head, sidecarsOf(t, st, files, 3)...)
			put(t, st, uuidName(7, uuid1, "json"), jsonOf(t, rows[:len(rows)-1]))
		},
		"line 3": func(t *testing.T, st store.Store, head, files []v2Row) {
			put(t, st, uuidName(7, uuid1, "json"), jsonOf(t, head)+"{")
			head = head[:2]
			put(t, st, uuidName(7, uuid1, "json"), jsonOf(t, head)+`{"sidecar":{}}`)
		},
		"DELTA_MISSING_PART_FILES": func(t *testing.T, st store.Store, head, files []v2Row) {
			multiPartOf(t, st, append(head, files...), 3, 2)
		},
		"no metaData": func(t *testing.T, st store.Store, head, files []v2Row) {
			head = slices.DeleteFunc(head, func(r v2Row) bool { return r.Metadata != nil })
			multiPartOf(t, st, append(head, files...), 2, 0)
		},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			st := store.NewMemory()
			tab := history(t, st)
			want := describe(t, tab)
			head, files := rowsAt(t, tab)
			del(t, st, checkpointName(7))
			write(t, st, head, files)
			for _, hint := range []string{`{"version":7}`, `{"version":7,"parts":3}`, "{"} {
				put(t, st, lastCheckpointName, hint)
				again, err := Open(t.Context(), st, quiet)
				if err != nil {
					t.Fatalf("all commits there: %v", err)
				}
				if got := describe(t, again); got != want {
					t.Errorf("all commits there:\ngot  %s\nwant %s", got, want)
				}
			}
			delCommits(t, st, 0, 6)
			for _, hint := range []string{`{"version":7}`, `{"version":7,"parts":3}`, "{"} {
				put(t, st, lastCheckpointName, hint)
				if again, err := Open(t.Context(), st, quiet); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), why) {
					t.Errorf("the only way, hint %s: %v, %v", hint, again, err)
				}
			}
		})
	}
}

// TestCheckpointPreference: of several checkpoints of one version every reader takes the same.
func TestCheckpointPreference(t *testing.T) {
	t.Parallel()
	var l checkpointListing
	names := []string{
		multiPartName(9, 1, 2), multiPartName(9, 1, 3), multiPartName(9, 2, 2), multiPartName(9, 2, 3), multiPartName(9, 3, 3),
		uuidName(9, uuid1, "json"), uuidName(9, uuid2, "parquet"), checkpointName(9), multiPartName(9, 1, 4),
		checkpointName(8), uuidName(8, uuid1, "parquet"), multiPartName(11, 2, 2),
	}
	slices.Sort(names)
	for _, n := range names {
		l.add(n, parseLogName(n))
	}
	var got []string
	for _, c := range l.byPreference() {
		got = append(got, fmt.Sprint(len(c.names), " ", c.names[0]))
	}
	want := []string{
		"1 " + uuidName(9, uuid2, "parquet"), "1 " + uuidName(9, uuid1, "json"), "1 " + checkpointName(9), "3 " + multiPartName(9, 1, 3), "2 " + multiPartName(9, 1, 2),
		"1 " + uuidName(8, uuid1, "parquet"), "1 " + checkpointName(8),
	}
	if !slices.Equal(got, want) || l.incomplete() != 11 {
		t.Errorf("got\n%s\nwant\n%s\nincomplete %d", strings.Join(got, "\n"), strings.Join(want, "\n"), l.incomplete())
	}
}

// TestRestOfACleanedLog: commits that a cleanup left at the beginning are not taken for a later version.
func TestRestOfACleanedLog(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	history(t, st)
	delCommits(t, st, 3, 6)
	tab, err := Open(t.Context(), st, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := tab.SnapshotAt(t.Context(), 2); err != nil || s.Version() != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := tab.SnapshotAt(t.Context(), 5); !errors.Is(err, ErrVersionNotFound) {
		t.Errorf("%+v, %v", s, err)
	}
}

// FuzzCheckpoint: whatever a checkpoint's files hold, it is actions or an error.
func FuzzCheckpoint(f *testing.F) {
	add := v2Row{checkpointRow: checkpointRow{Add: &checkpointAdd{Path: "a%20b", Stats: ptr(`{"numRecords":1}`)}}}
	head := v2Row{V2: &v2MetadataRow{Version: 7, Tags: map[string]string{"numOfAddFiles": "1"}}}
	side := v2Row{Sidecar: &v2SidecarRow{Path: "s.parquet"}}
	sidecar := []byte(parquetOf(f, []sidecarRow{{Add: add.Add}}))
	f.Add(true, []byte(jsonOf(f, []v2Row{head, add})), []byte{})
	f.Add(true, []byte(jsonOf(f, []v2Row{head, side})), sidecar)
	f.Add(false, []byte(parquetOf(f, []v2Row{head, add})), []byte{})
	f.Add(false, []byte(parquetOf(f, []v2Row{head, side})), sidecar)
	f.Fuzz(func(t *testing.T, asJSON bool, top, sidecar []byte) {
		st := store.NewMemory()
		put(t, st, sidecarDir+"s.parquet", string(sidecar))
		c := checkpointFiles{7, uuidCheckpoint, []string{uuidName(7, uuid1, "parquet")}}
		if asJSON {
			c.names[0] = uuidName(7, uuid1, "json")
		}
		put(t, st, c.names[0], string(top))
		actions, err := (&Table{st: st}).readCheckpoint(t.Context(), c)
		if err != nil && !errors.Is(err, ErrCorrupt) || err != nil && actions != nil {
			t.Errorf("%d actions, %v", len(actions), err)
		}
	})
}
