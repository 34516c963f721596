package cdf

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Version is the changes of one version.
type Version struct {
	Version   int64
	Timestamp time.Time
	// Operation is what the commit says it did: WRITE, MERGE, ….
	Operation string
	// Batches yields the changed rows; it may be called once. Empty for a version that changes no data.
	Batches iter.Seq2[Batch, error]
	// Rows is the number of changed rows by the statistics; -1 if they do not tell.
	Rows     int64
	rewrites bool
	parts    []part
}

// part is a file of a version as it is read; its key is a batch without rows.
type part = deltalog.Source[Batch]

// Inserts yields only rows that are new, instead of Batches. A version that brings rows of the past back (RESTORE), or writes anew what
// was there (an overwrite), yields a *RewrittenError: which of its rows are new cannot be told.
func (v *Version) Inserts() iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		if v.rewrites {
			yield(Batch{}, &RewrittenError{v.Version, v.Operation})
			return
		}
		for b, err := range v.Batches {
			if err != nil {
				yield(Batch{}, err)
				return
			}
			if !b.only(Insert, func(b Batch) bool { return yield(b, nil) }) {
				return
			}
		}
	}
}

// readVersion plans the reading of a committed version, with the schema of snap.
func readVersion(ctx context.Context, t *deltalog.Table, version int64, snap *deltalog.Snapshot, columns []string) (*Version, error) {
	c, err := t.ReadCommit(ctx, version)
	if errors.Is(err, deltalog.ErrVersionNotFound) {
		return nil, fmt.Errorf("%w: version %d is no longer in the log: %w", ErrExpired, version, err)
	}
	if err != nil {
		return nil, err
	}
	if err := checkMetadata(c, snap.Schema()); err != nil {
		return nil, err
	}
	changed, err := changesOf(ctx, t, c)
	if err != nil {
		return nil, vacuumed(version, err)
	}
	v := &Version{Version: c.Version, Timestamp: c.Timestamp, Operation: c.Info().String("operation"), rewrites: changed.rewrites}
	for _, s := range changed.sources {
		if s.rows < 0 {
			v.Rows = -1
			break
		}
		v.Rows += s.rows
	}
	for _, s := range changed.sources {
		v.parts = append(v.parts, part{
			Key: Batch{Version: c.Version, Timestamp: c.Timestamp, kind: s.kind},
			Batches: func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
				return t.ReadFile(ctx, snap, s.file, columns)
			},
		})
	}
	v.Batches = func(yield func(Batch, error) bool) {
		if len(v.parts) > 1 {
			readParts(ctx, slices.Values(v.parts), yield)
			return
		}
		for _, s := range v.parts { // one file, as most versions have, is not worth a goroutine
			for rec, err := range s.Batches(ctx) {
				if !deliver(s.Key, rec, err, yield) {
					return
				}
			}
		}
	}
	return v, nil
}

// readParts yields what parts have, in their order.
func readParts(ctx context.Context, parts iter.Seq[part], yield func(Batch, error) bool) {
	deltalog.ReadAhead(ctx, parts, func(b Batch, rec arrow.RecordBatch, err error) bool { return deliver(b, rec, err, yield) })
}

// deliver yields rows as a batch like b, and reports whether to go on.
func deliver(b Batch, rec arrow.RecordBatch, err error, yield func(Batch, error) bool) bool {
	b.Rows = rec
	if err == nil && b.kind == "" {
		b, err = explicit(b)
	}
	return yield(b, vacuumed(b.Version, err)) && err == nil
}

// explicit takes the change types of a change file's rows, which are its last column, out of the rows.
func explicit(b Batch) (Batch, error) {
	last := int(b.Rows.NumCols()) - 1
	kinds := b.Rows.Column(last).(*array.String)
	for i := range kinds.Len() {
		if kinds.IsNull(i) {
			return b, fmt.Errorf("version %d: %w: a change file has a row without _change_type", b.Version, deltalog.ErrCorrupt)
		}
	}
	fields := b.Rows.Schema().Fields()[:last]
	b.Rows = array.NewRecordBatch(arrow.NewSchema(fields, nil), b.Rows.Columns()[:last], b.Rows.NumRows())
	b.kinds = kinds
	return b, nil
}

// vacuumed says that a file of the version is gone, if that is what err says.
func vacuumed(version int64, err error) error {
	if errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("%w: a file of version %d was vacuumed: %w", ErrExpired, version, err)
	}
	return err
}
