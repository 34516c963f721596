package deltalog

import (
	"context"
	"fmt"
)

// Delete deletes the rows that a condition selects. A file all of whose rows go is removed, one that keeps some is written anew without the
// others, which are then in the change data feed; a file at a time is in memory. If no row is selected nothing is committed. A commit of
// others that changed what was read is ErrConflict: try again, it begins with the newest version. Files of an operation that failed are left to Vacuum.
func (t *Table) Delete(ctx context.Context, c Condition) (*RowChanges, error) {
	done, err := t.deleteRows(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("delete from %s: %w", t.st.URL(""), err)
	}
	return done, nil
}

func (t *Table) deleteRows(ctx context.Context, c Condition) (*RowChanges, error) {
	op, err := t.startRows(ctx, "DELETE", true)
	if err != nil {
		return nil, err
	}
	if err := op.read(c.Partition); err != nil {
		return nil, err
	}
	if err := op.deleteWhere(ctx, c); err != nil {
		return nil, err
	}
	if op.nothing() {
		return &op.done, nil
	}
	if err := op.flush(ctx); err != nil {
		return nil, err
	}
	op.tx.Parameters = map[string]any{"predicate": predicates(c.SQL)}
	op.tx.Metrics = op.fileMetrics()
	set(op.tx.Metrics, "numDeletedRows", op.done.Deleted)
	return op.commit(ctx)
}

// deleteWhere deletes the rows that c selects.
func (op *rowOperation) deleteWhere(ctx context.Context, c Condition) error {
	op.derived = c.Where == nil
	for add := range op.filesFor(c) {
		if err := op.deleteFrom(ctx, add, c.Where); err != nil {
			return err
		}
	}
	return nil
}

func (op *rowOperation) deleteFrom(ctx context.Context, add *Add, where Predicate) error {
	if where == nil {
		n, err := op.countRows(ctx, add)
		op.done.Deleted += n
		op.remove(add)
		return err
	}
	var kept, gone pending
	for rows, err := range op.part(ctx, add, where) {
		if err != nil {
			return err
		}
		kept.add(rows.others)
		gone.add(rows.selected)
	}
	if gone.rows == 0 {
		return nil
	}
	op.remove(add)
	op.done.Deleted += gone.rows
	op.copied += kept.rows
	op.explicit = op.explicit || kept.rows > 0
	if err := op.change(ctx, ChangeDelete, gone.batches...); err != nil {
		return err
	}
	return op.write(ctx, kept.batches...)
}

// Truncate removes every row, as TRUNCATE TABLE does.
func (t *Table) Truncate(ctx context.Context) (*RowChanges, error) {
	fail := func(err error) (*RowChanges, error) { return nil, fmt.Errorf("truncate %s: %w", t.st.URL(""), err) }
	op, err := t.startRows(ctx, "TRUNCATE", true)
	if err != nil {
		return fail(err)
	}
	op.tx.ReadTable = true
	if err := op.deleteWhere(ctx, Condition{}); err != nil {
		return fail(err)
	}
	op.tx.Metrics = map[string]string{}
	set(op.tx.Metrics, "numRemovedFiles", int64(len(op.tx.Removes)))
	set(op.tx.Metrics, "executionTimeMs", op.took())
	done, err := op.commit(ctx)
	if err != nil {
		return fail(err)
	}
	return done, nil
}
