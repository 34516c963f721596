// Package cdf reads a Delta table's change data feed: a range of versions or times, or what comes next (Follower).
package cdf

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/deltalog"
)

// Change types, the values of _change_type.
const (
	Insert          = deltalog.ChangeInsert
	Delete          = deltalog.ChangeDelete
	UpdatePreimage  = deltalog.ChangePreimage
	UpdatePostimage = deltalog.ChangePostimage
)

// Sentinels; test with errors.Is.
var (
	// ErrNotEnabled: the change data feed is not on for every version of the range.
	ErrNotEnabled = errors.New("change data feed not enabled")
	// ErrRange: the range is not in the table (DELTA_INVALID_CDC_RANGE, DELTA_CDC_START_VERSION_AFTER_LATEST, …).
	ErrRange = errors.New("invalid change data feed range")
	// ErrExpired: the log or a data file of the range is gone.
	ErrExpired = errors.New("change data expired")
	// ErrIncompatibleSchema: a column of the range was dropped, renamed, or changed its type since, so that its rows do not fit the table
	// as it is now (DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_…). Added columns are null in older rows.
	ErrIncompatibleSchema = errors.New("incompatible schema change")
	// ErrRewritten: the version brings rows of the past back as inserts, or writes rows anew that were there (*RewrittenError has the version).
	ErrRewritten = errors.New("version rewrites history")
)

// RewrittenError says which version does more than add new rows. It matches ErrRewritten.
type RewrittenError struct {
	Version   int64
	Operation string
}

func (e *RewrittenError) Error() string {
	return fmt.Sprintf("change data feed: version %d (%s): %v", e.Version, e.Operation, ErrRewritten)
}

// Is makes it match ErrRewritten.
func (e *RewrittenError) Is(target error) bool { return target == ErrRewritten }

// Batch is changed rows of one version, with the columns of the table. Rows are valid until the next batch, unless retained.
type Batch struct {
	Version   int64
	Timestamp time.Time
	Rows      arrow.RecordBatch
	kind      string        // of all rows
	kinds     *array.String // of each, if kind is empty
}

// ChangeType is the change type of row i: Insert, Delete, UpdatePreimage or UpdatePostimage.
func (b *Batch) ChangeType(i int) string {
	if b.kinds != nil {
		return b.kinds.Value(i)
	}
	return b.kind
}

// only yields the rows with a change type, in runs that share b's memory.
func (b *Batch) only(kind string, yield func(Batch) bool) bool {
	if b.kinds == nil {
		return b.kind != kind || yield(*b)
	}
	for from := 0; from < b.kinds.Len(); {
		to := from + 1
		for to < b.kinds.Len() && b.kinds.Value(to) == b.kinds.Value(from) {
			to++
		}
		if b.kinds.Value(from) == kind {
			rows := b.Rows.NewSlice(int64(from), int64(to))
			more := yield(Batch{Version: b.Version, Timestamp: b.Timestamp, Rows: rows, kind: kind})
			rows.Release()
			if !more {
				return false
			}
		}
		from = to
	}
	return true
}
