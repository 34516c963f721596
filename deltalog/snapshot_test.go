package deltalog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// model is a table by the simplest means: a map a version.
type model struct {
	files map[string]string // path to partition
	txns  map[string]int64
}

func (m model) String() string {
	return fmt.Sprint(len(m.files), m.files, m.txns)
}

// modelOf is what s shows of itself, by Files and by FilesIn.
func modelOf(t *testing.T, s *Snapshot, partitions, apps []string) model {
	t.Helper()
	m := model{files: map[string]string{}, txns: map[string]int64{}}
	for a := range s.Files() {
		m.files[a.Path] = *a.PartitionValues["p"]
	}
	in := map[string]string{}
	for _, p := range partitions {
		for a := range s.FilesIn(map[string]string{"p": p}) {
			in[a.Path] = p
		}
	}
	if !maps.Equal(m.files, in) {
		t.Errorf("version %d: %d files, %d by partition", s.Version(), len(m.files), len(in))
	}
	if s.NumFiles() != len(m.files) || s.Size() != int64(len(m.files)) {
		t.Errorf("version %d: %d files of %d bytes, yields %d", s.Version(), s.NumFiles(), s.Size(), len(m.files))
	}
	for _, app := range apps {
		if txn, ok := s.Txn(app); ok {
			m.txns[app] = txn.Version
		}
	}
	return m
}

// TestSnapshotsNeverChange: whatever happens to the table afterwards, compaction of the shared lists included, a snapshot shows
// what it showed when it was made.
func TestSnapshotsNeverChange(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{PartitionColumns: []string{"p"}})
	partitions, apps := []string{"a", "b", "c", "d"}, []string{"x", "y"}
	now := model{files: map[string]string{}, txns: map[string]int64{}}
	type kept struct {
		s    *Snapshot
		want string
	}
	var all []kept
	s := tab.Cached()
	serial, before := 0, ""
	for version := int64(1); version <= 3000; version++ {
		var actions []Action
		for path := range now.files { // end some
			if rng.IntN(60) > 0 {
				continue
			}
			deleted := version
			actions = append(actions, Action{Remove: &Remove{Path: path, DeletionTimestamp: &deleted, DataChange: true}})
			delete(now.files, path)
		}
		for range rng.IntN(4) {
			path := fmt.Sprint("f", serial)
			if rng.IntN(4) > 0 || serial < 10 {
				serial++
			} else {
				path = fmt.Sprint("f", rng.IntN(serial)) // again, whether it is there or not
			}
			if slices.ContainsFunc(actions, func(a Action) bool {
				return a.Add != nil && a.Add.Path == path || a.Remove != nil && a.Remove.Path == path
			}) {
				continue
			}
			p := partitions[rng.IntN(len(partitions))]
			if now.files[path] != "" {
				p = now.files[path]
			}
			actions = append(actions, Action{Add: &Add{Path: path, Size: 1, PartitionValues: map[string]*string{"p": &p}}})
			now.files[path] = p
		}
		app := apps[rng.IntN(len(apps))]
		actions = append(actions, Action{Txn: &Txn{AppID: app, Version: version}})
		now.txns[app] = version
		next, err := s.next(&Commit{Version: version, Timestamp: time.UnixMilli(version), Actions: actions})
		if err != nil {
			t.Fatal(err)
		}
		if len(next.entries) < len(s.entries) { // compacted: the one before keeps what is dropped
			if got := modelOf(t, s, partitions, apps).String(); got != before {
				t.Errorf("version %d changed at the compaction:\ngot  %s\nwant %s", s.Version(), got, before)
			}
		}
		s, before = next, now.String()
		if rng.IntN(20) == 0 || version > 2990 {
			all = append(all, kept{s, now.String()})
			if got := modelOf(t, s, partitions, apps).String(); got != now.String() {
				t.Fatalf("version %d:\ngot  %s\nwant %s", version, got, now)
			}
		}
	}
	if len(s.set.entries) > 1024 {
		t.Errorf("%d entries for %d files: never compacted", len(s.set.entries), s.NumFiles())
	}
	for _, k := range all {
		got := modelOf(t, k.s, partitions, apps)
		want := k.want
		if s.Version()-k.s.Version() > keptTxns { // txns that old may be forgotten
			want = strings.SplitAfter(want, "] map[")[0]
		}
		if !strings.HasPrefix(got.String(), want) {
			t.Errorf("version %d changed:\ngot  %s\nwant %s", k.s.Version(), got, want)
		}
	}
}

// TestTombstonesAreForgotten once they have expired, also by a table that only follows and never writes a checkpoint.
func TestTombstonesAreForgotten(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{Configuration: map[string]string{propDeletedFileRetention: "interval 1 minute"}})
	s := tab.Cached()
	start := s.Timestamp()
	for version := int64(1); version <= 10_000; version++ {
		at := start.Add(time.Duration(version) * time.Second)
		deleted := at.UnixMilli()
		next, err := s.next(&Commit{Version: version, Timestamp: at, Actions: []Action{
			{Remove: &Remove{Path: fmt.Sprint(version - 1), DeletionTimestamp: &deleted}}, {Add: fileNamed(fmt.Sprint(version))},
		}})
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	if n := len(s.set.tombstones); n > 1100 {
		t.Errorf("%d tombstones, of which 60 are younger than a minute", n)
	}
	if n := len(s.set.entries); n > 1100 {
		t.Errorf("%d entries for one file", n)
	}
}

// TestDomainsOfASnapshot are those of its version, also when a later version is known.
func TestDomainsOfASnapshot(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{})
	var at []string
	s := tab.Cached()
	var all []*Snapshot
	for version, d := range []DomainMetadata{{Domain: "a", Configuration: "1"}, {Domain: "b", Configuration: "2"}, {Domain: "a", Removed: true}} {
		next, err := s.next(&Commit{Version: int64(version) + 1, Actions: []Action{{DomainMetadata: &d}}})
		if err != nil {
			t.Fatal(err)
		}
		s = next
		all = append(all, s)
	}
	for _, s := range all {
		at = append(at, strings.Join(slices.Sorted(maps.Keys(s.domains)), ""))
	}
	if got := strings.Join(at, " "); got != "a ab b" {
		t.Errorf("domains %s", got)
	}
}

// TestFilesInAColumnThatIsNone yields nothing, as opposed to the files without a value.
func TestFilesInAColumnThatIsNone(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{PartitionColumns: []string{"p"}})
	appendRows(t, tab, `{"id":1,"p":null}`)
	for range tab.Cached().FilesIn(map[string]string{"q": ""}) {
		t.Error("yields a file")
	}
	for range tab.Cached().FilesIn(map[string]string{"p": ""}) {
		t.Error("yields the file without a value")
	}
}
