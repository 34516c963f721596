package deltalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// cleanupBatch bounds the files that one cleanup deletes: it runs after every checkpoint, so the rest follows soon.
const cleanupBatch = 5000

// cleanLog deletes commits and checkpoints that are older than delta.logRetentionDuration and that the checkpoint of s, just
// written, replaces. Ascending, so that a crash leaves a contiguous end (delta.md 2.9). What Options.KeepFrom names stays.
func (t *Table) cleanLog(ctx context.Context, s *Snapshot) error {
	if !s.metadata.flag(propExpiredLogCleanup, true) || slices.Contains(s.protocol.WriterFeatures, "checkpointProtection") {
		return nil
	}
	retention := s.metadata.interval(propLogRetention, defaultLogRetention)
	cutoff := t.opts.Clock().Add(-retention)
	if retention >= 24*time.Hour {
		cutoff = cutoff.UTC().Truncate(24 * time.Hour)
	}
	limit := s.version
	if t.opts.KeepFrom != nil {
		limit = min(limit, t.opts.KeepFrom())
	}
	// The newest checkpoint at or below the cutoff stays, with everything after it.
	var candidates []string
	var versions []int64
	keep := int64(-1)
	for info, err := range t.st.List(ctx, logDir, "") {
		if err != nil {
			return err
		}
		f := parseLogName(info.Name)
		if f.kind == otherFile {
			continue
		}
		if f.version > limit || !info.ModTime.Before(cutoff) && f.kind == commitFile {
			break
		}
		if f.kind == classicCheckpoint {
			keep = max(keep, f.version)
		}
		candidates, versions = append(candidates, info.Name), append(versions, f.version)
	}
	deleted := 0
	for i, name := range candidates {
		if versions[i] >= keep || deleted == cleanupBatch {
			break
		}
		if err := t.st.Delete(ctx, name); err != nil && !errors.Is(err, store.ErrNotExist) {
			return err
		}
		deleted++
	}
	return nil
}

// VacuumOptions of Vacuum.
type VacuumOptions struct {
	// Retention is how long a file that no version needs any more stays; 0: the table's delta.deletedFileRetentionDuration.
	Retention time.Duration
	// DryRun only names the files.
	DryRun bool
}

// Vacuum deletes data files that neither the newest snapshot nor an unexpired remove names and that are older than the
// retention, and returns their names. It makes no commit: the feed and readers of the newest version see nothing of it.
func (t *Table) Vacuum(ctx context.Context, o VacuumOptions) ([]string, error) {
	s, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if slices.Contains(s.protocol.WriterFeatures, "vacuumProtocolCheck") {
		return nil, fmt.Errorf("vacuum %s: %w: vacuumProtocolCheck", t.st.URL(""), ErrUnsupported)
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

// hidden reports whether vacuum passes over a name: it begins with "." or "_", and is neither change data nor a partition
// directory, nor a temporary file of ours that a crash left behind.
func hidden(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") && !strings.HasSuffix(part, ".tmp") {
			return true
		}
		if strings.HasPrefix(part, "_") && part != "_change_data" && !strings.Contains(part, "=") {
			return true
		}
	}
	return false
}
