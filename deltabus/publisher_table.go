package deltabus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// tableJournal is the messages table as a publisher sees it. Used by one goroutine.
type tableJournal struct {
	name  string
	id    string // the table's metaData.id
	open  func(context.Context) (*deltalog.Table, error)
	clock func() time.Time

	table *deltalog.Table
	base  *deltalog.Snapshot // that the last own saw
}

// get returns the table; after an error it is looked up again, since its owner may have opened it anew.
// deltalog.ErrNotTable if it is not there any more, or deltalog.ErrRecreated if another one is.
func (j *tableJournal) get(ctx context.Context) (*deltalog.Table, error) {
	if j.table == nil {
		t, err := j.open(ctx)
		if err != nil {
			return nil, err
		}
		j.table = t
	}
	if t := j.table; t.Cached().Metadata().ID != j.id {
		return nil, fmt.Errorf("look for table %s: %w", j.name, deltalog.ErrRecreated)
	}
	// Before a refresh, which may not notice.
	if err := sameTable(ctx, j.table, j.table.Cached().Version()); err != nil {
		return nil, err
	}
	return j.table, nil
}

func (j *tableJournal) version(ctx context.Context) (v int64, err error) {
	defer j.forgetOn(ctx, &err)
	t, err := j.get(ctx)
	if err != nil {
		return 0, err
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return 0, err
	}
	return snap.Version(), nil
}

// forgetOn forgets the table after an error, which says ErrTableDropped if that is why.
func (j *tableJournal) forgetOn(ctx context.Context, err *error) {
	if j.table != nil {
		*err = droppedError(ctx, j.table, j.name, *err)
	} else if errors.Is(*err, deltalog.ErrNotTable) {
		*err = fmt.Errorf("%w: %w", ErrTableDropped, *err)
	}
	if *err != nil && !errors.Is(*err, deltalog.ErrConflict) && !errors.Is(*err, deltalog.ErrTxnAlreadyCommitted) {
		j.table = nil
	}
}

func (j *tableJournal) own(ctx context.Context, q ownQuery) (rows ownRows, err error) {
	defer j.forgetOn(ctx, &err)
	t, err := j.get(ctx)
	if err != nil {
		return ownRows{}, err
	}
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return ownRows{}, err
	}
	j.base = snap
	rows = ownRows{seqs: map[int64]bool{}, txn: -1, upTo: snap.Version()}
	if txn, ok := snap.Txn(q.producer); ok {
		rows.txn = txn.Version
	}
	if q.after >= 0 && q.after <= snap.Version() {
		err := j.ownInCommits(ctx, t, snap, q, &rows)
		if err == nil || !errors.Is(err, deltalog.ErrVersionNotFound) && !errors.Is(err, store.ErrNotExist) {
			return rows, err
		}
		// The log or a file of those versions is cleaned up already; the rows are in the snapshot's files all the same.
	}
	for add := range snap.Files() {
		if err := j.ownInFile(ctx, t, snap, add, q, &rows); err != nil {
			return ownRows{}, err
		}
	}
	return rows, nil
}

func (j *tableJournal) ownInCommits(ctx context.Context, t *deltalog.Table, snap *deltalog.Snapshot, q ownQuery, rows *ownRows) error {
	for v := q.after + 1; v <= snap.Version(); v++ {
		c, err := t.ReadCommit(ctx, v)
		if err != nil {
			return err
		}
		for _, a := range c.Actions {
			if a.Add == nil || !a.Add.DataChange {
				continue
			}
			if err := j.ownInFile(ctx, t, snap, a.Add, q, rows); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *tableJournal) ownInFile(ctx context.Context, t *deltalog.Table, snap *deltalog.Snapshot, add *deltalog.Add, q ownQuery, rows *ownRows) error {
	if !mayHold(add.Stats, q) {
		return nil
	}
	for rec, err := range t.ReadFile(ctx, snap, add.DataFile(), []string{"producer_id", "producer_seq"}) {
		if err != nil {
			return err
		}
		ids, ok := rec.Column(0).(*array.String)
		seqs, ok2 := rec.Column(1).(*array.Int64)
		if !ok || !ok2 {
			return fmt.Errorf("messages table: producer_id is %s and producer_seq is %s, want string and bigint", rec.Column(0).DataType(), rec.Column(1).DataType())
		}
		for i := range ids.Len() {
			if ids.Value(i) == q.producer && seqs.Value(i) >= q.fromSeq {
				rows.seqs[seqs.Value(i)] = true
			}
		}
	}
	return nil
}

// mayHold reports whether a file with these statistics can hold rows that q asks for.
func mayHold(stats string, q ownQuery) bool {
	s, err := deltalog.ParseStats(stats)
	if err != nil {
		return true
	}
	var low, high string
	if json.Unmarshal(s.MinValues["producer_id"], &low) == nil && low > q.producer {
		return false
	}
	// A writer may have cut the greatest value short.
	if json.Unmarshal(s.MaxValues["producer_id"], &high) == nil && high < q.producer && !strings.HasPrefix(q.producer, high) {
		return false
	}
	var last int64
	return json.Unmarshal(s.MaxValues["producer_seq"], &last) != nil || last >= q.fromSeq
}

func (j *tableJournal) append(ctx context.Context, producer string, msgs []*entry, since int64) (err error) {
	defer j.forgetOn(ctx, &err)
	t, err := j.get(ctx)
	if err != nil {
		return err
	}
	base, contend := j.base, since >= 0
	if !contend || base == nil || base.Version() != since {
		if base, err = t.Snapshot(ctx); err != nil {
			return err
		}
		if contend && base.Version() != since {
			return fmt.Errorf("append after version %d: %w", since, deltalog.ErrConflict)
		}
	}
	highest := msgs[len(msgs)-1].receipt.ProducerSeq
	if txn, ok := base.Txn(producer); ok && txn.Version >= highest { // before a file is written for nothing
		return fmt.Errorf("append messages up to %d: %w", highest, deltalog.ErrTxnAlreadyCommitted)
	}
	rec, err := messageRows(base.Schema(), msgs)
	if err != nil {
		return err
	}
	defer rec.Release()
	adds, err := t.WriteFiles(ctx, base, []arrow.RecordBatch{rec})
	if err != nil {
		return err
	}
	updated := j.clock().UnixMilli()
	_, err = t.Commit(ctx, deltalog.Transaction{
		Base: base, Operation: "STREAMING UPDATE", Adds: adds, ReadTable: contend,
		Parameters: map[string]any{"outputMode": "Append", "queryId": producer, "epochId": highest},
		Txns:       []deltalog.Txn{{AppID: producer, Version: highest, LastUpdated: &updated}},
	})
	return err
}

// messageRows builds rows of the messages table, by the names of its columns; those that the bus does not know are
// null.
func messageRows(schema deltalog.Struct, msgs []*entry) (arrow.RecordBatch, error) {
	known, err := deltalog.ArrowSchema(columns(messageColumns))
	if err != nil {
		return nil, err
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, known)
	defer b.Release()
	b.Reserve(len(msgs))
	for _, e := range msgs {
		appendMessage(b, 0, &e.msg, e.receipt.ProducerID, e.receipt.ProducerSeq, e.receipt.PublishedAt)
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	want, err := deltalog.ArrowSchema(schema)
	if err != nil {
		return nil, err
	}
	cols := make([]arrow.Array, want.NumFields())
	for i, f := range want.Fields() {
		if at := known.FieldIndices(f.Name); len(at) == 1 {
			cols[i] = rec.Column(at[0])
		} else {
			nulls := array.MakeArrayOfNull(memory.DefaultAllocator, f.Type, len(msgs))
			defer nulls.Release()
			cols[i] = nulls
		}
	}
	return array.NewRecordBatch(want, cols, int64(len(msgs))), nil
}
