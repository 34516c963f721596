package cdf

import (
	"context"

	"github.com/deltabus/deltabus-local/deltalog"
)

// Follower yields one version after the other. Not safe for concurrent use.
type Follower struct {
	t       *deltalog.Table
	next    int64
	columns []string
	// snap has the schema that is read with, as long as metadata is the table's: a change while this follower is behind may be one that its next
	// rows do not fit.
	snap     *deltalog.Snapshot
	metadata *deltalog.Metadata
}

// Follow starts after version, so that Next gives version+1 first; columns nil: all.
func Follow(t *deltalog.Table, after int64, columns []string) *Follower {
	return &Follower{t: t, next: after + 1, columns: columns}
}

// Next returns the changes of the next version, or nil when it is not committed yet: that costs one stat. After an error
// the same version is tried again.
func (f *Follower) Next(ctx context.Context) (*Version, error) {
	if cached := f.t.Cached(); f.next > cached.Version() {
		snap, err := f.t.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		if f.next > snap.Version() {
			return nil, nil
		}
	}
	if now := f.t.Cached(); now.Metadata() != f.metadata {
		// All that is left to read is one range, up to the newest version.
		if err := checkStart(ctx, f.t, f.next, now.Version(), now); err != nil {
			return nil, err
		}
		f.snap, f.metadata = now, now.Metadata()
	}
	v, err := readVersion(ctx, f.t, f.next, f.snap, f.columns)
	if err != nil {
		return nil, err
	}
	f.next++
	return v, nil
}
