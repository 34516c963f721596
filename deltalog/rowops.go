package deltalog

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Predicate tells which rows of a batch are selected: one answer a row. The batch has the table's columns, or those of the source of a MERGE.
// CHAR(n) comes as it is stored, which need not be padded.
type Predicate func(rows arrow.RecordBatch) (selected []bool, err error)

// Condition says which rows an operation is for. The zero value selects every row.
type Condition struct {
	// Partition narrows the operation to files with these partition values, as for FilesIn: other partitions are neither read nor watched
	// for concurrent changes.
	Partition map[string]string
	// MayMatch, if set, says of a file, by its partition values and statistics, whether it may hold selected rows: a file of which it says no is not
	// read. What others add to the table or take away is a conflict all the same.
	MayMatch func(*Add) bool
	// Where selects rows; nil: all of them, so that whole files go without being read.
	Where Predicate
	// SQL is the condition as commitInfo tells it, such as "(id > 5)".
	SQL string
}

// RowChanges is what a row operation did.
type RowChanges struct {
	// Commit is nil if there was nothing to do: no version was made.
	Commit                     *Commit
	Inserted, Updated, Deleted int64
}

// errAppendOnly refuses to take rows away.
var errAppendOnly = NewClassError("DELTA_CANNOT_MODIFY_APPEND_ONLY", nil, "this table is only to be appended to (delta.appendOnly)")

// pendingBytes is how much of new rows is gathered in memory before it becomes a file.
const pendingBytes = 64 << 20

// rowOperation gathers what one operation on rows does: files that go, rows of new ones, and changes for the feed.
type rowOperation struct {
	t       *Table
	snap    *Snapshot
	started time.Time
	tx      Transaction
	done    RowChanges

	rows pending
	// derived says that whole files tell what changed, so that no changes are gathered.
	derived bool
	changed []ChangedRows
	bytes   int64 // of changed
	// explicit says that whole files do not tell, so that change files must.
	explicit bool

	copied, outputRows int64
}

// pending are rows that wait to be written.
type pending struct {
	batches []arrow.RecordBatch
	rows    int64
	bytes   int64
}

func (p *pending) add(rec arrow.RecordBatch) {
	if rec.NumRows() == 0 {
		return
	}
	rec.Retain()
	p.batches = append(p.batches, rec)
	p.rows += rec.NumRows()
	p.bytes += sizeOf(rec)
}

// startRows begins an operation on the newest snapshot. removes says that it may take rows away.
func (t *Table) startRows(ctx context.Context, operation string, removes bool) (*rowOperation, error) {
	started := t.opts.Clock()
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if snap.writable != nil {
		return nil, snap.writable
	}
	if removes && snap.metadata.flag(propAppendOnly, false) {
		return nil, errAppendOnly
	}
	return &rowOperation{t: t, snap: snap, started: started, tx: Transaction{Base: snap, Operation: operation}}, nil
}

// read declares what the operation read, so that others' changes of it are conflicts.
func (op *rowOperation) read(partition map[string]string) error {
	for c := range partition {
		if !slices.Contains(op.snap.metadata.PartitionColumns, c) {
			return fmt.Errorf("column %s is no partition column", c)
		}
	}
	if len(partition) == 0 {
		op.tx.ReadTable = true
	} else {
		op.tx.ReadPartitions = append(op.tx.ReadPartitions, partition)
	}
	return nil
}

// filesFor yields the files that c may select rows of.
func (op *rowOperation) filesFor(c Condition) iter.Seq[*Add] {
	return func(yield func(*Add) bool) {
		for add := range op.snap.FilesIn(c.Partition) {
			if (c.MayMatch == nil || c.MayMatch(add)) && !yield(add) {
				return
			}
		}
	}
}

// remove ends a file.
func (op *rowOperation) remove(add *Add) { op.tx.Removes = append(op.tx.Removes, add) }

// write gathers rows for new files. They are in the table already, or were checked.
func (op *rowOperation) write(ctx context.Context, batches ...arrow.RecordBatch) error {
	for _, rec := range batches {
		op.rows.add(rec)
	}
	if op.rows.bytes >= pendingBytes {
		return op.flushRows(ctx)
	}
	return nil
}

// insert gathers new rows.
func (op *rowOperation) insert(ctx context.Context, rec arrow.RecordBatch) error {
	if err := checkBatch(op.snap.schema, rec); err != nil {
		return err
	}
	op.done.Inserted += rec.NumRows()
	if err := op.change(ctx, ChangeInsert, rec); err != nil {
		return err
	}
	return op.write(ctx, rec)
}

// change gathers changes for the feed, if it is on.
func (op *rowOperation) change(ctx context.Context, kind string, batches ...arrow.RecordBatch) error {
	if op.derived || !op.snap.ChangeDataFeed() {
		return nil
	}
	for _, rec := range batches {
		if rec.NumRows() > 0 {
			rec.Retain()
			op.changed = append(op.changed, ChangedRows{kind, rec})
			op.bytes += sizeOf(rec)
		}
	}
	if op.bytes >= pendingBytes && kind != ChangePreimage { // a postimage comes with its preimage
		return op.flushChanges(ctx)
	}
	return nil
}

func (op *rowOperation) flushRows(ctx context.Context) error {
	adds, err := op.t.writeUnchecked(ctx, op.snap, op.rows.batches)
	if err != nil {
		return err
	}
	op.tx.Adds = append(op.tx.Adds, adds...)
	op.outputRows += op.rows.rows
	op.rows = pending{}
	return nil
}

func (op *rowOperation) flushChanges(ctx context.Context) error {
	if len(op.changed) == 0 {
		return nil
	}
	files, err := op.t.writeChangeFiles(ctx, op.snap, op.changed)
	if err != nil {
		return err
	}
	op.tx.Changes = append(op.tx.Changes, files...)
	op.changed, op.bytes = nil, 0
	return nil
}

// flush writes everything that waits. Change files are complete, or there are none.
func (op *rowOperation) flush(ctx context.Context) error {
	if err := op.flushRows(ctx); err != nil {
		return err
	}
	if !op.explicit && len(op.tx.Changes) == 0 { // some may be written already, as they were too many
		return nil
	}
	return op.flushChanges(ctx)
}

// commit ends the operation; flush comes before it.
func (op *rowOperation) commit(ctx context.Context) (*RowChanges, error) {
	c, err := op.t.commit(ctx, op.tx)
	if err != nil {
		return nil, err
	}
	op.t.maybeCheckpoint()
	op.done.Commit = c
	return &op.done, nil
}

// nothing reports whether the table stays as it is.
func (op *rowOperation) nothing() bool {
	return len(op.tx.Removes) == 0 && op.rows.rows == 0 && len(op.tx.Adds) == 0
}

// selectRows splits the rows of a batch into those that p selects and the others, by their positions.
func selectRows(p Predicate, rec arrow.RecordBatch) (selected, others []int, err error) {
	n := int(rec.NumRows())
	if p == nil {
		return upTo(n), nil, nil
	}
	answers, err := p(rec)
	if err != nil {
		return nil, nil, err
	}
	if len(answers) != n {
		return nil, nil, fmt.Errorf("the condition gave %d answers for %d rows", len(answers), n)
	}
	for i, yes := range answers {
		if yes {
			selected = append(selected, i)
		} else {
			others = append(others, i)
		}
	}
	return selected, others, nil
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// parted is a batch of a file, in rows that a condition selects and others; either may be empty.
type parted struct{ selected, others arrow.RecordBatch }

// readFile reads a file whose rows may be written anew, so as they are stored.
func (op *rowOperation) readFile(ctx context.Context, add *Add) iter.Seq2[arrow.RecordBatch, error] {
	f := add.DataFile()
	f.Unpadded = true
	return op.t.ReadFile(ctx, op.snap, f, nil)
}

// part reads a file and parts its rows by a condition.
func (op *rowOperation) part(ctx context.Context, add *Add, where Predicate) iter.Seq2[parted, error] {
	return func(yield func(parted, error) bool) {
		for rec, err := range op.readFile(ctx, add) {
			var p parted
			if err == nil {
				p, err = partRows(rec, where)
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

func partRows(rec arrow.RecordBatch, where Predicate) (p parted, err error) {
	selected, others, err := selectRows(where, rec)
	if err != nil {
		return p, err
	}
	switch none := rec.NewSlice(0, 0); {
	case len(others) == 0:
		return parted{rec, none}, nil
	case len(selected) == 0:
		return parted{none, rec}, nil
	}
	if p.selected, err = take(rec, selected); err != nil {
		return p, err
	}
	p.others, err = take(rec, others)
	return p, err
}

// countRows is how many live rows a file has.
func (op *rowOperation) countRows(ctx context.Context, add *Add) (int64, error) {
	if stats, err := ParseStats(add.Stats); err == nil && stats.NumRecords != nil {
		n := *stats.NumRecords
		if add.DeletionVector != nil {
			n -= add.DeletionVector.Cardinality
		}
		return n, nil
	}
	n := int64(0)
	for rec, err := range op.t.ReadFile(ctx, op.snap, add.DataFile(), []string{}) {
		if err != nil {
			return 0, err
		}
		n += rec.NumRows()
	}
	return n, nil
}

// metrics are texts by name; what the operation did to files, under the names that DELETE and UPDATE have for it.
func (op *rowOperation) fileMetrics() map[string]string {
	m := map[string]string{"numDeletionVectorsAdded": "0", "numDeletionVectorsUpdated": "0", "numDeletionVectorsRemoved": "0"}
	added, removed := op.fileBytes()
	set(m, "numRemovedFiles", int64(len(op.tx.Removes)))
	set(m, "numRemovedBytes", removed)
	set(m, "numAddedFiles", int64(len(op.tx.Adds)))
	set(m, "numAddedBytes", added)
	set(m, "numAddedChangeFiles", int64(len(op.tx.Changes)))
	set(m, "numCopiedRows", op.copied)
	set(m, "executionTimeMs", op.took())
	return m
}

func set(m map[string]string, name string, n int64) { m[name] = strconv.FormatInt(n, 10) }

func (op *rowOperation) fileBytes() (added, removed int64) {
	for i := range op.tx.Adds {
		added += op.tx.Adds[i].Size
	}
	for _, a := range op.tx.Removes {
		removed += a.Size
	}
	return added, removed
}

func (op *rowOperation) took() int64 { return op.t.opts.Clock().Sub(op.started).Milliseconds() }

// predicates is a condition as operationParameters has it: a list of texts, as JSON.
func predicates(sql string) string {
	if sql == "" {
		return "[]"
	}
	return string(mustJSON([]string{sql}))
}
