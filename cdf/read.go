package cdf

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// Read yields the changes of a range, ascending by version. Versions whose actions all have dataChange=false yield nothing. Within a version
// deleted rows come before inserted ones; rows of change files come as they are stored, which is a preimage before its postimage.
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
		snap, err := readingSnapshot(ctx, t, end)
		if err == nil {
			err = checkStart(ctx, t, start, end, snap)
		}
		if err != nil {
			yield(Batch{}, err)
			return
		}
		readParts(ctx, func(yield func(part) bool) {
			for v := start; v <= end; v++ {
				version, err := readVersion(ctx, t, v, snap, columns)
				if err != nil {
					yield(deltalog.Failed(Batch{}, err))
					return
				}
				for _, s := range version.parts {
					if !yield(s) {
						return
					}
				}
			}
		}, yield)
	}
}

// readingSnapshot is the snapshot by whose schema a range up to end is read: the newest, or with column mapping, where old names can still be
// told, that of end (delta.md 3.6).
func readingSnapshot(ctx context.Context, t *deltalog.Table, end int64) (*deltalog.Snapshot, error) {
	now := t.Cached()
	if !now.ColumnMapping() || end >= now.Version() {
		return now, nil
	}
	return t.SnapshotAt(ctx, end)
}

// resolve turns a range into versions, by delta.md 3.3 and 3.4.
func (r Range) resolve(ctx context.Context, t *deltalog.Table) (start, end int64, err error) {
	fail := func(class, format string, args ...any) (int64, int64, error) {
		return 0, 0, deltalog.NewClassError(class, ErrRange, format, args...)
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

// checkStart checks that the feed is on at version start, and that rows of then fit the schema of snap.
func checkStart(ctx context.Context, t *deltalog.Table, start, end int64, snap *deltalog.Snapshot) error {
	if snap.ChangeDataFeed() && start >= snap.Version() {
		return nil
	}
	first, err := t.SnapshotAt(ctx, start)
	if errors.Is(err, deltalog.ErrVersionNotFound) || errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("%w: version %d is no longer in the log: %w", ErrExpired, start, err)
	}
	if err != nil {
		return err
	}
	if !first.ChangeDataFeed() {
		return notEnabled(start)
	}
	err = checkSchema(start, "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA", first.Schema(), snap.Schema())
	if err == nil {
		return nil
	}
	for v := start + 1; v <= end; v++ { // a change within the range says more
		c, readErr := t.ReadCommit(ctx, v)
		if readErr != nil {
			return readErr
		}
		if within := checkMetadata(c, snap.Schema()); within != nil {
			return within
		}
	}
	return err
}

func notEnabled(version int64) error {
	return deltalog.NewClassError("DELTA_MISSING_CHANGE_DATA", ErrNotEnabled, "change data was not recorded for version [%d]", version)
}
