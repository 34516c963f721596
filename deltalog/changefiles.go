package deltalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"
)

// Change types, the values of _change_type.
const (
	ChangeInsert    = "insert"
	ChangeDelete    = "delete"
	ChangePreimage  = "update_preimage"
	ChangePostimage = "update_postimage"
)

// changeDir is where change files are written.
const changeDir = "_change_data/"

// ChangedRows are rows of one change type.
type ChangedRows struct {
	// Type is ChangeInsert, ChangeDelete, ChangePreimage or ChangePostimage.
	Type string
	// Rows have the columns of the table.
	Rows arrow.RecordBatch
}

// WriteChangeFiles writes changes as change files (one per partition value combination), durable when it returns, in their order: a preimage that
// comes first is read first. The table's change data feed must be on. The files are not part of the feed before a Commit names them, together
// with every other change of that commit (Transaction.Changes).
func (t *Table) WriteChangeFiles(ctx context.Context, snap *Snapshot, changes []ChangedRows) ([]CDC, error) {
	files, err := t.writeChangeFiles(ctx, snap, changes)
	if err != nil {
		return nil, fmt.Errorf("write change files of %s: %w", t.st.URL(""), err)
	}
	return files, nil
}

func (t *Table) writeChangeFiles(ctx context.Context, snap *Snapshot, changes []ChangedRows) ([]CDC, error) {
	if !snap.ChangeDataFeed() {
		return nil, errors.New("the change data feed is off")
	}
	// A change file has the table's columns, and one more.
	with := *snap
	with.schema = Struct{append(slices.Clip(snap.schema.Fields), changeType)}
	batches := make([]arrow.RecordBatch, len(changes))
	for i, c := range changes {
		if err := checkColumns(snap.schema, c.Rows); err != nil {
			return nil, err
		}
		var err error
		if batches[i], err = withChangeType(c); err != nil {
			return nil, err
		}
	}
	parts, err := split(&with, batches)
	if err != nil {
		return nil, err
	}
	files := make([]CDC, len(parts))
	for i, p := range parts {
		if files[i], err = t.writeChangeFile(ctx, &with, p); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (t *Table) writeChangeFile(ctx context.Context, with *Snapshot, p *part) (CDC, error) {
	f, err := fileWriterFor(with, &t.changeWriters)
	if err != nil {
		return CDC{}, err
	}
	path := changeDir + partitionDir(with.metadata.PartitionColumns, p.values) + "cdc-00000-" + uuid.NewString() + ".c000.snappy.parquet"
	size, err := t.storeFile(ctx, f, p.batches, path)
	if err != nil {
		return CDC{}, err
	}
	t.changeWriters.Put(f)
	return CDC{Path: encodePath(path), PartitionValues: p.values, Size: size}, nil
}

// withChangeType is the rows of c with the column _change_type.
func withChangeType(c ChangedRows) (arrow.RecordBatch, error) {
	switch c.Type {
	case ChangeInsert, ChangeDelete, ChangePreimage, ChangePostimage:
	default:
		return nil, fmt.Errorf("unknown change type %q", c.Type)
	}
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	for range c.Rows.NumRows() {
		b.Append(c.Type)
	}
	column := b.NewArray()
	defer column.Release()
	fields := append(slices.Clip(c.Rows.Schema().Fields()), arrow.Field{Name: changeType.Name, Type: arrow.BinaryTypes.String})
	columns := append(slices.Clip(c.Rows.Columns()), column)
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, c.Rows.NumRows()), nil
}
