package deltabus

import (
	"context"
	"errors"
	"fmt"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// ErrTableDropped says that a table of the bus is no longer there, or, for any but a consumer's messages (ErrTableRecreated), another one has its name;
// the text names it. Init makes what is missing again, without what was in it. A publisher ends with it, and so does a consumer.
var ErrTableDropped = errors.New("the table was dropped")

// droppedError is err, which came of work on t, unless the table is gone or another one is there: ErrTableDropped then.
func droppedError(ctx context.Context, t *deltalog.Table, name string, err error) error {
	switch {
	case err == nil, errors.Is(err, ErrTableDropped):
		return err
	case errors.Is(err, deltalog.ErrNotTable):
		return fmt.Errorf("table %s: %w", name, ErrTableDropped)
	case errors.Is(err, deltalog.ErrRecreated):
		return fmt.Errorf("table %s: %w, and another one has its name", name, ErrTableDropped)
	case errors.Is(err, store.ErrNotExist): // of a file, or with it the whole table
		if same := sameTable(ctx, t, t.Cached().Version()); same != nil {
			return droppedError(ctx, t, name, same)
		}
	}
	return err
}

// sameTable fails if version, which t has read, is no longer the one that is there: with deltalog.ErrNotTable if no table is, else
// deltalog.ErrRecreated. It costs one Stat.
func sameTable(ctx context.Context, t *deltalog.Table, version int64) error {
	gone, err := t.Recreated(ctx, version)
	if err != nil || !gone {
		return err
	}
	now, err := deltalog.Open(ctx, t.Store(), deltalog.Options{CheckpointInterval: -1})
	if err != nil {
		return err
	}
	return errors.Join(deltalog.ErrRecreated, now.Close())
}
