package deltalog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

const logDir = "_delta_log/"

// logName is the name of a version's commit file.
func logName(version int64) string { return fmt.Sprintf("%s%020d.json", logDir, version) }

// checkpointName is the name of a classic checkpoint.
func checkpointName(version int64) string {
	return fmt.Sprintf("%s%020d.checkpoint.parquet", logDir, version)
}

// logFile is what a name in _delta_log says.
type logFile struct {
	version     int64
	kind        logKind
	part, parts int // of a multi-part checkpoint
}

type logKind int

const (
	otherFile logKind = iota
	commitFile
	multiPartCheckpoint
	classicCheckpoint
	uuidCheckpoint // V2
	// derivedFile is a checksum, or a compaction of commits from version on: nothing that is not elsewhere. Neither is read, so that none can hide
	// what is wrong with the commits.
	derivedFile
)

// makesTable reports whether a file of this kind shows that there is a table.
func (k logKind) makesTable() bool {
	return k == commitFile || k.checkpoint()
}

func (k logKind) checkpoint() bool {
	return k == multiPartCheckpoint || k == classicCheckpoint || k == uuidCheckpoint
}

// parseLogName reads a name in _delta_log; names that follow no known pattern are otherFile.
func parseLogName(name string) logFile {
	base, ok := strings.CutPrefix(name, logDir)
	if !ok || len(base) < 21 || base[20] != '.' || strings.Contains(base, "/") {
		return logFile{kind: otherFile}
	}
	version, err := strconv.ParseInt(base[:20], 10, 64)
	if err != nil || version < 0 {
		return logFile{kind: otherFile}
	}
	rest := base[20:]
	if f, ok := parseCheckpointName(version, rest); ok {
		return f
	}
	switch {
	case rest == ".json":
		return logFile{version: version, kind: commitFile}
	case rest == ".crc", len(rest) == len("."+".compacted.json")+20 && strings.HasSuffix(rest, ".compacted.json"):
		return logFile{version: version, kind: derivedFile}
	}
	return logFile{kind: otherFile}
}

// SnapshotAt returns the table as of version: ErrVersionNotFound if it cannot be rebuilt.
func (t *Table) SnapshotAt(ctx context.Context, version int64) (*Snapshot, error) {
	cur, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if version == cur.version {
		return cur, nil
	}
	if version < 0 || version > cur.version {
		return nil, fmt.Errorf("version %d of %s: %w", version, t.st.URL(""), NewClassError("DELTA_VERSION_NOT_FOUND", ErrVersionNotFound, "the newest is %d", cur.version))
	}
	s, err := t.load(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("version %d of %s: %w", version, t.st.URL(""), err)
	}
	return s, nil
}

// load rebuilds the snapshot of version (-1: the newest that a checkpoint or the first commits lead to) from a checkpoint and the
// commits after it. The hint in _last_checkpoint spares the listing; where it does not lead to a snapshot, the log is listed.
func (t *Table) load(ctx context.Context, version int64) (*Snapshot, error) {
	var found *Snapshot
	if hint, ok := t.readLastCheckpoint(ctx); ok && (version < 0 || hint.version <= version) && !t.farBehind(ctx, hint.version, version) {
		s, err := t.replay(ctx, &hint, version)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil && (version >= 0 || t.seemsNewest(ctx, s)):
			return s, nil
		case err == nil:
			found = s
		}
	}
	return t.loadByListing(ctx, version, found)
}

// maxBehind is how many commits behind a checkpoint are read before it is worth listing the log for a newer one: twice the most that this package's
// own are apart.
const maxBehind = 2000

// farBehind reports whether there may be a newer checkpoint than that of a hint, which nobody updated.
func (t *Table) farBehind(ctx context.Context, hint, version int64) bool {
	if version >= 0 {
		return version-hint > maxBehind
	}
	_, err := t.st.Stat(ctx, logName(hint+maxBehind))
	return err == nil
}

// seemsNewest reports whether s, at which a hint led to an end, may be the newest version; else only a listing can tell. It is not if the end is a
// checkpoint whose commit is gone, for then the hint may be an old one and the next commits cleaned up, or if there are versions behind the next, which
// is missing. They are looked for at growing distances: a hole that three times as many commits follow is met.
func (t *Table) seemsNewest(ctx context.Context, s *Snapshot) bool {
	if s.modified.IsZero() {
		return false
	}
	for step := int64(1); step <= 1024; step *= 4 {
		if _, err := t.st.Stat(ctx, logName(s.version+1+step)); !errors.Is(err, store.ErrNotExist) {
			return false
		}
	}
	return true
}

// loadByListing tries every complete checkpoint, newest first, then version 0. Only a contiguous chain makes a snapshot. found, if not nil, is the
// answer if there is nothing behind it.
func (t *Table) loadByListing(ctx context.Context, version int64, found *Snapshot) (*Snapshot, error) {
	var checkpoints checkpointListing
	first, last := int64(-1), int64(-1)
	from, to := int64(-1), int64(-1) // the last commits without a hole
	for info, err := range t.st.List(ctx, logDir, "") {
		if err != nil {
			return nil, err
		}
		f := parseLogName(info.Name)
		if !f.kind.makesTable() || version >= 0 && f.version > version {
			continue
		}
		last = max(last, f.version)
		if f.kind.checkpoint() {
			checkpoints.add(info.Name, f)
			continue
		}
		if first < 0 {
			first = f.version
		}
		if from < 0 || f.version != to+1 {
			from = f.version
		}
		to = f.version
	}
	if last < version { // the table is there: its log begins later, or what is left of its beginning ends before
		return nil, fmt.Errorf("%w: it is no longer in the log", ErrVersionNotFound)
	}
	if last < 0 {
		return nil, ErrNotTable
	}
	if found != nil && found.version == last {
		return found, nil
	}
	var errs []error
	starts := []*checkpointFiles{}
	for _, c := range checkpoints.byPreference() {
		starts = append(starts, &c)
	}
	if first == 0 {
		starts = append(starts, nil)
	}
	for _, c := range starts {
		// What the listing has must be reached: a chain that ends before is a hole, not a shorter table.
		next := int64(0)
		if c != nil {
			next = c.version + 1
		}
		switch {
		case next > last:
		case to < last:
			errs = append(errs, fmt.Errorf("version %d: %w", to+1, ErrVersionNotFound))
			continue
		case next < from:
			errs = append(errs, fmt.Errorf("version %d: %w", from-1, ErrVersionNotFound))
			continue
		}
		s, err := t.replay(ctx, c, last)
		if err == nil {
			return s, nil
		}
		if errors.Is(err, ErrUnsupported) || ctx.Err() != nil {
			return nil, err
		}
		errs = append(errs, err)
	}
	if v := checkpoints.incomplete(); v >= 0 {
		errs = append(errs, NewClassError("DELTA_MISSING_PART_FILES", ErrCorrupt, "the checkpoint of version %d lacks parts", v))
	}
	if len(errs) == 0 {
		return nil, NewClassError("DELTA_LOG_FILE_NOT_FOUND", ErrVersionNotFound, "no checkpoint and no version 0, the first commit is %d", first)
	}
	if why := errors.Join(errs...); !errors.Is(why, ErrVersionNotFound) { // nothing is missing: what is there is wrong
		return nil, why
	}
	return nil, NewClassError("DELTA_VERSIONS_NOT_CONTIGUOUS", ErrCorrupt, "no chain leads to version %d: %w", last, errors.Join(errs...))
}

// replay builds the snapshot of version (-1: as far as it goes) from a checkpoint (nil: none, from version 0).
func (t *Table) replay(ctx context.Context, checkpoint *checkpointFiles, version int64) (*Snapshot, error) {
	s := &Snapshot{version: -1, set: newFileSet()}
	if checkpoint != nil {
		from := checkpoint.version
		actions, err := t.readCheckpoint(ctx, *checkpoint)
		if err != nil {
			return nil, err
		}
		base := &Snapshot{version: from}
		for i := range actions {
			base.protocol, base.metadata = cmp.Or(actions[i].Protocol, base.protocol), cmp.Or(actions[i].Metadata, base.metadata)
		}
		// The commit tells the time; cleanup by others may have taken it.
		head, err := t.fetch(ctx, from, time.Time{}, base)
		switch {
		case errors.Is(err, ErrVersionNotFound), errors.Is(err, ErrCorrupt):
			head = &Commit{}
		case err != nil:
			return nil, err
		}
		if s, err = s.next(&Commit{Version: from, Timestamp: head.Timestamp, Actions: actions, modified: head.modified}); err != nil {
			return nil, err
		}
		if s.protocol == nil || s.metadata == nil {
			return nil, fmt.Errorf("%w: checkpoint %d has no protocol or no metaData", ErrCorrupt, from)
		}
	}
	for version < 0 || s.version < version {
		c, err := t.fetch(ctx, s.version+1, s.timestamp, s)
		if errors.Is(err, ErrVersionNotFound) && version < 0 && s.version >= 0 {
			break
		}
		if err != nil {
			return nil, err
		}
		if s, err = s.next(c); err != nil {
			return nil, err
		}
		if t.newest.Load() == nil { // opening: what is read now is what followers ask for first
			t.recent.add(c)
		}
	}
	if s.protocol == nil || s.metadata == nil {
		return nil, NewClassError("DELTA_STATE_RECOVER_ERROR", ErrCorrupt, "the log has no protocol or no metaData action")
	}
	return s, nil
}

// fetch reads the commit of version, whose predecessor was committed at before; if that is not known (zero), as many commits before are looked
// at as the time needs. base is the snapshot before it, if the table is not open yet. An absent version costs one Stat.
func (t *Table) fetch(ctx context.Context, version int64, before time.Time, base *Snapshot) (*Commit, error) {
	info, err := t.st.Stat(ctx, logName(version))
	if errors.Is(err, store.ErrNotExist) {
		return nil, fmt.Errorf("version %d: %w", version, ErrVersionNotFound)
	}
	if err != nil {
		return nil, err
	}
	data, err := t.st.Get(ctx, logName(version))
	if errors.Is(err, store.ErrNotExist) {
		return nil, fmt.Errorf("version %d: %w", version, ErrVersionNotFound)
	}
	if err != nil {
		return nil, err
	}
	if len(bytes.TrimSpace(data)) == 0 { // what a crash of a careless writer leaves
		return nil, fmt.Errorf("version %d: %w: the commit is empty", version, ErrCorrupt)
	}
	actions, err := ParseCommit(data)
	if err != nil {
		return nil, fmt.Errorf("version %d: %w", version, err)
	}
	c := &Commit{Version: version, Actions: actions, Size: int64(len(data)), modified: info.ModTime}
	if c.Timestamp, err = t.commitTime(ctx, c, before, base); err != nil {
		return nil, err
	}
	return c, nil
}
