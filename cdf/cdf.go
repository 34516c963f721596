// Package cdf reads a Delta table's change data feed: a range of versions or times, or what comes next (Follower).
package cdf

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
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
	// ErrIncompatibleSchema: a column of the range was dropped, renamed, or changed its type since, so that its rows do not fit the table
	// as it is now (DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_…). Added columns are null in older rows.
	ErrIncompatibleSchema = errors.New("incompatible schema change")
	// ErrNotInsert: the version changes or deletes rows (cdc actions, or removes that change data), which this
	// package does not read yet. *NotInsertError has the version.
	ErrNotInsert = errors.New("version does not only insert")
)

// NotInsertError says which version does more than insert. It matches ErrNotInsert.
type NotInsertError struct {
	Version   int64
	Operation string
}

func (e *NotInsertError) Error() string {
	return fmt.Sprintf("change data feed: version %d (%s) %v", e.Version, e.Operation, ErrNotInsert)
}

// Is makes it match ErrNotInsert.
func (e *NotInsertError) Is(target error) bool { return target == ErrNotInsert }

// Batch is rows of one version and one change type, with the columns of the table. Rows are valid until the next batch,
// unless retained.
type Batch struct {
	Version    int64
	Timestamp  time.Time
	ChangeType string
	Rows       arrow.RecordBatch
}
