// Package cdf reads a Delta table's change data feed: a range of versions or times, or what comes next (Follower).
package cdf

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/deltabus/deltabus-local/deltalog"
)

// Change types, the values of _change_type.
const (
	Insert          = "insert"
	Delete          = "delete"
	UpdatePreimage  = "update_preimage"
	UpdatePostimage = "update_postimage"
)

// Sentinels; test with errors.Is.
var (
	// ErrNotEnabled: the change data feed is not on for every version of the range.
	ErrNotEnabled = errors.New("change data feed not enabled")
	// ErrRange: the range is not in the table (DELTA_INVALID_CDC_RANGE, DELTA_CDC_START_VERSION_AFTER_LATEST, …).
	ErrRange = errors.New("invalid change data feed range")
	// ErrExpired: the log or a data file of the range is gone.
	ErrExpired = errors.New("change data expired")
	// ErrNotInsert: the version changes or deletes rows (cdc actions, or removes that change data), which this
	// package does not read yet. *NotInsertError has the version.
	ErrNotInsert = errors.New("version does not only insert")
)

// NotInsertError says which version does more than insert. It matches ErrNotInsert.
type NotInsertError struct {
	Version   int64
	Operation string
}

// Range is what to read. Bounds are inclusive; give a version or a time for each, at most one. No end: the newest version.
type Range struct {
	StartVersion, EndVersion *int64
	StartTime, EndTime       time.Time
}

// Batch is rows of one version and one change type, with the columns of the table.
type Batch struct {
	Version    int64
	Timestamp  time.Time
	ChangeType string
	Rows       arrow.RecordBatch
}

// Read yields the changes of a range, ascending by version. Versions whose actions all have dataChange=false yield nothing.
// columns nil: all.
func Read(ctx context.Context, t *deltalog.Table, r Range, columns []string) iter.Seq2[Batch, error] {
	panic("pending")
}

// Follower yields one version after the other. Not safe for concurrent use.
type Follower struct{ _ int }

// Follow starts after version (so Next gives version+1 first).
func Follow(t *deltalog.Table, after int64, columns []string) *Follower { panic("pending") }

// Next returns the changes of the next version, or nil when it is not committed yet: that costs one stat.
func (f *Follower) Next(ctx context.Context) (*Version, error) { panic("pending") }

// Version is the changes of one version.
type Version struct {
	Version   int64
	Timestamp time.Time
	// Batches yields the rows; it may be called once. Empty for a version that changes no data.
	Batches iter.Seq2[Batch, error]
}
