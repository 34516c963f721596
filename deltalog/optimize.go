package deltalog

import (
	"context"
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
)

// defaultTargetSize is what Optimize makes of small files: large enough for readers, small enough to be rewritten in memory.
const defaultTargetSize = 64 << 20

// OptimizeOptions of Optimize.
type OptimizeOptions struct {
	// TargetSize is how many bytes a file should have; 0: 64 MiB. Files of three quarters of it stay as they are. The rows of one new file are in
	// memory while it is written.
	TargetSize int64
	// DryRun only counts what would be done, by the sizes that the files have now.
	DryRun bool
}

// Rewrite is what a maintenance operation did to a table's files.
type Rewrite struct {
	// Version is the commit, -1 if nothing was to be done or the run was dry.
	Version      int64
	FilesAdded   int
	FilesRemoved int
	BytesAdded   int64
	BytesRemoved int64
}

func (r *Rewrite) metrics() map[string]string {
	return map[string]string{
		"numAddedFiles": strconv.Itoa(r.FilesAdded), "numRemovedFiles": strconv.Itoa(r.FilesRemoved),
		"numAddedBytes": strconv.FormatInt(r.BytesAdded, 10), "numRemovedBytes": strconv.FormatInt(r.BytesRemoved, 10),
	}
}

// Optimize packs the small files of each partition into larger ones, in the order in which they came, and leaves out rows that a deletion
// vector has deleted. No row changes, so the feed does not show it, and other writers' appends are no conflict; that somebody removed one of
// the files meanwhile is ErrConflict, and leaves files behind that no version names.
func (t *Table) Optimize(ctx context.Context, o OptimizeOptions) (*Rewrite, error) {
	r, err := t.optimize(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("optimize %s: %w", t.st.URL(""), err)
	}
	return r, nil
}

func (t *Table) optimize(ctx context.Context, o OptimizeOptions) (*Rewrite, error) {
	if o.TargetSize <= 0 {
		o.TargetSize = defaultTargetSize
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if snap.writable != nil {
		return nil, snap.writable
	}
	r := &Rewrite{Version: -1}
	tx := Transaction{
		Base: snap, Operation: "OPTIMIZE", NoDataChange: true,
		Parameters: map[string]any{"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": false},
	}
	for _, bin := range bins(snap, o.TargetSize) {
		r.FilesRemoved += len(bin)
		size := int64(0)
		for _, a := range bin {
			size += a.Size
		}
		r.BytesRemoved += size
		if o.DryRun {
			r.FilesAdded++
			r.BytesAdded += size
			continue
		}
		adds, err := t.pack(ctx, snap, bin)
		if err != nil {
			return nil, err
		}
		for _, a := range adds {
			r.FilesAdded++
			r.BytesAdded += a.Size
		}
		tx.Adds, tx.Removes = append(tx.Adds, adds...), append(tx.Removes, bin...)
	}
	if o.DryRun || len(tx.Removes) == 0 {
		return r, nil
	}
	tx.Metrics = r.metrics()
	c, err := t.Commit(ctx, tx)
	if err != nil {
		return nil, err
	}
	r.Version = c.Version
	return r, nil
}

// bins are the files that become one each: neighbours of one partition, up to the target size together.
func bins(snap *Snapshot, target int64) [][]*Add {
	type bin struct {
		files []*Add
		size  int64
	}
	var out [][]*Add
	open := map[string]*bin{}
	var order []string
	shut := func(b *bin) {
		if len(b.files) > 1 || len(b.files) == 1 && b.files[0].DeletionVector != nil {
			out = append(out, b.files)
		}
		b.files, b.size = nil, 0
	}
	stored := snap.schema.storedNames(snap.metadata.PartitionColumns)
	for a := range snap.Files() {
		if a.Size >= target*3/4 && a.DeletionVector == nil {
			continue
		}
		key := partitionKey(stored, func(c string) *string { return a.PartitionValues[c] })
		b := open[key]
		if b == nil {
			b = &bin{}
			open[key] = b
			order = append(order, key)
		}
		if b.size+a.Size > target {
			shut(b)
		}
		b.files = append(b.files, a)
		b.size += a.Size
	}
	for _, key := range order {
		shut(open[key])
	}
	return out
}

// pack writes the live rows of files anew.
func (t *Table) pack(ctx context.Context, snap *Snapshot, files []*Add) ([]Add, error) {
	var batches []arrow.RecordBatch
	defer func() {
		for _, b := range batches {
			b.Release()
		}
	}()
	for _, a := range files {
		f := a.DataFile()
		f.Unpadded = true // what is stored, not what readers make of it
		for rec, err := range t.ReadFile(ctx, snap, f, nil) {
			if err != nil {
				return nil, err
			}
			rec.Retain()
			batches = append(batches, rec)
		}
	}
	return t.WriteFiles(ctx, snap, batches)
}
