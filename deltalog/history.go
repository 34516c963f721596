package deltalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"sync"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Commit is one version of the log.
type Commit struct {
	Version int64
	// Timestamp is the commit's time by delta.md 3.5 (in-commit timestamp, else file time, never going back).
	Timestamp time.Time
	Actions   []Action
	// Size is the commit file's size in bytes.
	Size int64
	// modified is the commit file's own time, whatever Timestamp makes of it.
	modified time.Time
}

// Info is the commit's commitInfo, or nil.
func (c *Commit) Info() CommitInfo { return commitInfo(c.Actions) }

// Changed counts the data files that the commit adds and removes.
func (c *Commit) Changed() (added, removed int) {
	for _, a := range c.Actions {
		switch {
		case a.Add != nil:
			added++
		case a.Remove != nil:
			removed++
		}
	}
	return added, removed
}

// ring keeps the last commits, so that tailing a table costs no log I/O.
type ring struct {
	mu      sync.Mutex
	commits []*Commit // ascending and contiguous
	bytes   int64
}

const (
	ringCommits = 1000
	ringBytes   = 8 << 20 // of commit files
)

func (r *ring) add(c *Commit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.commits); n > 0 && r.commits[n-1].Version != c.Version-1 {
		r.commits, r.bytes = nil, 0
	}
	r.commits = append(r.commits, c)
	r.bytes += c.Size
	for len(r.commits) > ringCommits || r.bytes > ringBytes && len(r.commits) > 1 {
		r.bytes -= r.commits[0].Size
		r.commits[0] = nil
		r.commits = r.commits[1:]
	}
}

func (r *ring) get(version int64) *Commit {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.commits) == 0 {
		return nil
	}
	if i := version - r.commits[0].Version; i >= 0 && i < int64(len(r.commits)) {
		return r.commits[i]
	}
	return nil
}

// ReadCommit reads version's actions. Recent commits come from a ring in memory. ErrVersionNotFound if absent.
func (t *Table) ReadCommit(ctx context.Context, version int64) (*Commit, error) {
	if c := t.recent.get(version); c != nil {
		return c, nil
	}
	before := time.Time{}
	if c := t.recent.get(version - 1); c != nil {
		before = c.Timestamp
	}
	c, err := t.fetch(ctx, version, before, nil)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t.st.URL(""), err)
	}
	return c, nil
}

// Exists reports whether version is committed; one Stat, or none if it is known.
func (t *Table) Exists(ctx context.Context, version int64) (bool, error) {
	if version <= t.Cached().version {
		return version >= 0, nil
	}
	_, err := t.st.Stat(ctx, logName(version))
	if errors.Is(err, store.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// EarliestVersion returns the first version whose commit file is still there and contiguous up to the newest.
func (t *Table) EarliestVersion(ctx context.Context) (int64, error) {
	cur, err := t.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	// Cleanup goes upwards: if what was the first is still there, it still is.
	if first := t.first.Load(); first <= cur.version {
		if _, err := t.st.Stat(ctx, logName(first)); err == nil {
			return first, nil
		} else if !errors.Is(err, store.ErrNotExist) {
			return 0, err
		}
	}
	earliest, last := int64(-1), int64(-1)
	for info, err := range t.st.List(ctx, logDir, "") {
		if err != nil {
			return 0, err
		}
		f := parseLogName(info.Name)
		if f.kind != commitFile {
			continue
		}
		if f.version != last+1 || earliest < 0 {
			earliest = f.version
		}
		last = f.version
	}
	if earliest < 0 || earliest > cur.version {
		return 0, fmt.Errorf("earliest version of %s: %w", t.st.URL(""), ErrVersionNotFound)
	}
	t.first.Store(earliest)
	return earliest, nil
}

// VersionAt returns the last version committed at or before at. ErrVersionNotFound if the first is later. Where in-commit timestamps were switched on
// later, times from then on are looked for from then on: file times before it may be anything.
func (t *Table) VersionAt(ctx context.Context, at time.Time) (int64, error) {
	cur, err := t.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	first, err := t.EarliestVersion(ctx)
	if err != nil {
		return 0, err
	}
	last := cur.version
	if since := inCommitFrom(cur.protocol, cur.metadata); first < since && since <= last {
		c, err := t.ReadCommit(ctx, since)
		if err != nil {
			return 0, err
		}
		if at.Before(c.Timestamp) {
			last = since - 1
		} else {
			first = since
		}
	}
	var failed error
	n := sort.Search(int(last-first)+1, func(i int) bool {
		if failed != nil {
			return true
		}
		c, err := t.ReadCommit(ctx, first+int64(i))
		if err != nil {
			failed = err
			return true
		}
		return c.Timestamp.After(at)
	})
	if failed != nil {
		return 0, failed
	}
	if n == 0 {
		err := NewClassError("DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION", ErrVersionNotFound, "the first version that is there was committed later")
		return 0, fmt.Errorf("version of %s at %s: %w", t.st.URL(""), at.UTC().Format(time.RFC3339Nano), err)
	}
	return first + int64(n) - 1, nil
}

// SnapshotAtTime returns the table as it was at a time: its last version committed at or before that. A time before the first version that is there, or
// after the newest, is ErrVersionNotFound, as Spark has it.
func (t *Table) SnapshotAtTime(ctx context.Context, at time.Time) (*Snapshot, error) {
	version, err := t.VersionAt(ctx, at)
	if err != nil {
		return nil, err
	}
	cur := t.Cached()
	if at.After(cur.timestamp) {
		err := NewClassError("DELTA_TIMESTAMP_GREATER_THAN_COMMIT", ErrVersionNotFound, "the newest version, %d, was committed at %s: give a time up to that, or none",
			cur.version, cur.timestamp.UTC().Format(time.RFC3339Nano))
		return nil, fmt.Errorf("version of %s at %s: %w", t.st.URL(""), at.UTC().Format(time.RFC3339Nano), err)
	}
	return t.SnapshotAt(ctx, version)
}

// History yields commits from the newest backwards, as far as their files are there.
func (t *Table) History(ctx context.Context) iter.Seq2[*Commit, error] {
	return func(yield func(*Commit, error) bool) {
		cur, err := t.Snapshot(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for v := cur.version; v >= 0; v-- {
			c, err := t.ReadCommit(ctx, v)
			if errors.Is(err, ErrVersionNotFound) {
				return // cleaned up
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}
