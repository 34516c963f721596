// Package verify audits a Delta table. It replays the log by itself, in the simplest way, so that a fault in the snapshot code
// does not hide behind itself; data files are read to their last row.
package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Report is what an audit found.
type Report struct {
	// FirstVersion and Version are the first and last commit in the log; -1 if there is none.
	FirstVersion int64 `json:"first_version"`
	Version      int64 `json:"version"`
	// Files and Rows are those of the newest version.
	Files int   `json:"files"`
	Rows  int64 `json:"rows"`
	// Inserted is the number of rows that the versions of the change data feed insert, as far as their files are there; updates and
	// deletes are not counted.
	Inserted    int64 `json:"inserted"`
	Checkpoints int   `json:"checkpoints"`
	// Problems are breaches of the protocol, or content that is not what the log says.
	Problems []string `json:"problems"`
	// Notes are no breaches: what a crash left behind, what is gone from the feed, what could not be audited.
	Notes []string `json:"notes"`
}

func (r *Report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// audit is one audit.
type audit struct {
	ctx    context.Context
	st     store.Store
	report *Report

	// What the listing has.
	commits     map[int64]store.Info
	checkpoints map[int64]string
	others      []string // names outside the log
	sizes       map[string]int64

	state    state
	known    map[string]bool   // names of every file that any version gave
	inserts  map[string]insert // names of the files that the feed reads
	writers  map[string]string // engineInfo of the commits that brought them; those of a checkpoint have none
	rewrites []rewrite
	remarks  map[string]remark // about the files of others, by what is said
}

// remark counts the files that something is said of.
type remark struct {
	files int
	first string
}

// insert is a file whose rows a version of the feed inserts.
type insert struct {
	add     *deltalog.Add
	version int64
}

// Verify audits the table in st. An error means that it could not; what is wrong with the table is in the report.
func Verify(ctx context.Context, st store.Store) (*Report, error) {
	a := &audit{
		ctx: ctx, st: st, report: &Report{FirstVersion: -1, Version: -1, Problems: []string{}, Notes: []string{}},
		commits: map[int64]store.Info{}, checkpoints: map[int64]string{}, sizes: map[string]int64{},
		state: newState(), known: map[string]bool{}, inserts: map[string]insert{},
		writers: map[string]string{}, remarks: map[string]remark{},
	}
	for _, step := range []func() error{a.list, a.replay, a.readFiles, a.compareRewrites, a.compareSnapshot} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("verify %s: %w", st.URL(""), err)
		}
	}
	a.leftovers()
	return a.report, nil
}

func (a *audit) list() error {
	for info, err := range a.st.List(a.ctx, "", "") {
		if err != nil {
			return err
		}
		a.sizes[info.Name] = info.Size
		base, ok := strings.CutPrefix(info.Name, "_delta_log/")
		if !ok {
			a.others = append(a.others, info.Name)
			continue
		}
		var v int64
		if n, err := fmt.Sscanf(base, "%020d", &v); n != 1 || err != nil || len(base) < 21 || base[20] != '.' {
			if strings.HasSuffix(base, ".tmp") {
				a.report.note("left behind by a crash: %s", info.Name)
			}
			continue
		}
		switch base[20:] {
		case ".json":
			a.commits[v] = info
		case ".checkpoint.parquet":
			a.checkpoints[v] = info.Name
		case ".crc":
		default:
			a.report.note("not audited: %s", info.Name)
		}
	}
	if len(a.commits)+len(a.checkpoints) == 0 {
		return deltalog.ErrNotTable
	}
	a.report.Checkpoints = len(a.checkpoints)
	return nil
}

// name is the store's name of a path of the log; what leaves the table stays as it is, and is found missing.
func (a *audit) name(p string) string {
	n, err := deltalog.DataName(a.st, p)
	if err != nil {
		return p
	}
	return n
}

// compareSnapshot checks that the reader of this project sees what the replay saw.
func (a *audit) compareSnapshot() error {
	t, err := deltalog.Open(a.ctx, a.st, deltalog.Options{CheckpointInterval: -1})
	if errors.Is(err, deltalog.ErrUnsupported) {
		a.report.note("not audited: %v", err)
		return nil
	}
	if err != nil {
		a.report.problem("the table cannot be opened: %v", err)
		return nil
	}
	s := t.Cached()
	if s.Version() != a.report.Version {
		a.report.problem("the newest version opens as %d, the log ends at %d", s.Version(), a.report.Version)
	}
	seen := newState()
	seen.metadata, seen.protocol = s.Metadata(), s.Protocol()
	for add := range s.Files() {
		seen.live[a.name(add.Path)] = add
	}
	for app := range a.state.txns {
		if txn, ok := s.Txn(app); ok {
			seen.txns[app] = txn
		}
	}
	seen.domains = a.state.domains // a snapshot does not show them
	for _, d := range a.state.differences(seen) {
		a.report.problem("the snapshot of version %d differs from the replay: %s", s.Version(), d)
	}
	return nil
}

// leftovers reports files that no version names.
func (a *audit) leftovers() {
	for _, n := range a.others {
		if !a.known[n] && !a.known[checksumOf(n)] {
			a.report.note("no version names %s (%d bytes)", n, a.sizes[n])
		}
	}
	// Readers that go by the times of commit files (all but ours put them in order) disagree about what was when.
	back := 0
	var first int64
	var before time.Time
	for _, v := range slices.Sorted(maps.Keys(a.commits)) {
		if at := a.commits[v].ModTime; at.Before(before) {
			if back++; back == 1 {
				first = v
			}
		} else {
			before = at
		}
	}
	if back > 0 {
		a.report.note("the times of %d commit files go back, first at version %d: copies of tables must keep the times of files", back, first)
	}
}

// checksumOf is the file whose checksum n is, as Hadoop's local file system leaves one beside each file that Spark writes; "" if it is none.
func checksumOf(n string) string {
	dir, base := path.Split(n)
	if of, ok := strings.CutSuffix(base, ".crc"); ok && strings.HasPrefix(of, ".") {
		return dir + of[1:]
	}
	return ""
}
