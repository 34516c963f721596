package deltabus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
)

// Checkpoint is how far a consumer is: everything up to Version is done, and Position rows of Version+1 in the order of
// docs/design.md, counted whether the filter wants them or not.
type Checkpoint struct {
	Consumer string
	Filter   string
	// TableID is the messages table's metaData.id.
	TableID  string
	Version  int64
	Position int64
	// Backfill is set while the rows of that version are being read; Position counts them then.
	Backfill *int64
	Epoch    int64
	// StalledStarts counts the starts in a row that had an event to handle and ended, not gracefully, without moving past it.
	StalledStarts int
	Owner         string
	UpdatedAt     time.Time
}

// checkpointFile is a stored checkpoint and the file that holds it: a write replaces that file, or fails.
type checkpointFile struct {
	Checkpoint
	snap  *deltalog.Snapshot
	files []*deltalog.Add
}

func consumerPartition(id string) map[string]string { return map[string]string{"consumer_id": id} }

// loadCheckpoint reads the stored checkpoint of a consumer; without one its files are nil.
func (b *Bus) loadCheckpoint(ctx context.Context, id string) (checkpointFile, error) {
	cp := checkpointFile{}
	snap, err := b.checkpoints.Snapshot(ctx)
	if err != nil {
		return cp, err
	}
	cp.snap = snap
	for add := range snap.FilesIn(consumerPartition(id)) {
		cp.files = append(cp.files, add)
		rows, err := b.readCheckpointFile(ctx, snap, add)
		if err != nil {
			return cp, err
		}
		for _, r := range rows {
			if r.Epoch >= cp.Epoch { // one row a consumer, unless somebody wrote past us: the newest start counts
				cp.Checkpoint = r
			}
		}
	}
	return cp, nil
}

func (b *Bus) readCheckpointFile(ctx context.Context, snap *deltalog.Snapshot, add *deltalog.Add) ([]Checkpoint, error) {
	var out []Checkpoint
	for rec, err := range b.checkpoints.ReadFile(ctx, snap, add.Path, add.PartitionValues, columnNames(checkpointColumns)) {
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
				Consumer: text(0), Filter: text(1), TableID: text(2), Version: number(3), Position: number(4), Epoch: number(6),
				StalledStarts: int(rec.Column(7).(*array.Int32).Value(i)), Owner: text(8),
				UpdatedAt: time.UnixMicro(int64(rec.Column(9).(*array.Timestamp).Value(i))).UTC(),
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

// saveCheckpoint replaces old by next. Somebody else's write in between is ErrFenced, unless it was our own whose outcome we did not
// learn.
func (b *Bus) saveCheckpoint(ctx context.Context, old checkpointFile, next Checkpoint) (checkpointFile, error) {
	next.UpdatedAt = b.cfg.Clock().UTC().Truncate(time.Microsecond)
	for attempt := 0; ; attempt++ {
		now, err := b.loadCheckpoint(ctx, next.Consumer)
		if err != nil {
			return old, err
		}
		ours := now.Epoch == next.Epoch && now.Owner == next.Owner // perhaps of a write whose outcome we did not learn
		if !ours && (now.Epoch != old.Epoch || now.Owner != old.Owner) {
			return old, fmt.Errorf("consumer %s: %w: epoch %d (%s) is stored, this one is %d", next.Consumer, ErrFenced, now.Epoch, now.Owner, next.Epoch)
		}
		adds, err := b.checkpoints.WriteFiles(ctx, now.snap, []arrow.RecordBatch{checkpointBatch(now.snap.Schema(), next)})
		if err != nil {
			return old, err
		}
		c, err := b.checkpoints.Commit(ctx, deltalog.Transaction{
			Base: now.snap, Operation: "MERGE", Adds: adds, Removes: now.files,
			ReadPartitions: []map[string]string{consumerPartition(next.Consumer)},
			Parameters:     map[string]any{"consumer": next.Consumer, "epoch": next.Epoch},
		})
		if errors.Is(err, deltalog.ErrConflict) && attempt < 10 {
			continue // what is stored now tells whether we are fenced off
		}
		if err != nil {
			return old, err
		}
		return checkpointFile{Checkpoint: next, snap: b.checkpoints.Cached(), files: committedAdds(c)}, nil
	}
}

func committedAdds(c *deltalog.Commit) []*deltalog.Add {
	var out []*deltalog.Add
	for i := range c.Actions {
		if a := c.Actions[i].Add; a != nil {
			out = append(out, a)
		}
	}
	return out
}

func checkpointBatch(schema deltalog.Struct, c Checkpoint) arrow.RecordBatch {
	as, err := deltalog.ArrowSchema(schema)
	if err != nil {
		panic(err) // the table's shape was checked when the bus was opened
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, as)
	defer b.Release()
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
	number(6, c.Epoch)
	b.Field(7).(*array.Int32Builder).Append(int32(c.StalledStarts))
	if c.Owner != "" {
		text(8, c.Owner)
	} else {
		b.Field(8).AppendNull()
	}
	b.Field(9).(*array.TimestampBuilder).Append(arrow.Timestamp(c.UpdatedAt.UnixMicro()))
	return b.NewRecordBatch()
}

// columnNames are the names of column definitions.
func columnNames(ddl []string) []string {
	names := make([]string, len(ddl))
	for i, d := range ddl {
		names[i], _, _ = strings.Cut(d, " ")
	}
	return names
}

// sweep deletes files of the checkpoints table that no version needs any more: every checkpoint replaces one.
func (b *Bus) sweep(ctx context.Context) {
	if _, err := b.checkpoints.Vacuum(ctx, deltalog.VacuumOptions{}); err != nil {
		b.cfg.Logger.Warn("clean up checkpoints", "error", err)
	}
}
