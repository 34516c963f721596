package deltabus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
)

// ConsumerHold is how long beyond its retentions the messages table keeps what a consumer's stored position still needs. A consumer that has
// not moved for longer loses its place (ErrPositionExpired), so that one that nobody runs any more does not keep a log for ever.
const ConsumerHold = 90 * 24 * time.Hour

// KeepForConsumers makes a messages table, known by its name (o is left alone for any other), keep what the consumers of its bus still need:
// cleaning the log and vacuuming remove nothing that a stored checkpoint, or the backfill that it is in, has yet to read, up to ConsumerHold.
// Whoever opens such a table for writing is to use it; OnStore and OnHost do, and emulator.WithTableOptions takes it. open opens another
// table for reading. The checkpoints are only read when something is about to be removed.
func KeepForConsumers(fullName string, open func(context.Context, string) (*deltalog.Table, error), o *deltalog.Options) {
	schema, ok := strings.CutSuffix(fullName, "."+MessagesTable)
	if !ok {
		return
	}
	o.KeepAtMost = ConsumerHold
	o.KeepFrom = func(ctx context.Context, messages *deltalog.Snapshot) (int64, error) {
		name := schema + "." + CheckpointsTable
		t, err := open(ctx, name)
		if errors.Is(err, deltalog.ErrNotTable) {
			return math.MaxInt64, nil // no bus, or none any more
		}
		if err != nil {
			return 0, err
		}
		defer func() { _ = t.Close() }() // nothing was written
		if checkShape(name, TableSpecs()[CheckpointsTable], t.Cached()) != nil {
			if slices.Equal(t.Cached().Metadata().PartitionColumns, []string{"consumer_id"}) {
				return 0, fmt.Errorf("table %s is of another version of this program", name)
			}
			return math.MaxInt64, nil // somebody else's
		}
		all, err := (&onTables{checkpointTable: t}).checkpoints(ctx)
		if err != nil {
			return 0, fmt.Errorf("consumers of %s: %w", schema, err)
		}
		return lowestNeeded(all, messages.Metadata().ID), nil
	}
}

// lowestNeeded is the lowest version of the messages table with this id that one of the consumers needs: the last one that is done, behind
// which the feed goes on, or the one whose rows are being read.
func lowestNeeded(all []Checkpoint, tableID string) int64 {
	lowest := int64(math.MaxInt64)
	for _, c := range all {
		switch {
		case c.TableID != tableID: // it has to begin anew anyway
		case c.Backfill != nil:
			lowest = min(lowest, *c.Backfill)
		default:
			lowest = min(lowest, c.Version)
		}
	}
	return lowest
}

// heldFor is how old a commit of messages becomes at least, while a consumer needs it, before cleaning or vacuuming takes from it.
func heldFor(snap *deltalog.Snapshot) time.Duration {
	r := snap.Retention()
	if r.Log == 0 {
		return r.Files + ConsumerHold
	}
	return min(r.Log, r.Files) + ConsumerHold
}
