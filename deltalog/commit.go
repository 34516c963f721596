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

// Commit commits tx: at the next version, rebased over other writers' commits as long as they do not conflict
// (delta.md 2.10). An error that wraps ErrConflict or ErrTxnAlreadyCommitted left nothing behind; after an unclear error of the store the
// outcome is settled by reading back the commit's own txnId. The table's snapshot is updated when it returns.
func (t *Table) Commit(ctx context.Context, tx Transaction) (*Commit, error) {
	t.commitMu.Lock()
	defer t.commitMu.Unlock()
	c, err := t.commit(ctx, tx)
	if err != nil {
		return nil, fmt.Errorf("commit to %s: %w", t.st.URL(""), err)
	}
	t.maybeCheckpoint()
	return c, nil
}

func (t *Table) commit(ctx context.Context, tx Transaction) (*Commit, error) {
	if t.poison != nil {
		return nil, fmt.Errorf("this table stopped writing after a failed sync, open it again: %w", t.poison)
	}
	if tx.Base == nil || tx.Operation == "" {
		return nil, errors.New("a transaction needs a base snapshot and an operation")
	}
	if err := checkWritable(tx.Base.protocol, tx.Base.metadata, tx.Base.schema); err != nil {
		return nil, err
	}
	if len(tx.Removes) > 0 && !tx.NoDataChange && tx.Base.metadata.flag(propAppendOnly, false) {
		return nil, errors.New("DELTA_CANNOT_MODIFY_APPEND_ONLY: this table is only to be appended to (delta.appendOnly)")
	}
	txnID := uuid.NewString()
	checked := tx.Base.version
	for attempt := 0; ; attempt++ {
		cur := t.Cached()
		if cur.metadata.ID != tx.Base.metadata.ID {
			return nil, fmt.Errorf("%w: the table was created anew", ErrConflict)
		}
		for ; checked < cur.version; checked++ {
			if err := t.checkWinner(ctx, &tx, checked+1); err != nil {
				return nil, err
			}
		}
		for _, txn := range tx.Txns {
			if last, ok := cur.Txn(txn.AppID); ok && last.Version >= txn.Version {
				return nil, fmt.Errorf("%w: application %s is at version %d", ErrTxnAlreadyCommitted, txn.AppID, last.Version)
			}
		}
		c, err := t.tryVersion(ctx, &tx, cur, txnID)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, store.ErrExist) {
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

// tryVersion puts tx at the version after cur. An error that matches store.ErrExist means that somebody else has it.
func (t *Table) tryVersion(ctx context.Context, tx *Transaction, cur *Snapshot, txnID string) (*Commit, error) {
	ts := t.opts.Clock().Truncate(time.Millisecond)
	if !ts.After(cur.timestamp) {
		ts = cur.timestamp.Add(time.Millisecond)
	}
	c := &Commit{Version: cur.version + 1, Timestamp: ts, Actions: t.actions(tx, ts, txnID), modified: ts}
	data, err := encodeCommit(c.Actions)
	if err != nil {
		return nil, err
	}
	c.Size = int64(len(data))
	err = t.st.Put(ctx, logName(c.Version), data, store.PutOptions{IfAbsent: true, ModTime: ts})
	switch {
	case err == nil:
	case errors.Is(err, store.ErrSyncFailed):
		t.poison = err
		return nil, err
	default:
		// Taken by somebody else, or by us although the store says otherwise, or not at all: what is there tells.
		switch own, there, readErr := t.isOwn(ctx, c.Version, txnID); {
		case readErr != nil:
			return nil, fmt.Errorf("outcome of version %d unknown: %w", c.Version, errors.Join(err, readErr))
		case own:
		case there:
			return nil, fmt.Errorf("version %d: %w", c.Version, store.ErrExist)
		default:
			return nil, err
		}
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
	out := make([]Action, 0, 3+len(tx.Txns)+len(tx.Removes)+len(tx.Adds))
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
