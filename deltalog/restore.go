package deltalog

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// RestoreOptions of Restore.
type RestoreOptions struct {
	// DryRun only counts what would be done.
	DryRun bool
}

// Restore makes the table what it was at version, with one commit that brings back the files of then and removes those of now: schema and
// properties too, not the protocol. The feed shows what that changes. A file of then that was vacuumed is an error that matches
// store.ErrNotExist, and nothing is done. A commit of somebody else meanwhile is ErrConflict.
func (t *Table) Restore(ctx context.Context, version int64, o RestoreOptions) (*Rewrite, error) {
	r, err := t.restore(ctx, version, o)
	if err != nil {
		return nil, fmt.Errorf("restore %s to version %d: %w", t.st.URL(""), version, err)
	}
	return r, nil
}

func (t *Table) restore(ctx context.Context, version int64, o RestoreOptions) (*Rewrite, error) {
	now, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if now.writable != nil {
		return nil, now.writable
	}
	then, err := t.SnapshotAt(ctx, version)
	if err != nil {
		return nil, err
	}
	tx := Transaction{Base: now, Operation: "RESTORE", Parameters: map[string]any{"version": version, "timestamp": nil}, ReadTable: true}
	live := map[string]bool{}
	for a := range now.Files() {
		live[fileKey(a.Path, a.DeletionVector)] = true
	}
	wanted := map[string]bool{}
	r := &Rewrite{Version: -1}
	for a := range then.Files() {
		key := fileKey(a.Path, a.DeletionVector)
		if wanted[key] = true; live[key] {
			continue
		}
		if err := t.stillStored(ctx, a); err != nil {
			return nil, err
		}
		tx.Adds = append(tx.Adds, *a)
		r.FilesAdded++
		r.BytesAdded += a.Size
	}
	for a := range now.Files() {
		if !wanted[fileKey(a.Path, a.DeletionVector)] {
			tx.Removes = append(tx.Removes, a)
			r.FilesRemoved++
			r.BytesRemoved += a.Size
		}
	}
	if !sameMetadata(now.metadata, then.metadata) {
		tx.Metadata = then.metadata
	}
	if o.DryRun || tx.Metadata == nil && len(tx.Adds)+len(tx.Removes) == 0 {
		return r, nil
	}
	tx.Metrics = map[string]string{
		"numRestoredFiles": strconv.Itoa(r.FilesAdded), "numRemovedFiles": strconv.Itoa(r.FilesRemoved),
		"restoredFilesSize": strconv.FormatInt(r.BytesAdded, 10), "removedFilesSize": strconv.FormatInt(r.BytesRemoved, 10),
		"numOfFilesAfterRestore": strconv.Itoa(then.NumFiles()), "tableSizeAfterRestore": strconv.FormatInt(then.Size(), 10),
	}
	c, err := t.Commit(ctx, tx)
	if err != nil {
		return nil, err
	}
	r.Version = c.Version
	return r, nil
}

// stillStored makes sure that a file of the past was not vacuumed.
func (t *Table) stillStored(ctx context.Context, a *Add) error {
	name, err := DataName(t.st, a.Path)
	if err != nil {
		return err
	}
	_, err = t.st.Stat(ctx, name)
	if errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("a file of that version was vacuumed, choose a later one: %w", err)
	}
	return err
}

// sameMetadata reports whether two states of a table's metadata mean the same.
func sameMetadata(a, b *Metadata) bool { return string(mustJSON(a)) == string(mustJSON(b)) }
