package verify

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// rewrite is a commit that says of the rows in the files it adds and removes how they differ: not at all (dataChange=false, OPTIMIZE), or as
// its change files have it.
type rewrite struct {
	version int64
	adds    []*deltalog.Add
	removes []*deltalog.Remove
	changes []*deltalog.CDC
}

// rewritten remembers what v, which is not applied yet, rewrites.
func (a *audit) rewritten(v int64, actions []deltalog.Action) {
	moved, changed := rewrite{version: v}, rewrite{version: v}
	removed := map[string]bool{}
	for _, act := range actions {
		if act.Remove != nil {
			removed[a.name(act.Remove.Path)] = true
		}
	}
	for _, act := range actions {
		switch {
		case act.Add != nil && a.state.live[a.name(act.Add.Path)] != nil && !removed[a.name(act.Add.Path)]:
			// Only what the log says of the file is new: statistics, tags.
		case act.Remove != nil && a.state.live[a.name(act.Remove.Path)] == nil:
			// It changes nothing: the tombstone of a deletion vector's file, for one.
		case act.Add != nil && act.Add.DataChange:
			changed.adds = append(changed.adds, act.Add)
		case act.Add != nil:
			moved.adds = append(moved.adds, act.Add)
		case act.Remove != nil && act.Remove.DataChange:
			changed.removes = append(changed.removes, act.Remove)
		case act.Remove != nil:
			moved.removes = append(moved.removes, act.Remove)
		case act.CDC != nil:
			changed.changes = append(changed.changes, act.CDC)
		}
	}
	if len(moved.adds)+len(moved.removes) > 0 {
		a.rewrites = append(a.rewrites, moved)
	}
	if len(changed.changes) > 0 {
		a.rewrites = append(a.rewrites, changed)
	}
}

// rows is a sum over rows that two sets share only if they are the same, in whatever order they come: how many they are, and their hashes added up.
type rows struct {
	count int64
	hash  uint64
}

func (r *rows) add(other rows, sign int64) {
	r.count += sign * other.count
	r.hash += uint64(sign) * other.hash
}

// compareRewrites checks that what commits say they changed is the difference between the files before and after them.
func (a *audit) compareRewrites() error {
	if len(a.rewrites) == 0 {
		return nil
	}
	t, err := deltalog.Open(a.ctx, a.st, deltalog.Options{CheckpointInterval: -1})
	if err != nil {
		return a.ctx.Err() // compareSnapshot says what is wrong
	}
	seed, gone := maphash.MakeSeed(), 0
	for _, r := range a.rewrites {
		difference, told, err := r.sums(a, t, seed)
		switch {
		case a.ctx.Err() != nil:
			return a.ctx.Err()
		case errors.Is(err, store.ErrNotExist):
			gone++
		case errors.Is(err, deltalog.ErrUnsupported):
			a.report.note("not audited: what version %d changed: %v", r.version, err)
		case err != nil:
			a.report.problem("version %d: %v", r.version, err)
		case difference == told:
		case len(r.changes) == 0:
			a.report.problem("version %d says that it changes no data, and the rows of its files differ (%+d)", r.version, difference.count)
		default:
			a.report.problem("version %d: its change files do not say what it changed: %+d rows, told are %+d", r.version, difference.count, told.count)
		}
	}
	if gone > 0 {
		a.report.note("%d versions that rewrote rows cannot be compared any more: their old files were vacuumed", gone)
	}
	return nil
}

// sums are the rows by which the files of a rewrite differ, and those by which it says that they do.
func (r *rewrite) sums(a *audit, t *deltalog.Table, seed maphash.Seed) (difference, told rows, err error) {
	for _, add := range r.adds {
		s, err := sum(a, t, add.DataFile(), seed, nil)
		if err != nil {
			return difference, told, err
		}
		difference.add(s, 1)
	}
	for _, remove := range r.removes {
		s, err := sum(a, t, remove.DataFile(), seed, nil)
		if err != nil {
			return difference, told, err
		}
		difference.add(s, -1)
	}
	for _, c := range r.changes {
		file := deltalog.DataFile{Path: c.Path, PartitionValues: c.PartitionValues, WithChangeType: true}
		for _, k := range []struct {
			sign  int64
			kinds []string
		}{{1, []string{"insert", "update_postimage"}}, {-1, []string{"delete", "update_preimage"}}} {
			s, err := sum(a, t, file, seed, k.kinds)
			if err != nil {
				return difference, told, err
			}
			told.add(s, k.sign)
		}
	}
	return difference, told, nil
}

// sum adds up the rows of a file; of a change file, those of some kinds.
func sum(a *audit, t *deltalog.Table, file deltalog.DataFile, seed maphash.Seed, kinds []string) (out rows, err error) {
	var text []byte
	columns := len(t.Cached().Schema().Fields)
	file.Unpadded = true
	for rec, err := range t.ReadFile(a.ctx, t.Cached(), file, nil) {
		if err != nil {
			return out, err
		}
		for i := range int(rec.NumRows()) {
			if kinds != nil {
				kind, ok := rec.Column(columns).(*array.String)
				if !ok || kind.IsNull(i) {
					return out, fmt.Errorf("%w: %s has a row without _change_type", deltalog.ErrCorrupt, file.Path)
				}
				if !slices.Contains(kinds, kind.Value(i)) {
					continue
				}
			}
			text = text[:0]
			for c := range columns {
				if text, err = deltalog.AppendValueJSON(text, rec.Column(c), i); err != nil {
					return out, err
				}
				text = append(text, ',')
			}
			out.count++
			out.hash += maphash.Bytes(seed, text)
		}
	}
	return out, nil
}
