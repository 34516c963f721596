// Package deltalog reads and writes Delta tables: the transaction log (actions, snapshots, transactions,
// checkpoints) and the Parquet data files it names, with Arrow record batches at the edges. It knows no SQL, no
// gRPC and no bus.
package deltalog
