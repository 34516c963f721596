package deltalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// ErrReplaceMismatch says that a row which is to replace others is none of those that are replaced.
var ErrReplaceMismatch = errors.New("a row does not match the condition of what is replaced")

// Overwrite replaces all rows of the table. In the change data feed every old row is deleted and every new one inserted. The batches are as for
// WriteFiles, conflicts as for Delete.
func (t *Table) Overwrite(ctx context.Context, rows []arrow.RecordBatch) (*RowChanges, error) {
	return t.overwrite(ctx, rows, nil, func(op *rowOperation) error {
		op.tx.ReadTable = true
		return op.deleteWhere(ctx, Condition{})
	})
}

// ReplaceWhere replaces the rows that a condition selects; the new ones must be selected by it too, else it is ErrReplaceMismatch. Where files
// keep some of their rows, the change data feed has the selected rows as deleted and all new ones as inserted.
func (t *Table) ReplaceWhere(ctx context.Context, c Condition, rows []arrow.RecordBatch) (*RowChanges, error) {
	parameters := map[string]any{"predicate": predicates(c.SQL)}
	return t.overwrite(ctx, rows, parameters, func(op *rowOperation) error {
		if err := op.read(c.Partition); err != nil {
			return err
		}
		for _, rec := range rows {
			if err := op.checkReplacing(c, rec); err != nil {
				return err
			}
		}
		return op.deleteWhere(ctx, c)
	})
}

// OverwritePartitions replaces all rows of the partitions that the new rows are in, and of no other: INSERT OVERWRITE with dynamic partitions.
func (t *Table) OverwritePartitions(ctx context.Context, rows []arrow.RecordBatch) (*RowChanges, error) {
	parameters := map[string]any{"isDynamicPartitionOverwrite": true}
	return t.overwrite(ctx, rows, parameters, func(op *rowOperation) error {
		columns := op.snap.metadata.PartitionColumns
		if len(columns) == 0 {
			op.tx.ReadTable = true
			return op.deleteWhere(ctx, Condition{})
		}
		parts, err := split(op.snap, rows)
		if err != nil {
			return err
		}
		op.derived = true
		replaced := map[string]bool{}
		for _, p := range parts {
			replaced[partitionKey(columns, func(c string) *string { return p.values[c] })] = true
			if !op.readPartition(p.values) {
				op.tx.ReadTable = true
			}
		}
		for add := range op.snap.Files() {
			values, err := op.ownSpelling(add.PartitionValues)
			if err != nil {
				return err
			}
			if replaced[partitionKey(columns, func(c string) *string { return values[c] })] {
				if err := op.deleteFrom(ctx, add, nil); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// overwrite writes rows in the place of those that remove takes away.
func (t *Table) overwrite(ctx context.Context, rows []arrow.RecordBatch, parameters map[string]any, remove func(*rowOperation) error) (*RowChanges, error) {
	fail := func(err error) (*RowChanges, error) { return nil, fmt.Errorf("overwrite %s: %w", t.st.URL(""), err) }
	op, err := t.startRows(ctx, "WRITE", true)
	if err != nil {
		return fail(err)
	}
	for _, rec := range rows { // before anything is done for rows that the table does not take
		if err := checkBatch(op.snap.schema, rec); err != nil {
			return fail(err)
		}
	}
	if err := remove(op); err != nil {
		return fail(err)
	}
	for _, rec := range rows {
		if err := op.insert(ctx, rec); err != nil {
			return fail(err)
		}
	}
	if err := op.flush(ctx); err != nil {
		return fail(err)
	}
	op.tx.Parameters = map[string]any{"mode": "Overwrite", "partitionBy": "[]"}
	for k, v := range parameters {
		op.tx.Parameters[k] = v
	}
	op.tx.Metrics = op.overwriteMetrics()
	done, err := op.commit(ctx)
	if err != nil {
		return fail(err)
	}
	return done, nil
}

func (op *rowOperation) overwriteMetrics() map[string]string {
	m := map[string]string{}
	added, removed := op.fileBytes()
	set(m, "numFiles", int64(len(op.tx.Adds)))
	set(m, "numOutputRows", op.outputRows)
	set(m, "numOutputBytes", added)
	set(m, "numRemovedFiles", int64(len(op.tx.Removes)))
	set(m, "numRemovedBytes", removed)
	if op.explicit {
		set(m, "numDeletedRows", op.done.Deleted)
		set(m, "numCopiedRows", op.copied)
		set(m, "numAddedChangeFiles", int64(len(op.tx.Changes)))
	}
	return m
}

// checkReplacing checks that c selects every row of rec.
func (op *rowOperation) checkReplacing(c Condition, rec arrow.RecordBatch) error {
	if len(c.Partition) > 0 {
		parts, err := split(op.snap, []arrow.RecordBatch{rec})
		if err != nil {
			return err
		}
		for _, p := range parts {
			if !inPartition(p.values, c.Partition) {
				return mismatch(p.rows)
			}
		}
	}
	_, others, err := selectRows(c.Where, rec)
	if err == nil && len(others) > 0 {
		err = mismatch(int64(len(others)))
	}
	return err
}

func mismatch(rows int64) error {
	return NewClassError("DELTA_REPLACE_WHERE_MISMATCH", ErrReplaceMismatch, "%d new rows", rows)
}

// readPartition declares one partition as read; false if its values can be spelled in several ways, or are null, so that others' files in it
// could not be told by their values.
func (op *rowOperation) readPartition(values map[string]*string) bool {
	partition := make(map[string]string, len(values))
	for c, v := range values {
		f, ok := op.snap.schema.field(c)
		if !ok || v == nil || !slices.Contains([]DataType{String, Long, Integer, Short, Byte, Date, Boolean}, f.Type) {
			return false
		}
		partition[c] = *v
	}
	op.tx.ReadPartitions = append(op.tx.ReadPartitions, partition)
	return true
}

// ownSpelling is partition values, which another writer may have spelled otherwise, as this package writes them.
func (op *rowOperation) ownSpelling(values map[string]*string) (map[string]*string, error) {
	out := make(map[string]*string, len(values))
	for _, c := range op.snap.metadata.PartitionColumns {
		f, ok := op.snap.schema.field(c)
		if !ok {
			return nil, fmt.Errorf("%w: partition column %s is not a column", ErrCorrupt, c)
		}
		t, err := ArrowType(f.Type)
		if err != nil {
			return nil, err
		}
		b := array.NewBuilder(memory.DefaultAllocator, t)
		if err := appendPartitionValue(b, f.Type, values[f.StoredName()]); err != nil {
			return nil, err
		}
		if out[c], err = partitionValue(b.NewArray(), 0); err != nil {
			return nil, err
		}
	}
	return out, nil
}
