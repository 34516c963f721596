package deltalog

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
	// remove action with DataChange as in DataChange.
	Adds    []Add
	Removes []*Add
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
