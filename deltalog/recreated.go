package deltalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Recreated reports whether version, which this Table has read, is gone from the log or was committed anew: the table was
// dropped, or dropped and made again in the same place, and what this Table knows is of the old one. Refreshing notices that only when a
// next version comes, since it only looks for that. It costs one Stat, unless the commit file's time leaves it in doubt: then its content, or the
// table's id, is compared.
func (t *Table) Recreated(ctx context.Context, version int64) (bool, error) {
	_, err := t.look(ctx, version)
	if errors.Is(err, ErrNotTable) || errors.Is(err, ErrRecreated) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at version %d of %s: %w", version, t.st.URL(""), err)
	}
	return false, nil
}

// look makes sure that the log still has version, which this Table has read, or had it and was cleaned up since: ErrNotTable if it has gone,
// ErrRecreated if it is another one. What had to be loaded to tell is returned, nil if a look at the commit was enough.
func (t *Table) look(ctx context.Context, version int64) (*Snapshot, error) {
	cur := t.Cached()
	c := t.recent.get(version)
	var known time.Time
	if c != nil {
		known = c.modified
	} else if version == cur.version {
		known = cur.modified
	}
	info, err := t.st.Stat(ctx, logName(version))
	switch {
	case err == nil && !known.IsZero() && info.ModTime.Truncate(time.Millisecond).Equal(known.Truncate(time.Millisecond)):
		t.sawLog()
		return nil, nil
	case err == nil && c != nil: // a copy that lost its times, or a file system that does not keep them
		if txnID := c.Info().String("txnId"); txnID != "" {
			if own, there, err := t.isOwn(ctx, version, txnID); err == nil && there && own {
				t.sawLog()
				return nil, nil
			}
		}
	case err != nil && !errors.Is(err, store.ErrNotExist):
		return nil, err
	}
	now, err := newTable(t.st, t.opts).load(ctx, -1)
	if err != nil {
		return nil, err
	}
	if now.metadata.ID != cur.metadata.ID || now.version < version {
		return nil, fmt.Errorf("%w: open it again", ErrRecreated)
	}
	t.sawLog()
	return now, nil
}

// adopt makes a snapshot that look had to load the newest, if it is. The caller holds mu.
func (t *Table) adopt(now *Snapshot) {
	if newest := t.newest.Load(); now != nil && newest.version <= now.version {
		t.newest.Store(now)
	}
}

// sameLog makes sure, for one Stat, that the log is the one that the newest snapshot is of: a commit to another one, or to none, would seem to
// succeed and be lost.
func (t *Table) sameLog(ctx context.Context) error {
	now, err := t.look(ctx, t.Cached().version)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.adopt(now)
	return nil
}
