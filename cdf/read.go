package cdf

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Range is what to read. Bounds are inclusive; give a version or a time for each, at most one. A start is required; without an
// end it is the newest version. An end version behind the newest is taken as the newest.
type Range struct {
	StartVersion, EndVersion *int64
	StartTime, EndTime       time.Time
}

// Read yields the changes of a range, ascending by version. Versions whose actions all have dataChange=false yield nothing.
// columns nil: all.
func Read(ctx context.Context, t *deltalog.Table, r Range, columns []string) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		start, end, err := r.resolve(ctx, t)
		if err != nil {
			yield(Batch{}, err)
			return
		}
		if end < start {
			return // both times lie between the same two commits
		}
		if err := checkStart(ctx, t, start); err != nil {
			yield(Batch{}, err)
			return
		}
		for v := start; v <= end; v++ {
			version, err := readVersion(ctx, t, v, columns)
			if err != nil {
				yield(Batch{}, err)
				return
			}
			for b, err := range version.Batches {
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
}

// resolve turns a range into versions, by delta.md 3.3 and 3.4.
func (r Range) resolve(ctx context.Context, t *deltalog.Table) (start, end int64, err error) {
	fail := func(class, format string, args ...any) (int64, int64, error) {
		return 0, 0, fmt.Errorf("%w: %s: "+format, append([]any{ErrRange, class}, args...)...)
	}
	switch {
	case r.StartVersion != nil && !r.StartTime.IsZero(), r.EndVersion != nil && !r.EndTime.IsZero():
		return fail("DELTA_MULTIPLE_CDC_BOUNDARY", "give a version or a time for a bound, not both")
	case r.StartVersion == nil && r.StartTime.IsZero():
		return fail("DELTA_NO_START_FOR_CDC_READ", "a start version or time is required")
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return 0, 0, err
	}
	latest := snap.Version()
	if r.StartVersion != nil {
		start = *r.StartVersion
		if start < 0 {
			return fail("DELTA_VERSION_INVALID", "version %d", start)
		}
	} else {
		if start, err = firstAtOrAfter(ctx, t, r.StartTime); err != nil {
			return 0, 0, err
		}
		if start > latest {
			return fail("DELTA_TIMESTAMP_GREATER_THAN_COMMIT", "%s is after the newest commit at %s", stamp(r.StartTime), stamp(snap.Timestamp()))
		}
	}
	switch {
	case r.EndVersion != nil:
		end = *r.EndVersion
		if end < start {
			return fail("DELTA_INVALID_CDC_RANGE", "the end %d is before the start %d", end, start)
		}
		end = min(end, latest)
	case !r.EndTime.IsZero():
		if r.EndTime.After(snap.Timestamp()) {
			return fail("DELTA_TIMESTAMP_GREATER_THAN_COMMIT", "%s is after the newest commit at %s", stamp(r.EndTime), stamp(snap.Timestamp()))
		}
		end, err = t.VersionAt(ctx, r.EndTime)
		if errors.Is(err, deltalog.ErrVersionNotFound) {
			return fail("DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION", "%s is before the first commit", stamp(r.EndTime))
		}
		if err != nil {
			return 0, 0, err
		}
		if !r.StartTime.IsZero() && r.EndTime.Before(r.StartTime) {
			return fail("DELTA_INVALID_CDC_RANGE", "the end %s is before the start %s", stamp(r.EndTime), stamp(r.StartTime))
		}
		if r.StartVersion != nil && end < start {
			return fail("DELTA_INVALID_CDC_RANGE", "the end %s (version %d) is before the start %d", stamp(r.EndTime), end, start)
		}
	default:
		end = latest
	}
	if start > latest {
		return fail("DELTA_CDC_START_VERSION_AFTER_LATEST", "start version %d exceeds the latest table version %d", start, latest)
	}
	return start, end, nil
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z") }

// firstAtOrAfter is the first version committed at or after at.
func firstAtOrAfter(ctx context.Context, t *deltalog.Table, at time.Time) (int64, error) {
	v, err := t.VersionAt(ctx, at)
	if errors.Is(err, deltalog.ErrVersionNotFound) {
		return t.EarliestVersion(ctx)
	}
	if err != nil {
		return 0, err
	}
	c, err := t.ReadCommit(ctx, v)
	if err != nil {
		return 0, err
	}
	if c.Timestamp.Equal(at) {
		return v, nil
	}
	return v + 1, nil
}

// checkStart checks that the feed is on at version start, and that rows of then fit the table as it is now.
func checkStart(ctx context.Context, t *deltalog.Table, start int64) error {
	now := t.Cached()
	if now.ChangeDataFeed() && start >= now.Version() {
		return nil
	}
	snap, err := t.SnapshotAt(ctx, start)
	if errors.Is(err, deltalog.ErrVersionNotFound) || errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("%w: version %d is no longer in the log: %w", ErrExpired, start, err)
	}
	if err != nil {
		return err
	}
	if !snap.ChangeDataFeed() {
		return notEnabled(start)
	}
	return checkSchema(start, snap.Schema(), now.Schema())
}

func notEnabled(version int64) error {
	return fmt.Errorf("%w: DELTA_MISSING_CHANGE_DATA: change data was not recorded for version [%d]", ErrNotEnabled, version)
}

// Version is the changes of one version.
type Version struct {
	Version   int64
	Timestamp time.Time
	// Batches yields the rows; it may be called once. Empty for a version that changes no data.
	Batches iter.Seq2[Batch, error]
	// Rows is the number of inserted rows by the statistics; -1 if a file has none.
	Rows int64
}

// readVersion plans the reading of a committed version.
func readVersion(ctx context.Context, t *deltalog.Table, version int64, columns []string) (*Version, error) {
	c, err := t.ReadCommit(ctx, version)
	if errors.Is(err, deltalog.ErrVersionNotFound) {
		return nil, fmt.Errorf("%w: version %d is no longer in the log: %w", ErrExpired, version, err)
	}
	if err != nil {
		return nil, err
	}
	adds, err := inserts(c, t.Cached().Schema())
	if err != nil {
		return nil, err
	}
	v := &Version{Version: c.Version, Timestamp: c.Timestamp}
	for _, add := range adds {
		stats, err := deltalog.ParseStats(add.Stats)
		if err != nil || stats.NumRecords == nil {
			v.Rows = -1
			break
		}
		v.Rows += *stats.NumRecords
	}
	v.Batches = func(yield func(Batch, error) bool) {
		for _, add := range adds {
			for rec, err := range t.ReadFile(ctx, t.Cached(), add.Path, add.PartitionValues, columns) {
				if errors.Is(err, store.ErrNotExist) {
					err = fmt.Errorf("%w: a data file of version %d was vacuumed: %w", ErrExpired, version, err)
				}
				if !yield(Batch{c.Version, c.Timestamp, Insert, rec}, err) || err != nil {
					return
				}
			}
		}
	}
	return v, nil
}

// inserts is the files whose rows a commit inserts. A commit that does more is a *NotInsertError; one that switches the feed off is
// ErrNotEnabled.
func inserts(c *deltalog.Commit, now deltalog.Struct) ([]*deltalog.Add, error) {
	operation := c.Info().String("operation")
	var adds []*deltalog.Add
	for i := range c.Actions {
		switch a := &c.Actions[i]; {
		case a.CDC != nil, a.Remove != nil && a.Remove.DataChange:
			return nil, &NotInsertError{c.Version, operation}
		case a.Metadata != nil:
			if !strings.EqualFold(a.Metadata.Configuration["delta.enableChangeDataFeed"], "true") {
				return nil, notEnabled(c.Version)
			}
			then, err := deltalog.ParseSchema([]byte(a.Metadata.SchemaString))
			if err != nil {
				return nil, fmt.Errorf("version %d: %w: %w", c.Version, deltalog.ErrCorrupt, err)
			}
			if err := checkSchema(c.Version, then, now); err != nil {
				return nil, err
			}
		case a.Add != nil && a.Add.DataChange:
			if a.Add.DeletionVector != nil {
				return nil, fmt.Errorf("version %d: %w: deletionVectors", c.Version, deltalog.ErrUnsupported)
			}
			adds = append(adds, a.Add)
		}
	}
	if operation == "RESTORE" && len(adds) > 0 { // rows of the past come back: not what was appended
		return nil, &NotInsertError{c.Version, operation}
	}
	return adds, nil
}
