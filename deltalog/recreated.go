package deltalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Recreated reports whether version, which this Table has read, is gone from the log or was committed anew: the table was
// dropped, or dropped and made again in the same place, and what this Table knows is of the old one. Refreshing does not notice that, since
// it only looks for the next version. It costs one Stat, unless the commit file's time leaves it in doubt: then the log is loaded to compare
// the table's id.
func (t *Table) Recreated(ctx context.Context, version int64) (bool, error) {
	cur := t.Cached()
	var known time.Time
	if c := t.recent.get(version); c != nil {
		known = c.modified
	} else if version == cur.version {
		known = cur.modified
	}
	info, err := t.st.Stat(ctx, logName(version))
	switch {
	case err == nil && !known.IsZero() && info.ModTime.Truncate(time.Millisecond).Equal(known.Truncate(time.Millisecond)):
		return false, nil
	case err != nil && !errors.Is(err, store.ErrNotExist):
		return false, fmt.Errorf("stat version %d of %s: %w", version, t.st.URL(""), err)
	}
	now, err := newTable(t.st, t.opts).load(ctx, -1)
	if errors.Is(err, ErrNotTable) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("load %s: %w", t.st.URL(""), err)
	}
	return now.metadata.ID != cur.metadata.ID || now.version < version, nil
}
