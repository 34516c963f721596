// Package verify audits a Delta table. It replays the log by itself, in the simplest way, so that a fault in the snapshot code
// does not hide behind itself; data files are read to their last row.
package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Report is what an audit found.
type Report struct {
	// FirstVersion and Version are the first and last commit in the log.
	FirstVersion int64 `json:"first_version"`
	Version      int64 `json:"version"`
	Files        int   `json:"files"`
	Rows         int64 `json:"rows"`
	Checkpoints  int   `json:"checkpoints"`
	// Problems are breaches of the protocol, or content that is not what the log says.
	Problems []string `json:"problems"`
	// Notes are no breaches: what a crash left behind, what could not be audited.
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
	ctx         context.Context
	st          store.Store
	report      *Report
	commits     map[int64]string
	checkpoints map[int64]string
	others      []string                 // names outside the log
	sizes       map[string]int64         // of every name
	live        map[string]*deltalog.Add // by name
	known       map[string]bool          // every name that any version gave
	metadata    *deltalog.Metadata
	protocol    *deltalog.Protocol
	txns        map[string]int64
	at          map[int64]map[string]bool // live names at the versions that have a checkpoint
}

// Verify audits the table in st. An error means that it could not; what is wrong with the table is in the report.
func Verify(ctx context.Context, st store.Store) (*Report, error) {
	a := &audit{
		ctx: ctx, st: st, report: &Report{FirstVersion: -1, Version: -1, Problems: []string{}, Notes: []string{}},
		commits: map[int64]string{}, checkpoints: map[int64]string{}, sizes: map[string]int64{},
		live: map[string]*deltalog.Add{}, known: map[string]bool{}, txns: map[string]int64{}, at: map[int64]map[string]bool{},
	}
	if err := a.list(); err != nil {
		return nil, fmt.Errorf("verify %s: %w", st.URL(""), err)
	}
	for _, step := range []func() error{a.replay, a.compareCheckpoints, a.readFiles, a.compareSnapshot} {
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
			a.commits[v] = info.Name
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

// replay walks the commits in order.
func (a *audit) replay() error {
	versions := slices.Sorted(maps.Keys(a.commits))
	if len(versions) == 0 {
		a.report.problem("the log has checkpoints and no commit")
		return nil
	}
	a.report.FirstVersion, a.report.Version = versions[0], versions[len(versions)-1]
	for i, v := range versions {
		if i > 0 && v != versions[i-1]+1 {
			a.report.problem("versions %d to %d are missing", versions[i-1]+1, v-1)
		}
	}
	whole := versions[0] == 0
	if !whole {
		a.report.note("the log begins at version %d: what was before is taken from the checkpoint, not audited", versions[0])
		if err := a.seed(versions[0]); err != nil {
			return err
		}
	}
	for _, v := range versions {
		data, err := a.st.Get(a.ctx, a.commits[v])
		if err != nil {
			return err
		}
		actions, err := deltalog.ParseCommit(data)
		if err != nil {
			a.report.problem("version %d: %v", v, err)
			continue
		}
		a.apply(v, actions)
		if _, ok := a.checkpoints[v]; ok {
			a.at[v] = map[string]bool{}
			for name := range a.live {
				a.at[v][name] = true
			}
		}
	}
	if a.metadata == nil || a.protocol == nil {
		a.report.problem("the log has no metaData or no protocol action")
	}
	return nil
}

// seed takes the state before the first commit from the snapshot at it: the commits that would tell are gone.
func (a *audit) seed(first int64) error {
	t, err := deltalog.Open(a.ctx, a.st, deltalog.Options{CheckpointInterval: -1})
	if err != nil {
		a.report.problem("the table cannot be opened: %v", err)
		return nil
	}
	s, err := t.SnapshotAt(a.ctx, first)
	if err != nil {
		for v := first; v <= a.report.Version; v++ { // the first checkpoint may be a little later
			if s, err = t.SnapshotAt(a.ctx, v); err == nil {
				break
			}
		}
	}
	if err != nil {
		a.report.problem("no version can be rebuilt: %v", err)
		return nil
	}
	a.metadata, a.protocol = s.Metadata(), s.Protocol()
	for add := range s.Files() {
		a.live[name(add.Path)] = add
		a.known[name(add.Path)] = true
	}
	return nil
}

// name is the store's name of a path of the log.
func name(path string) string {
	if n, err := url.PathUnescape(path); err == nil {
		return n
	}
	return path
}

func (a *audit) apply(v int64, actions []deltalog.Action) {
	added, removed := map[string]bool{}, map[string]bool{}
	metadata, protocols, txns := 0, 0, map[string]bool{}
	for _, act := range actions {
		switch {
		case act.Add != nil:
			n := name(act.Add.Path)
			if added[n] {
				a.report.problem("version %d adds %s twice", v, n)
			}
			added[n], a.known[n] = true, true
			a.live[n] = act.Add
		case act.Remove != nil:
			n := name(act.Remove.Path)
			if removed[n] {
				a.report.problem("version %d removes %s twice", v, n)
			}
			removed[n], a.known[n] = true, true
			if !added[n] {
				delete(a.live, n)
			}
		case act.CDC != nil:
			a.known[name(act.CDC.Path)] = true
		case act.Metadata != nil:
			metadata++
			if a.metadata != nil && a.metadata.ID != act.Metadata.ID {
				a.report.problem("version %d changes the table's id", v)
			}
			a.metadata = act.Metadata
		case act.Protocol != nil:
			protocols++
			a.protocol = act.Protocol
		case act.Txn != nil:
			if txns[act.Txn.AppID] {
				a.report.problem("version %d has two txn actions of %s", v, act.Txn.AppID)
			}
			txns[act.Txn.AppID] = true
			a.txns[act.Txn.AppID] = act.Txn.Version
		}
	}
	if metadata > 1 || protocols > 1 {
		a.report.problem("version %d has %d metaData and %d protocol actions", v, metadata, protocols)
	}
	if v == 0 && (metadata == 0 || protocols == 0) {
		a.report.problem("version 0 has no metaData or no protocol action")
	}
}

// compareCheckpoints checks that each checkpoint holds the files that were live at its version.
func (a *audit) compareCheckpoints() error {
	for _, v := range slices.Sorted(maps.Keys(a.checkpoints)) {
		want, ok := a.at[v]
		if !ok {
			continue // its commit is gone
		}
		got, err := deltalog.ReadCheckpoint(a.ctx, a.st, v)
		if err != nil {
			if errors.Is(err, deltalog.ErrUnsupported) {
				a.report.note("not audited: checkpoint %d: %v", v, err)
				continue
			}
			a.report.problem("checkpoint %d: %v", v, err)
			continue
		}
		have := map[string]bool{}
		metadata, protocol := false, false
		for _, act := range got {
			switch {
			case act.Add != nil:
				have[name(act.Add.Path)] = true
			case act.Metadata != nil:
				metadata = true
			case act.Protocol != nil:
				protocol = true
			}
		}
		if !maps.Equal(have, want) {
			a.report.problem("checkpoint %d has %d files, the replay %d, and they differ", v, len(have), len(want))
		}
		if !metadata || !protocol {
			a.report.problem("checkpoint %d has no metaData or no protocol", v)
		}
	}
	data, err := a.st.Get(a.ctx, "_delta_log/_last_checkpoint")
	if errors.Is(err, store.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var last struct {
		Version int64 `json:"version"`
	}
	if json.Unmarshal(data, &last) != nil {
		a.report.note("_last_checkpoint is not JSON: readers fall back to the listing")
	} else if _, ok := a.checkpoints[last.Version]; !ok {
		a.report.note("_last_checkpoint names version %d, which has no classic checkpoint", last.Version)
	}
	return nil
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
	seen := 0
	for add := range s.Files() {
		if seen++; a.live[name(add.Path)] == nil {
			a.report.problem("the snapshot has file %s, the replay has not", add.Path)
		}
	}
	if seen != len(a.live) {
		a.report.problem("the snapshot has %d files, the replay %d", seen, len(a.live))
	}
	return nil
}

// leftovers reports files that no version names.
func (a *audit) leftovers() {
	for _, n := range a.others {
		if !a.known[n] {
			a.report.note("no version names %s (%d bytes)", n, a.sizes[n])
		}
	}
}
