package deltalog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// cleanupBatch bounds the files that one cleanup deletes: it runs after every checkpoint, so the rest follows soon.
const cleanupBatch = 5000

// leftoverAge is how old a temporary file in the log must be to be taken for what a crash left.
const leftoverAge = 24 * time.Hour

// cleanLog deletes commits and checkpoints that are older than delta.logRetentionDuration and that the checkpoint of s, just
// written, replaces, in ascending order, so that a crash leaves a contiguous end (delta.md 2.9). What Options.KeepFrom names stays. While
// nothing has expired it costs one Stat, and while all that has is still needed, that question.
func (t *Table) cleanLog(ctx context.Context, s *Snapshot) error {
	if !s.metadata.flag(propExpiredLogCleanup, true) || slices.Contains(s.protocol.WriterFeatures, "checkpointProtection") {
		return nil
	}
	now := t.opts.Clock()
	retention := s.metadata.interval(propLogRetention, defaultLogRetention)
	cutoff := now.Add(-retention)
	if retention >= 24*time.Hour {
		cutoff = cutoff.UTC().Truncate(24 * time.Hour)
	}
	first, unknown := t.st.Stat(ctx, logName(t.first.Load()))
	if unknown == nil && !first.ModTime.Before(cutoff) {
		return nil
	}
	needed, atMost, err := t.needed(s, cutoff)
	if err != nil {
		return err
	}
	if unknown == nil && t.held.Load() == needed && !first.ModTime.Before(atMost) {
		return nil // all that could go went the last time
	}
	type file struct {
		name    string
		version int64
	}
	var files []file
	var checkpoints []int64
	var newest time.Time // commit time of the last expired commit
	expired := int64(-1) // and its version
	held := false        // something stays since it is needed
	deleted := 0
	remove := func(name string) error {
		deleted++
		if err := t.st.Delete(ctx, name); err != nil && !errors.Is(err, store.ErrNotExist) {
			return err
		}
		return nil
	}
	for info, err := range t.st.List(ctx, logDir, "") {
		if err != nil {
			return err
		}
		f := parseLogName(info.Name)
		if f.kind == otherFile {
			if temporary(info.Name) && info.ModTime.Before(now.Add(-leftoverAge)) && deleted < cleanupBatch {
				if err := remove(info.Name); err != nil {
					return err
				}
			}
			continue
		}
		if f.kind == commitFile {
			newest = later(info.ModTime, newest.Add(time.Millisecond))
			if held = f.version > needed && !newest.Before(atMost); held || !newest.Before(cutoff) || f.version > s.version {
				break
			}
			expired = f.version
		}
		if f.kind == classicCheckpoint {
			checkpoints = append(checkpoints, f.version)
		}
		files = append(files, file{info.Name, f.version})
	}
	// The newest checkpoint that is not younger than the newest expired commit stays, with everything after it: the table can be had as it was
	// at any time within the retention.
	keep := int64(-1)
	for _, v := range checkpoints {
		if v <= expired {
			keep = v
		}
	}
	for _, f := range files {
		if f.version >= keep || deleted >= cleanupBatch {
			break
		}
		if err := remove(f.name); err != nil {
			return err
		}
	}
	if i := slices.IndexFunc(files, func(f file) bool { return f.version >= keep }); i >= 0 && deleted < cleanupBatch {
		t.first.Store(files[i].version)
		if held {
			t.held.Store(needed)
		}
	}
	return nil
}

// needed asks Options.KeepFrom for the lowest version that somebody needs beyond the retention, whose end is cutoff, and says before which
// time that does not count any more.
func (t *Table) needed(s *Snapshot, cutoff time.Time) (version int64, atMost time.Time, err error) {
	if t.opts.KeepFrom == nil {
		return math.MaxInt64, cutoff, nil
	}
	if version, err = t.opts.KeepFrom(t.open, s); err != nil {
		return 0, cutoff, fmt.Errorf("which versions are still needed is not known: %w", err)
	}
	if t.opts.KeepAtMost > 0 {
		atMost = cutoff.Add(-t.opts.KeepAtMost)
	}
	return version, atMost, nil
}

// temporary reports whether a name is one that a store's unfinished Put leaves behind.
func temporary(name string) bool {
	base := name[strings.LastIndexByte(name, '/')+1:]
	return strings.HasPrefix(base, ".") && strings.HasSuffix(base, ".tmp")
}

// VacuumOptions of Vacuum.
type VacuumOptions struct {
	// Retention is how long a file that no version needs any more stays; 0: the table's delta.deletedFileRetentionDuration. A longer one is for
	// files that no version ever named: removed ones are not remembered for longer than the table's.
	Retention time.Duration
	// DryRun only names the files.
	DryRun bool
}

// Vacuum deletes data files that neither the newest snapshot nor an unexpired remove names, nor what Options.KeepFrom keeps, and that are
// older than the retention, and returns their names. It makes no commit: the feed and readers of the newest version see nothing of it.
func (t *Table) Vacuum(ctx context.Context, o VacuumOptions) ([]string, error) {
	s, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if s.writable != nil { // what is not known may refer to files in its own way
		return nil, fmt.Errorf("vacuum %s: %w", t.st.URL(""), s.writable)
	}
	retention := o.Retention
	if retention <= 0 {
		retention = s.metadata.interval(propDeletedFileRetention, defaultDeletedFileRetention)
	}
	cutoff := t.opts.Clock().Add(-retention)
	needed := map[string]bool{}
	for add := range s.Files() {
		needed[fileKey(add.Path, nil)] = true
	}
	s.set.mu.RLock()
	for _, tomb := range s.set.tombstones {
		if at := tomb.remove.DeletionTimestamp; at != nil && time.UnixMilli(*at).After(cutoff) {
			needed[fileKey(tomb.remove.Path, nil)] = true
		}
	}
	s.set.mu.RUnlock()
	if err := t.keepNeeded(ctx, s, cutoff, needed); err != nil {
		return nil, fmt.Errorf("vacuum %s: %w", t.st.URL(""), err)
	}
	var gone []string
	for info, err := range t.st.List(ctx, "", "") {
		if err != nil {
			return gone, err
		}
		if strings.HasPrefix(info.Name, logDir) || needed[info.Name] || !info.ModTime.Before(cutoff) || hidden(info.Name) {
			continue
		}
		if !o.DryRun {
			if err := t.st.Delete(ctx, info.Name); err != nil && !errors.Is(err, store.ErrNotExist) {
				return gone, fmt.Errorf("vacuum %s: %w", t.st.URL(""), err)
			}
		}
		gone = append(gone, info.Name)
	}
	return gone, nil
}

// keepNeeded adds the files that versions from Options.KeepFrom on have, and the newest does not: what commits behind it removed, and their
// change data. The commits since cutoff are left out: their files are too young to go.
func (t *Table) keepNeeded(ctx context.Context, s *Snapshot, cutoff time.Time, files map[string]bool) error {
	from, atMost, err := t.needed(s, cutoff)
	if err != nil || from >= s.version {
		return err
	}
	first, err := t.EarliestVersion(ctx)
	if err != nil {
		return err
	}
	for v := max(first, from+1); v <= s.version; v++ {
		c, err := t.ReadCommit(ctx, v)
		if errors.Is(err, ErrVersionNotFound) { // cleaned up in this moment
			continue
		}
		if err != nil {
			return err
		}
		if c.Timestamp.Before(atMost) {
			continue
		}
		if !c.Timestamp.Before(cutoff) {
			break
		}
		for _, a := range c.Actions {
			switch {
			case a.Remove != nil:
				files[fileKey(a.Remove.Path, nil)] = true
			case a.CDC != nil:
				files[fileKey(a.CDC.Path, nil)] = true
			}
		}
	}
	return nil
}

// hidden reports whether vacuum passes over a name: it begins with "." or "_", and is neither change data nor a partition
// directory, nor a temporary file of ours that a crash left behind.
func hidden(name string) bool {
	if temporary(name) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") {
			return true
		}
		if strings.HasPrefix(part, "_") && part != "_change_data" && !strings.Contains(part, "=") {
			return true
		}
	}
	return false
}
