package deltabus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/deltalog"
)

// Checkpoint is how far a consumer is: everything up to Version is done, and Position rows of Version+1 in the order of
// docs/design.md, counted whether the filter wants them or not.
type Checkpoint struct {
	Consumer string
	Filter   string
	// TableID is the messages table's metaData.id.
	TableID string
	// Version is the last Delta version that is wholly done; -1 for nothing.
	Version  int64
	Position int64
	// Backfill is set while the rows of that version are being read; Position counts them then, and Version is -1.
	Backfill *int64
	// Since is the last version of which this consumer handled nothing, because it, or its present filter, began behind it: what is in there does
	// not count as handled. -1 for none.
	Since int64
	// Epoch numbers the starts from 1; a write succeeds only with the epoch that is stored.
	Epoch int64
	// StalledStarts counts the starts in a row that had an event to handle and ended, not gracefully, without moving past it.
	StalledStarts int
	// Owner names the instance that wrote it.
	Owner     string
	UpdatedAt time.Time
}

func consumerPartition(id string) map[string]string { return map[string]string{"consumer_id": id} }

// tidy deletes the files of replaced checkpoints and dead letters that are older than the tables' short retention; the log is cleaned by
// deltalog whenever it writes a Delta checkpoint. Together they keep the tables at the size of what is in them.
func (t *onTables) tidy(ctx context.Context) error {
	_, err := t.checkpointTable.Vacuum(ctx, deltalog.VacuumOptions{})
	_, err2 := t.deadLetterTable.Vacuum(ctx, deltalog.VacuumOptions{})
	return errors.Join(err, err2)
}

func (t *onTables) checkpoint(ctx context.Context, consumer string) (_ Checkpoint, err error) {
	defer t.told(ctx, t.checkpointTable, CheckpointsTable, &err)
	snap, err := t.checkpointTable.Snapshot(ctx)
	if err != nil {
		return Checkpoint{}, err
	}
	c, _, err := t.checkpointIn(ctx, snap, consumer)
	return c, err
}

// checkpointIn is the checkpoint of a consumer in a snapshot, with the files that hold it.
func (t *onTables) checkpointIn(ctx context.Context, snap *deltalog.Snapshot, consumer string) (c Checkpoint, files []*deltalog.Add, err error) {
	for add := range snap.FilesIn(consumerPartition(consumer)) {
		files = append(files, add)
		rows, err := t.checkpointRows(ctx, snap, add)
		if err != nil {
			return c, nil, err
		}
		for _, r := range rows {
			if r.Epoch >= c.Epoch { // one row a consumer, unless somebody wrote past us: the newest start counts
				c = r
			}
		}
	}
	return c, files, nil
}

func (t *onTables) checkpoints(ctx context.Context) (_ []Checkpoint, err error) {
	defer t.told(ctx, t.checkpointTable, CheckpointsTable, &err)
	snap, err := t.checkpointTable.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	newest := map[string]Checkpoint{}
	for add := range snap.Files() {
		rows, err := t.checkpointRows(ctx, snap, add)
		if err != nil {
			return nil, err
		}
		for _, c := range rows {
			if old, ok := newest[c.Consumer]; !ok || c.Epoch >= old.Epoch {
				newest[c.Consumer] = c
			}
		}
	}
	out := make([]Checkpoint, 0, len(newest))
	for _, c := range newest {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Checkpoint) int { return strings.Compare(a.Consumer, b.Consumer) })
	return out, nil
}

func (t *onTables) checkpointRows(ctx context.Context, snap *deltalog.Snapshot, add *deltalog.Add) ([]Checkpoint, error) {
	var out []Checkpoint
	for rec, err := range t.checkpointTable.ReadFile(ctx, snap, add.DataFile(), columnNames(checkpointColumns)) {
		if err != nil {
			return nil, err
		}
		for i := range int(rec.NumRows()) {
			text := func(c int) string {
				if rec.Column(c).IsNull(i) {
					return ""
				}
				return strings.Clone(rec.Column(c).(*array.String).Value(i))
			}
			number := func(c int) int64 { return rec.Column(c).(*array.Int64).Value(i) }
			c := Checkpoint{
				Consumer: text(0), Filter: text(1), TableID: text(2), Version: number(3), Position: number(4), Since: number(6), Epoch: number(7),
				StalledStarts: int(rec.Column(8).(*array.Int32).Value(i)), Owner: text(9),
				UpdatedAt: time.UnixMicro(int64(rec.Column(10).(*array.Timestamp).Value(i))).UTC(),
			}
			if !rec.Column(5).IsNull(i) {
				v := number(5)
				c.Backfill = &v
			}
			out = append(out, c)
		}
	}
	return out, nil
}

func (t *onTables) saveCheckpoint(ctx context.Context, held, next Checkpoint) (err error) {
	defer t.told(ctx, t.checkpointTable, CheckpointsTable, &err)
	for attempt := 0; ; attempt++ {
		snap, err := t.checkpointTable.Snapshot(ctx)
		if err != nil {
			return err
		}
		now, files, err := t.checkpointIn(ctx, snap, next.Consumer)
		if err != nil {
			return err
		}
		isHeld := now.Epoch == held.Epoch && now.Owner == held.Owner
		isOurs := now.Epoch == next.Epoch && now.Owner == next.Owner
		// A start takes over from what it has read: an instance that moves on in between must not be set back.
		isStale := isHeld && next.Epoch != held.Epoch && !samePlace(&now, &held)
		if !isHeld && !isOurs || isStale {
			return fmt.Errorf("consumer %s: %w: epoch %d (%s) is stored, this one is %d", next.Consumer, ErrFenced, now.Epoch, now.Owner, next.Epoch)
		}
		rec, err := buildRows(snap.Schema(), checkpointColumns, func(b *array.RecordBuilder) { appendCheckpoint(b, &next) })
		if err != nil {
			return err
		}
		adds, err := t.checkpointTable.WriteFiles(ctx, snap, []arrow.RecordBatch{rec})
		if err != nil {
			return err
		}
		_, err = t.checkpointTable.Commit(ctx, deltalog.Transaction{
			Base: snap, Operation: "MERGE", Adds: adds, Removes: files,
			ReadPartitions: []map[string]string{consumerPartition(next.Consumer)},
			Parameters:     map[string]any{"consumer": next.Consumer, "epoch": next.Epoch},
		})
		if errors.Is(err, deltalog.ErrConflict) && attempt < 10 {
			continue // what is stored now tells whether we are fenced off
		}
		return err
	}
}

func appendCheckpoint(b *array.RecordBuilder, c *Checkpoint) {
	text := func(i int, s string) { b.Field(i).(*array.StringBuilder).Append(s) }
	number := func(i int, v int64) { b.Field(i).(*array.Int64Builder).Append(v) }
	text(0, c.Consumer)
	text(1, c.Filter)
	text(2, c.TableID)
	number(3, c.Version)
	number(4, c.Position)
	if c.Backfill != nil {
		number(5, *c.Backfill)
	} else {
		b.Field(5).AppendNull()
	}
	number(6, c.Since)
	number(7, c.Epoch)
	b.Field(8).(*array.Int32Builder).Append(int32(c.StalledStarts))
	if c.Owner != "" {
		text(9, c.Owner)
	} else {
		b.Field(9).AppendNull()
	}
	b.Field(10).(*array.TimestampBuilder).Append(arrow.Timestamp(c.UpdatedAt.UnixMicro()))
}

// columnNames are the names of column definitions.
func columnNames(ddl []string) []string {
	names := make([]string, len(ddl))
	for i, d := range ddl {
		names[i], _, _ = strings.Cut(d, " ")
	}
	return names
}
