package deltalog

import "slices"

// checkWinner decides whether tx may still commit after the winner c, by the table of delta.md 2.10. Everything this
// package writes is Serializable; a blind append reads nothing, so it only conflicts with changes of what it was written for.
func (tx *Transaction) checkWinner(c *Commit) error {
	conflict := func(class, what string) error {
		return NewClassError(class, ErrConflict, "version %d %s", c.Version, what)
	}
	for i := range c.Actions {
		switch a := &c.Actions[i]; {
		case a.Protocol != nil:
			if tx.Protocol != nil || checkWritable(a.Protocol, tx.Base.metadata, tx.Base.schema) != nil {
				return conflict("DELTA_PROTOCOL_CHANGED", "changed the protocol")
			}
		case a.Metadata != nil:
			// Properties alone do not change what rows mean.
			if tx.Metadata != nil || a.Metadata.ID != tx.Base.metadata.ID || a.Metadata.SchemaString != tx.Base.metadata.SchemaString ||
				!slices.Equal(a.Metadata.PartitionColumns, tx.Base.metadata.PartitionColumns) {
				return conflict("DELTA_METADATA_CHANGED", "changed the metadata")
			}
			// Whether rewritten files need change files beside them is decided when they are written.
			if len(tx.Removes) > 0 && !tx.NoDataChange && a.Metadata.flag(propChangeDataFeed, false) != tx.Base.metadata.flag(propChangeDataFeed, false) {
				return conflict("DELTA_METADATA_CHANGED", "switched the change data feed")
			}
		case a.Txn != nil:
			if slices.ContainsFunc(tx.Txns, func(own Txn) bool { return own.AppID == a.Txn.AppID && own.Version > a.Txn.Version }) {
				return conflict("DELTA_CONCURRENT_TRANSACTION", "committed a txn of the same application "+a.Txn.AppID)
			}
		case a.Add != nil:
			if a.Add.DataChange && tx.reads(a.Add.PartitionValues) {
				return conflict("DELTA_CONCURRENT_APPEND", "added a file to what was read")
			}
		case a.Remove != nil:
			key := fileKey(a.Remove.Path, a.Remove.DeletionVector)
			if slices.ContainsFunc(tx.Removes, func(own *Add) bool { return fileKey(own.Path, own.DeletionVector) == key }) {
				return conflict("DELTA_CONCURRENT_DELETE_DELETE", "removed a file that this transaction removes")
			}
			// A remove of an old writer may not say which partition it was in.
			unknown := a.Remove.PartitionValues == nil && len(tx.ReadPartitions) > 0
			if unknown || tx.reads(a.Remove.PartitionValues) {
				return conflict("DELTA_CONCURRENT_DELETE_READ", "removed a file of what was read")
			}
		}
	}
	return nil
}

// reads reports whether tx read the partition with these values.
func (tx *Transaction) reads(values map[string]*string) bool {
	if tx.ReadTable {
		return true
	}
	return slices.ContainsFunc(tx.ReadPartitions, func(p map[string]string) bool { return inPartition(values, p) })
}
