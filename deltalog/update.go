package deltalog

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// Assign makes new rows of rows: as many, in the same order, with the table's columns. NOT NULL and the limits of VARCHAR and CHAR are enforced
// on what it gives.
type Assign func(rows arrow.RecordBatch) (arrow.RecordBatch, error)

// Update gives the rows that a condition selects the values that set says. Files are written anew, and the change data feed has each row
// before and after, also those that set left as they were. Everything else is as for Delete.
func (t *Table) Update(ctx context.Context, c Condition, set Assign) (*RowChanges, error) {
	done, err := t.update(ctx, c, set)
	if err != nil {
		return nil, fmt.Errorf("update %s: %w", t.st.URL(""), err)
	}
	return done, nil
}

func (t *Table) update(ctx context.Context, c Condition, assign Assign) (*RowChanges, error) {
	op, err := t.startRows(ctx, "UPDATE", true)
	if err != nil {
		return nil, err
	}
	if err := op.read(c.Partition); err != nil {
		return nil, err
	}
	op.explicit = true
	for add := range op.filesFor(c) {
		if err := op.updateFile(ctx, add, c.Where, assign); err != nil {
			return nil, err
		}
	}
	if op.nothing() {
		return &op.done, nil
	}
	if err := op.flush(ctx); err != nil {
		return nil, err
	}
	op.tx.Parameters = map[string]any{"predicate": predicates(c.SQL)}
	op.tx.Metrics = op.fileMetrics()
	set(op.tx.Metrics, "numUpdatedRows", op.done.Updated)
	return op.commit(ctx)
}

func (op *rowOperation) updateFile(ctx context.Context, add *Add, where Predicate, assign Assign) error {
	var kept pending
	updated := int64(0)
	for rows, err := range op.part(ctx, add, where) {
		if err != nil {
			return err
		}
		kept.add(rows.others)
		if rows.selected.NumRows() == 0 {
			continue
		}
		updated += rows.selected.NumRows()
		after, err := op.assign(ctx, rows.selected, assign)
		if err != nil {
			return err
		}
		if err := op.write(ctx, after); err != nil {
			return err
		}
	}
	if updated == 0 {
		return nil
	}
	op.remove(add)
	op.done.Updated += updated
	op.copied += kept.rows
	return op.write(ctx, kept.batches...)
}

// assign makes new rows of rows and tells the feed.
func (op *rowOperation) assign(ctx context.Context, before arrow.RecordBatch, assign Assign) (arrow.RecordBatch, error) {
	after, err := assign(before)
	if err != nil {
		return nil, err
	}
	if after.NumRows() != before.NumRows() {
		return nil, fmt.Errorf("the assignment made %d rows of %d", after.NumRows(), before.NumRows())
	}
	if err := checkBatch(op.snap.schema, after); err != nil {
		return nil, err
	}
	if err := op.change(ctx, ChangePreimage, before); err != nil {
		return nil, err
	}
	return after, op.change(ctx, ChangePostimage, after)
}
