package deltalog

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// lookBack is how many commits before one its time may depend on, if they are not known; Spark looks as far.
const lookBack = 100

// inCommitFrom is the first version whose commit carries its own time (delta.md 3.5): math.MaxInt64 if none does. Both the property and the feature are
// needed; a table for which they were switched on later says since which version.
func inCommitFrom(p *Protocol, m *Metadata) int64 {
	if p == nil || m == nil || !m.flag(propICT, false) || !slices.Contains(p.WriterFeatures, "inCommitTimestamp") {
		return math.MaxInt64
	}
	since, err := strconv.ParseInt(m.Configuration[propICTSince], 10, 64)
	if err != nil {
		return 0
	}
	return since
}

// inCommitFrom is that of the table as it is now, or, before anything of it is known, as base, the snapshot before c, and c say.
func (t *Table) inCommitFrom(c *Commit, base *Snapshot) int64 {
	if now := t.newest.Load(); now != nil {
		base = now
	}
	var p *Protocol
	var m *Metadata
	if base != nil {
		p, m = base.protocol, base.metadata
	}
	if base == nil || c.Version > base.version {
		for i := range c.Actions {
			switch a := &c.Actions[i]; {
			case a.Protocol != nil:
				p = a.Protocol
			case a.Metadata != nil:
				m = a.Metadata
			}
		}
	}
	return inCommitFrom(p, m)
}

// commitTime is the time of c by delta.md 3.5: the in-commit timestamp where they are in force, else the time of its file, but later than its
// predecessor's, which is before. Without that it is found from the files before, unless the file has the time that its writer gave it: a table that was
// copied without its times has it not. base is the snapshot before c, for a table of which nothing else is known yet.
func (t *Table) commitTime(ctx context.Context, c *Commit, before time.Time, base *Snapshot) (time.Time, error) {
	info := c.Info()
	if ict, ok := info.Int("inCommitTimestamp"); ok && c.Version >= t.inCommitFrom(c, base) {
		return time.UnixMilli(ict), nil
	}
	at := c.modified.Truncate(time.Millisecond)
	if !before.IsZero() {
		return later(at, before.Add(time.Millisecond)), nil
	}
	if written, ok := info.Int("timestamp"); ok && written == at.UnixMilli() {
		return at, nil
	}
	t.fileTimes.put(c.Version, at)
	for k := int64(1); k <= lookBack && k <= c.Version; k++ {
		earlier, err := t.fileTime(ctx, c.Version-k)
		if errors.Is(err, store.ErrNotExist) {
			break
		}
		if err != nil {
			return time.Time{}, err
		}
		at = later(at, earlier.Add(time.Duration(k)*time.Millisecond))
	}
	return at, nil
}

// ParseTimestamp reads a time as Databricks takes it for time travel: yyyy-MM-dd, yyyy-MM-dd HH:mm:ss with up to six digits more, or ISO 8601. Without a
// zone it is UTC, whatever the machine's is.
func ParseTimestamp(s string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04:05.999999Z07:00", "2006-01-02 15:04:05.999999Z07:00"} {
		if at, err := time.Parse(layout, s); err == nil {
			return at, nil
		}
	}
	if at, err := parsePartitionTime(s); err == nil {
		return at, nil
	}
	return time.Time{}, NewClassError("DELTA_TIMESTAMP_INVALID", nil, "%q is not a timestamp: write it like 2026-01-31 or 2026-01-31T12:00:00.123Z", s)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// fileTime is when the commit file of version was last modified.
func (t *Table) fileTime(ctx context.Context, version int64) (time.Time, error) {
	if at, ok := t.fileTimes.get(version); ok {
		return at, nil
	}
	info, err := t.st.Stat(ctx, logName(version))
	if err != nil {
		return time.Time{}, err
	}
	at := info.ModTime.Truncate(time.Millisecond)
	t.fileTimes.put(version, at)
	return at, nil
}

// timeCache keeps the times of some commit files, so that reading commits one after the other, in either direction, asks once for each.
type timeCache struct {
	mu sync.Mutex
	at map[int64]time.Time
}

func (c *timeCache) get(version int64) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.at[version]
	return at, ok
}

func (c *timeCache) put(version int64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil || len(c.at) >= 10*lookBack {
		c.at = map[int64]time.Time{}
	}
	c.at[version] = at
}
