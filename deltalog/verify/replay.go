package verify

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// replay walks the commits in order, and compares each checkpoint with the state at its version.
func (a *audit) replay() error {
	versions := slices.Sorted(maps.Keys(a.commits))
	if len(versions) == 0 {
		a.report.problem("the log has checkpoints and no commit")
		return nil
	}
	a.report.FirstVersion, a.report.Version = versions[0], versions[len(versions)-1]
	if versions[0] != 0 {
		a.report.note("the log begins at version %d: what was before is taken from a checkpoint, not audited", versions[0])
		var err error
		if versions, err = a.seed(versions); err != nil {
			return err
		}
	}
	for i, v := range versions {
		if i > 0 && v != versions[i-1]+1 {
			a.report.problem("versions %d to %d are missing", versions[i-1]+1, v-1)
		}
		data, err := a.st.Get(a.ctx, a.commits[v].Name)
		if err != nil {
			return err
		}
		actions, err := deltalog.ParseCommit(data)
		if err != nil {
			a.report.problem("version %d: %v", v, err)
			continue
		}
		a.check(v, actions)
		a.rewritten(v, actions)
		a.state.apply(a.name, actions)
		a.feed(v, actions)
		if err := a.compareCheckpoint(v); err != nil {
			return err
		}
	}
	if a.state.metadata == nil || a.state.protocol == nil {
		a.report.problem("the log has no metaData or no protocol action")
	}
	return a.checkLastCheckpoint()
}

// seed starts from the first checkpoint that the commits go on from, and returns the versions behind it.
func (a *audit) seed(versions []int64) ([]int64, error) {
	for _, v := range slices.Sorted(maps.Keys(a.checkpoints)) {
		if v < versions[0]-1 {
			continue // the versions between are gone
		}
		actions, err := deltalog.ReadCheckpoint(a.ctx, a.st, v)
		if a.ctx.Err() != nil {
			return nil, a.ctx.Err()
		}
		if err != nil {
			a.report.problem("checkpoint %d: %v", v, err)
			continue
		}
		a.state.apply(a.name, actions)
		for n := range a.state.live {
			a.known[n] = true
		}
		for n := range a.state.removed {
			a.known[n] = true
		}
		return slices.DeleteFunc(versions, func(x int64) bool { return x <= v }), nil
	}
	a.report.problem("no checkpoint leads to version %d, where the log begins", versions[0])
	return nil, nil
}

// check finds what no commit may hold (delta.md 2.1).
func (a *audit) check(v int64, actions []deltalog.Action) {
	writer := writerOf(actions)
	added, removed, txns := map[string]bool{}, map[string]bool{}, map[string]bool{}
	metadata, protocols := 0, 0
	for _, act := range actions {
		switch {
		case act.Add != nil:
			n := a.name(act.Add.Path)
			if added[n] {
				a.report.problem("version %d adds %s twice", v, n)
			}
			if added[n] = true; !a.known[n] { // whoever names a file again did not write it
				a.known[n], a.writers[n] = true, writer
			}
		case act.Remove != nil:
			n := a.name(act.Remove.Path)
			if removed[n] {
				a.report.problem("version %d removes %s twice", v, n)
			}
			removed[n], a.known[n] = true, true
		case act.CDC != nil:
			a.known[a.name(act.CDC.Path)] = true
		case act.Metadata != nil:
			metadata++
			if a.state.metadata != nil && a.state.metadata.ID != act.Metadata.ID {
				a.report.problem("version %d changes the table's id", v)
			}
		case act.Protocol != nil:
			protocols++
		case act.Txn != nil:
			if txns[act.Txn.AppID] {
				a.report.problem("version %d has two txn actions of %s", v, act.Txn.AppID)
			}
			txns[act.Txn.AppID] = true
		}
	}
	if metadata > 1 || protocols > 1 {
		a.report.problem("version %d has %d metaData and %d protocol actions", v, metadata, protocols)
	}
	if v == 0 && (metadata == 0 || protocols == 0) {
		a.report.problem("version 0 has no metaData or no protocol action")
	}
}

// writerOf is commitInfo.engineInfo: "" where it is not told.
func writerOf(actions []deltalog.Action) string {
	for _, act := range actions {
		if act.CommitInfo != nil {
			return act.CommitInfo.String("engineInfo")
		}
	}
	return ""
}

// feed remembers the files that the change data feed reads at v: what it inserts, if it changes nothing else.
func (a *audit) feed(v int64, actions []deltalog.Action) {
	if a.state.metadata == nil || !strings.EqualFold(a.state.metadata.Configuration["delta.enableChangeDataFeed"], "true") {
		return
	}
	for _, act := range actions {
		if act.CDC != nil || act.Remove != nil && act.Remove.DataChange {
			return
		}
	}
	for _, act := range actions {
		if act.Add != nil && act.Add.DataChange {
			a.inserts[a.name(act.Add.Path)] = insert{act.Add, v}
		}
	}
}

// compareCheckpoint checks that the checkpoint of v, if there is one, holds the state at v.
func (a *audit) compareCheckpoint(v int64) error {
	if _, ok := a.checkpoints[v]; !ok {
		return nil
	}
	actions, err := deltalog.ReadCheckpoint(a.ctx, a.st, v)
	switch {
	case a.ctx.Err() != nil:
		return a.ctx.Err()
	case errors.Is(err, deltalog.ErrUnsupported):
		a.report.note("not audited: checkpoint %d: %v", v, err)
		return nil
	case err != nil:
		a.report.problem("checkpoint %d: %v", v, err)
		return nil
	}
	got := newState()
	got.apply(a.name, actions)
	for _, d := range a.state.differences(got) {
		a.report.problem("checkpoint %d differs from the replay: %s", v, d)
	}
	return nil
}

func (a *audit) checkLastCheckpoint() error {
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
