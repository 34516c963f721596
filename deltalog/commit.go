package deltalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// errTaken says that another writer has the version.
var errTaken = errors.New("version taken")

// Commit commits tx: at the next version, rebased over other writers' commits as long as they do not conflict (delta.md 2.10). It tries until
// ctx ends. An error that wraps ErrConflict, ErrTxnAlreadyCommitted, ErrRecreated (the log is another one now) or ErrNotTable (it is gone) left
// nothing behind. After an unclear error of the store the outcome is
// settled by reading back the commit's own txnId; where not even that is possible, the error wraps ErrOutcomeUnknown. After one that wraps
// store.ErrSyncFailed this Table writes no more. The table's snapshot is updated when it returns.
func (t *Table) Commit(ctx context.Context, tx Transaction) (*Commit, error) {
	c, err := t.commit(ctx, tx)
	if err != nil {
		return nil, fmt.Errorf("commit to %s: %w", t.st.URL(""), err)
	}
	t.maybeCheckpoint()
	return c, nil
}

func (t *Table) commit(ctx context.Context, tx Transaction) (*Commit, error) {
	if err := tx.validate(); err != nil {
		return nil, err
	}
	select {
	case t.committing <- struct{}{}:
		defer func() { <-t.committing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := t.sameLog(ctx); err != nil {
		return nil, err
	}
	txnID := uuid.NewString()
	checked := tx.Base.version
	for attempt := 0; ; attempt++ {
		cur := t.Cached()
		if cur.metadata.ID != tx.Base.metadata.ID {
			return nil, fmt.Errorf("%w: open it again", ErrRecreated)
		}
		for ; checked < cur.version; checked++ {
			winner, err := t.ReadCommit(ctx, checked+1)
			if errors.Is(err, ErrVersionNotFound) {
				return nil, fmt.Errorf("%w: the log no longer tells what happened since version %d, read the table again: %w", ErrConflict, checked, err)
			}
			if err != nil {
				return nil, err
			}
			if err := tx.checkWinner(winner); err != nil {
				return nil, err
			}
		}
		if err := tx.check(cur); err != nil {
			return nil, err
		}
		c, err := t.tryVersion(ctx, &tx, cur, txnID)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, errTaken) {
			return nil, err
		}
		// Lost the race for this version. Others of other processes may be as quick: wait a little, and no longer than the caller does.
		if _, err := t.Snapshot(ctx); err != nil {
			return nil, err
		}
		if err := pause(ctx, attempt); err != nil {
			return nil, err
		}
	}
}

// tryVersion commits tx at the version after cur, or fails with errTaken.
func (t *Table) tryVersion(ctx context.Context, tx *Transaction, cur *Snapshot, txnID string) (*Commit, error) {
	ts := t.opts.Clock().Truncate(time.Millisecond)
	if !ts.After(cur.timestamp) {
		ts = cur.timestamp.Add(time.Millisecond)
	}
	c := &Commit{Version: cur.version + 1, Timestamp: ts, Actions: t.actions(tx, ts, txnID), modified: ts}
	if err := t.publish(ctx, c, txnID); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// A refresh may have read our own version already.
	if newest := t.newest.Load(); newest.version == cur.version {
		if err := t.advance(newest, c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// publish puts the file of c, which carries txnID, in place if its version is free, else it fails with errTaken.
func (t *Table) publish(ctx context.Context, c *Commit, txnID string) error {
	data, err := encodeCommit(c.Actions)
	if err != nil {
		return err
	}
	c.Size = int64(len(data))
	for attempt := 0; ; attempt++ {
		err = t.put(ctx, logName(c.Version), data, store.PutOptions{IfAbsent: true, ModTime: c.Timestamp, NoDirs: c.Version > 0})
		if err == nil || errors.Is(err, store.ErrSyncFailed) {
			return err
		}
		// Taken by somebody else, or by us although the store says otherwise, or not at all: what is there tells.
		switch own, there, readErr := t.isOwn(ctx, c.Version, txnID); {
		case readErr != nil:
			// The store's answer is only quoted: "exists" may have been about our own file.
			return fmt.Errorf("version %d: %w: %v; then %w", c.Version, ErrOutcomeUnknown, err, readErr)
		case own:
			return nil
		case there:
			return fmt.Errorf("version %d: %w", c.Version, errTaken)
		case errors.Is(err, store.ErrNotExist): // its directory is not
			return fmt.Errorf("version %d: %w: %w", c.Version, ErrNotTable, err)
		case !errors.Is(err, store.ErrUnclear):
			return err
		}
		// It is not there yet, and may still come to be. The same again settles it: one of the two is done, and carries our txnId.
		if attempt == publishAttempts || pause(ctx, attempt+3) != nil {
			return fmt.Errorf("version %d: %w: %w", c.Version, ErrOutcomeUnknown, err)
		}
	}
}

// publishAttempts is how often a commit file is put again whose fate is not known.
const publishAttempts = 10

// put writes a file. A failed sync makes it the last: what is on disk is unknown then, and only a new Table, which reads it, may go on
// (design.md, decision 2).
func (t *Table) put(ctx context.Context, name string, data []byte, opts store.PutOptions) error {
	if failed := t.poison.Load(); failed != nil {
		return fmt.Errorf("this table stopped writing after a failed sync, open it again: %w", *failed)
	}
	err := t.st.Put(ctx, name, data, opts)
	if errors.Is(err, store.ErrSyncFailed) {
		t.poison.CompareAndSwap(nil, &err)
	}
	return err
}

// isOwn reads back the commit of version and tells whether it carries our txnId.
func (t *Table) isOwn(ctx context.Context, version int64, txnID string) (own, there bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	data, err := t.st.Get(ctx, logName(version))
	if errors.Is(err, store.ErrNotExist) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	actions, err := ParseCommit(data)
	if err != nil {
		return false, true, err
	}
	return commitInfo(actions).String("txnId") == txnID, true, nil
}

// pause waits before another attempt: up to 1 ms after the first loss, doubling up to 100 ms, with jitter.
func pause(ctx context.Context, attempt int) error {
	limit := time.Millisecond << min(attempt, 7)
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(min(limit, 100*time.Millisecond)))))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// actions are the lines of the commit, commitInfo first.
func (t *Table) actions(tx *Transaction, ts time.Time, txnID string) []Action {
	out := make([]Action, 0, 3+len(tx.Txns)+len(tx.Removes)+len(tx.Adds)+len(tx.Changes))
	out = append(out, Action{CommitInfo: newCommitInfo(t.opts, ts, *tx, tx.blindAppend(), txnID)})
	if tx.Protocol != nil {
		out = append(out, Action{Protocol: tx.Protocol})
	}
	if tx.Metadata != nil {
		out = append(out, Action{Metadata: tx.Metadata})
	}
	for i := range tx.Txns {
		out = append(out, Action{Txn: &tx.Txns[i]})
	}
	deleted := ts.UnixMilli()
	for _, a := range tx.Removes {
		size := a.Size
		out = append(out, Action{Remove: &Remove{
			Path: a.Path, DeletionTimestamp: &deleted, DataChange: !tx.NoDataChange, ExtendedFileMetadata: true,
			PartitionValues: a.PartitionValues, Size: &size, DeletionVector: a.DeletionVector,
			BaseRowID: a.BaseRowID, DefaultRowCommitVersion: a.DefaultRowCommitVersion,
		}})
	}
	for i := range tx.Adds {
		add := tx.Adds[i]
		add.DataChange = !tx.NoDataChange
		out = append(out, Action{Add: &add})
	}
	for i := range tx.Changes {
		out = append(out, Action{CDC: &tx.Changes[i]})
	}
	return out
}

func newCommitInfo(opts Options, ts time.Time, tx Transaction, blind bool, txnID string) CommitInfo {
	info := CommitInfo{}
	set := func(key string, v any) {
		if raw, err := json.Marshal(v); err == nil {
			info[key] = raw
		}
	}
	parameters := tx.Parameters
	if parameters == nil {
		parameters = map[string]any{}
	}
	set("timestamp", ts.UnixMilli())
	set("operation", tx.Operation)
	set("operationParameters", parameters)
	if tx.Base != nil {
		set("readVersion", tx.Base.version)
	}
	if tx.NoDataChange {
		set("isolationLevel", "SnapshotIsolation")
	} else {
		set("isolationLevel", "Serializable")
	}
	set("isBlindAppend", blind)
	if len(tx.Metrics) > 0 {
		set("operationMetrics", tx.Metrics)
	}
	set("engineInfo", opts.EngineInfo)
	set("txnId", txnID)
	return info
}

// blindAppend reports whether tx reads nothing of the table.
func (tx *Transaction) blindAppend() bool {
	return !tx.ReadTable && len(tx.ReadPartitions) == 0 && len(tx.Removes) == 0 && tx.Metadata == nil && tx.Protocol == nil
}
