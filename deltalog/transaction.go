package deltalog

import (
	"errors"
	"fmt"
	"slices"
)

// Transaction is what one commit will contain.
type Transaction struct {
	// Base is the snapshot that the transaction was made against. Required.
	Base *Snapshot
	// Operation is commitInfo's operation ("WRITE", "STREAMING UPDATE", "MERGE", "OPTIMIZE", …). Required.
	Operation string
	// Parameters is commitInfo's operationParameters.
	Parameters map[string]any
	// Metrics is commitInfo's operationMetrics.
	Metrics map[string]string
	// Adds are files written by WriteFiles. Removes are live files of Base that this commit ends; each becomes a
	// remove action with DataChange unless NoDataChange.
	Adds    []Add
	Removes []*Add
	// Changes are change files written by WriteChangeFiles: either every change of this commit, or none, since readers of the feed look at nothing
	// else where there are any. Only with the change data feed on.
	Changes []CDC
	// NoDataChange marks a pure rearrangement (dataChange=false everywhere).
	NoDataChange bool
	// Txns are idempotence marks; if the table is already at or past one, Commit answers ErrTxnAlreadyCommitted.
	Txns []Txn
	// Metadata and Protocol, if set, replace the table's.
	Metadata *Metadata
	Protocol *Protocol
	// ReadPartitions are partitions whose files were read (each as for FilesIn): a winner that added or removed a
	// file there is a conflict. ReadTable says that everything was read. With neither, and no Removes, the
	// transaction is a blind append and never conflicts with data changes.
	ReadPartitions []map[string]string
	ReadTable      bool
}

// validate finds what no commit may hold (delta.md 2.1), and metadata that the table could not be read with.
func (tx *Transaction) validate() error {
	if tx.Base == nil || tx.Operation == "" {
		return errors.New("a transaction needs a base snapshot and an operation")
	}
	if n := len(tx.Adds) + len(tx.Removes); n > 1 {
		paths := make(map[string]bool, n)
		for i := range tx.Adds {
			if err := once(paths, fileKey(tx.Adds[i].Path, tx.Adds[i].DeletionVector)); err != nil {
				return err
			}
		}
		for _, a := range tx.Removes {
			if err := once(paths, fileKey(a.Path, a.DeletionVector)); err != nil {
				return err
			}
		}
	}
	for i, own := range tx.Txns {
		if slices.ContainsFunc(tx.Txns[:i], func(other Txn) bool { return other.AppID == own.AppID }) {
			return fmt.Errorf("application %s has two txns", own.AppID)
		}
	}
	m, p := tx.Metadata, tx.Protocol
	if m == nil {
		m = tx.Base.metadata
	}
	if p == nil {
		p = tx.Base.protocol
	}
	if len(tx.Changes) > 0 && (tx.NoDataChange || !feedEnabled(p, m)) {
		return errors.New("change files want a commit that changes rows, and the change data feed on")
	}
	if tx.Metadata == nil && tx.Protocol == nil {
		return nil
	}
	schema, err := ParseSchema([]byte(m.SchemaString))
	if err != nil {
		return err
	}
	if m.ID != tx.Base.metadata.ID {
		return errors.New("a table keeps its id")
	}
	if m.flag(propChangeDataFeed, false) && !feedEnabled(p, m) {
		return fmt.Errorf("property %s needs a protocol with changeDataFeed", propChangeDataFeed)
	}
	return errors.Join(validateProperties(m.Configuration), checkReadable(p, m), checkWritable(p, m, schema))
}

func once(seen map[string]bool, key string) error {
	if seen[key] {
		return fmt.Errorf("file %s is named twice", key)
	}
	seen[key] = true
	return nil
}

// check decides whether tx may follow cur, as far as the table's state tells.
func (tx *Transaction) check(cur *Snapshot) error {
	if cur.writable != nil {
		return cur.writable
	}
	if len(tx.Removes) > 0 && !tx.NoDataChange && cur.metadata.flag(propAppendOnly, false) {
		return errAppendOnly
	}
	for _, txn := range tx.Txns {
		if last, ok := cur.Txn(txn.AppID); ok && last.Version >= txn.Version {
			return fmt.Errorf("%w: application %s is at version %d", ErrTxnAlreadyCommitted, txn.AppID, last.Version)
		}
	}
	for _, a := range tx.Removes {
		if !cur.set.isLive(fileKey(a.Path, a.DeletionVector)) {
			return fmt.Errorf("%w: file %s, which this transaction removes, is not in the table", ErrConflict, a.Path)
		}
	}
	return nil
}
