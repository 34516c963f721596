package deltabus

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// onTables is the backend straight on the tables' logs and files.
type onTables struct {
	schema   string
	messages *deltalog.Table
	// Of these two, a write replaces the files of one consumer, and conflicts with nobody else's.
	checkpointTable *deltalog.Table
	deadLetterTable *deltalog.Table
	clock           func() time.Time
}

// told makes *err say that one of the tables was dropped, if that is why.
func (t *onTables) told(ctx context.Context, table *deltalog.Table, name string, err *error) {
	if *err != nil {
		*err = droppedError(ctx, table, t.schema+"."+name, *err)
	}
}

func (t *onTables) head(ctx context.Context) (_ head, err error) {
	defer t.told(ctx, t.messages, MessagesTable, &err)
	snap := t.messages.Cached()
	// Before the refresh, which would go on in the log of another table.
	gone, err := t.recreated(ctx, snap.Version())
	if err == nil && !gone {
		snap, err = t.messages.Snapshot(ctx)
	}
	if err != nil {
		return head{}, err
	}
	return head{snap.Metadata().ID, snap.Version(), heldFor(snap), gone}, nil
}

func (t *onTables) recreated(ctx context.Context, version int64) (_ bool, err error) {
	defer t.told(ctx, t.messages, MessagesTable, &err)
	err = sameTable(ctx, t.messages, version)
	if errors.Is(err, deltalog.ErrRecreated) {
		return true, nil
	}
	return false, err
}

func (t *onTables) earliest(ctx context.Context) (version int64, feed bool, err error) {
	v, err := t.messages.EarliestVersion(ctx)
	if err != nil || v > 0 {
		return v, false, err
	}
	snap, err := t.messages.SnapshotAt(ctx, v)
	if errors.Is(err, deltalog.ErrVersionNotFound) {
		return v, false, nil
	}
	if err != nil {
		return v, false, err
	}
	return v, snap.ChangeDataFeed(), nil
}

func (t *onTables) follow(after int64, columns []string) feed {
	return cdf.Follow(t.messages, after, columns)
}

func (t *onTables) rows(ctx context.Context, version int64, columns []string) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		snap, err := t.messages.SnapshotAt(ctx, version)
		if errors.Is(err, deltalog.ErrVersionNotFound) {
			err = fmt.Errorf("%w: version %d can no longer be rebuilt: %w", cdf.ErrExpired, version, err)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for rec, err := range t.messages.Scan(ctx, snap, columns, nil) {
			if errors.Is(err, store.ErrNotExist) {
				err = fmt.Errorf("%w: a data file of version %d was vacuumed: %w", cdf.ErrExpired, version, err)
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// What publish writes at most in one commit.
const (
	publishRows  = 1000
	publishBytes = 16 << 20
)

func (t *onTables) publish(ctx context.Context, messages []Message) (err error) {
	defer t.told(ctx, t.messages, MessagesTable, &err)
	for len(messages) > 0 {
		n, size := 0, 0
		for n < len(messages) && n < publishRows && (n == 0 || size+len(messages[n].Payload) <= publishBytes) {
			size += len(messages[n].Payload)
			n++
		}
		if err := t.publishOnce(ctx, messages[:n]); err != nil {
			return err
		}
		messages = messages[n:]
	}
	return nil
}

// publishOnce appends those messages that were not, in one commit with a txn for each: its id is the application.
func (t *onTables) publishOnce(ctx context.Context, messages []Message) error {
	for attempt := 0; ; attempt++ {
		snap, err := t.messages.Snapshot(ctx)
		if err != nil {
			return err
		}
		now := t.clock()
		updated := now.UnixMilli()
		// A producer of its own, numbered in the order given: a pair of producer and sequence is never used twice.
		producer := uuid.NewString()
		var txns []deltalog.Txn
		rec, err := buildRows(snap.Schema(), messageColumns, func(b *array.RecordBuilder) {
			for i := range messages {
				if _, done := snap.Txn(messages[i].ID); done {
					continue
				}
				appendMessage(b, 0, &messages[i], producer, int64(len(txns)), now)
				txns = append(txns, deltalog.Txn{AppID: messages[i].ID, Version: 0, LastUpdated: &updated})
			}
		})
		if err != nil || len(txns) == 0 {
			return err
		}
		adds, err := t.messages.WriteFiles(ctx, snap, []arrow.RecordBatch{rec})
		if err != nil {
			return err
		}
		_, err = t.messages.Commit(ctx, deltalog.Transaction{
			Base: snap, Operation: "WRITE", Adds: adds, Txns: txns, Parameters: map[string]any{"mode": "Append"},
		})
		if errors.Is(err, deltalog.ErrTxnAlreadyCommitted) && attempt < 20 {
			continue // somebody else published one of them meanwhile
		}
		return err
	}
}

// buildRows makes a batch of a table's columns, in its order, from rows that fill appends with the columns ddl; those that the bus
// does not know are null.
func buildRows(schema deltalog.Struct, ddl []string, fill func(*array.RecordBuilder)) (arrow.RecordBatch, error) {
	known, err := deltalog.ArrowSchema(columns(ddl))
	if err != nil {
		return nil, err
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, known)
	defer b.Release()
	fill(b)
	rec := b.NewRecordBatch()
	want, err := deltalog.ArrowSchema(schema)
	if err != nil {
		return nil, err
	}
	cols := make([]arrow.Array, want.NumFields())
	for i, f := range want.Fields() {
		if at := known.FieldIndices(f.Name); len(at) == 1 {
			cols[i] = rec.Column(at[0])
		} else {
			cols[i] = array.MakeArrayOfNull(memory.DefaultAllocator, f.Type, int(rec.NumRows()))
		}
	}
	return array.NewRecordBatch(want, cols, rec.NumRows()), nil
}
