package deltalog

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Sentinels; test with errors.Is. Errors about a table or a version wrap one of them.
var (
	// ErrNotTable: there is no Delta log here.
	ErrNotTable = errors.New("not a delta table")
	// ErrTableExists: Create found a log.
	ErrTableExists = errors.New("table already exists")
	// ErrVersionNotFound: the version is not in the log (not yet, or no longer).
	ErrVersionNotFound = errors.New("version not found")
	// ErrUnsupported: the table needs a feature that this package does not have; the text names it.
	ErrUnsupported = errors.New("unsupported table feature")
	// ErrConflict: another writer committed something that this transaction depended on.
	ErrConflict = errors.New("concurrent modification")
	// ErrTxnAlreadyCommitted: the table's txn for this application is already at or past the version.
	ErrTxnAlreadyCommitted = errors.New("transaction already committed")
	// ErrCorrupt: the log or a file contradicts the protocol (a gap, a missing file, broken content).
	ErrCorrupt = errors.New("corrupt table")
)

// Options of a table. The zero value is right for most.
type Options struct {
	// Clock gives the time of commits; default time.Now.
	Clock func() time.Time
	// EngineInfo is written to commitInfo; default "deltabus-local".
	EngineInfo string
	// Logger gets what happens in the background (checkpoints that fail); default: nothing.
	Logger *slog.Logger
	// CheckpointInterval is the number of commits between checkpoints; 0: scaled with the table, from 100 to 1,000
	// (design.md, decision 8); negative: never (tests).
	CheckpointInterval int64
}

// TableSpec is what Create makes.
type TableSpec struct {
	Name, Description string
	Schema            Struct
	PartitionColumns  []string
	// Configuration holds table properties, such as delta.enableChangeDataFeed.
	Configuration map[string]string
}

// Table is one Delta table. It keeps the newest snapshot it has seen in memory, and refreshes it by trying the
// next version, never by listing. Safe for concurrent use; other processes may commit too.
type Table struct{ _ int }

// Create makes a table in st (rooted at the table's directory): protocol (1,7) with appendOnly, invariants and, when the
// configuration asks for it, changeDataFeed; (3,7) with timestampNtz when the schema needs it (design.md, decision 6).
func Create(ctx context.Context, st store.Store, spec TableSpec, opts Options) (*Table, error) {
	panic("pending")
}

// Open opens the table in st and loads its newest snapshot.
func Open(ctx context.Context, st store.Store, opts Options) (*Table, error) { panic("pending") }

// Store is where the table lives.
func (t *Table) Store() store.Store { panic("pending") }

// Snapshot refreshes and returns the newest snapshot. With nothing new it costs one Stat.
func (t *Table) Snapshot(ctx context.Context) (*Snapshot, error) { panic("pending") }

// Cached returns the newest snapshot in memory, without I/O.
func (t *Table) Cached() *Snapshot { panic("pending") }

// SnapshotAt returns the table as of version: ErrVersionNotFound if it cannot be rebuilt.
func (t *Table) SnapshotAt(ctx context.Context, version int64) (*Snapshot, error) { panic("pending") }

// VersionAt returns the last version committed at or before at.
func (t *Table) VersionAt(ctx context.Context, at time.Time) (int64, error) { panic("pending") }

// EarliestVersion returns the first version whose commit file is still there and contiguous up to the newest.
func (t *Table) EarliestVersion(ctx context.Context) (int64, error) { panic("pending") }

// Exists reports whether version is committed; one Stat, or none if it is known.
func (t *Table) Exists(ctx context.Context, version int64) (bool, error) { panic("pending") }

// Commit is one version of the log.
type Commit struct {
	Version int64
	// Timestamp is the commit's time by delta.md 3.5 (in-commit timestamp, else file time, never going back).
	Timestamp time.Time
	Actions   []Action
	// Size is the commit file's size in bytes.
	Size int64
}

// ReadCommit reads version's actions. Recent commits come from a ring in memory. ErrVersionNotFound if absent.
func (t *Table) ReadCommit(ctx context.Context, version int64) (*Commit, error) { panic("pending") }

// History yields commits from the newest backwards.
func (t *Table) History(ctx context.Context) iter.Seq2[*Commit, error] { panic("pending") }

// Snapshot is the table at one version. It is immutable and safe for concurrent use.
type Snapshot struct{ _ int }

// Version is the snapshot's version.
func (s *Snapshot) Version() int64 { panic("pending") }

// Timestamp is the commit time of the snapshot's version.
func (s *Snapshot) Timestamp() time.Time { panic("pending") }

// Metadata is the table's metadata. Not to be modified.
func (s *Snapshot) Metadata() *Metadata { panic("pending") }

// Protocol is the table's protocol. Not to be modified.
func (s *Snapshot) Protocol() *Protocol { panic("pending") }

// Schema is the table's schema. Not to be modified.
func (s *Snapshot) Schema() Struct { panic("pending") }

// Property is a table property, or "".
func (s *Snapshot) Property(key string) string { panic("pending") }

// ChangeDataFeed reports whether the change data feed is enabled (property and feature).
func (s *Snapshot) ChangeDataFeed() bool { panic("pending") }

// Txn returns the txn of an application.
func (s *Snapshot) Txn(appID string) (Txn, bool) { panic("pending") }

// NumFiles is the number of live files.
func (s *Snapshot) NumFiles() int { panic("pending") }

// Files yields the live files, oldest first. Not to be modified.
func (s *Snapshot) Files() iter.Seq[*Add] { panic("pending") }

// FilesIn yields the live files whose partition values equal those given (columns left out match anything).
func (s *Snapshot) FilesIn(partition map[string]string) iter.Seq[*Add] { panic("pending") }

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

// Commit commits tx: at the next version, rebased over other writers' commits as long as they do not conflict
// (delta.md 2.10). An error that wraps ErrConflict or ErrTxnAlreadyCommitted left nothing behind; after any other error the outcome is
// settled by reading back the commit's own txnId wherever possible. The table's snapshot is updated when it returns.
func (t *Table) Commit(ctx context.Context, tx Transaction) (*Commit, error) { panic("pending") }

// WriteFiles writes rows as data files (one per partition value combination), with statistics, durable when it returns. The batches have the
// columns of snap's schema in order (ArrowSchema); NOT NULL is enforced. The files are not part of the table before a Commit names them.
func (t *Table) WriteFiles(ctx context.Context, snap *Snapshot, batches []arrow.RecordBatch) ([]Add, error) {
	panic("pending")
}

// ReadFile yields the rows of one data file of the table, by the schema of snap, columns in the order asked for (nil: all). The consumer owns
// nothing: a batch is valid until the next iteration unless retained.
func (t *Table) ReadFile(ctx context.Context, snap *Snapshot, path string, partitionValues map[string]*string, columns []string) iter.Seq2[arrow.RecordBatch, error] {
	panic("pending")
}

// Scan yields the rows of snap's live files; partition as for FilesIn (nil: all).
func (t *Table) Scan(ctx context.Context, snap *Snapshot, columns []string, partition map[string]string) iter.Seq2[arrow.RecordBatch, error] {
	panic("pending")
}

// Append is WriteFiles and a blind-append Commit in one.
func (t *Table) Append(ctx context.Context, batches []arrow.RecordBatch, operation string) (*Commit, error) {
	panic("pending")
}

// Checkpoint writes a classic checkpoint of s and _last_checkpoint.
func (t *Table) Checkpoint(ctx context.Context, s *Snapshot) error { panic("pending") }

// Close waits for background work (checkpoints) to end.
func (t *Table) Close() error { panic("pending") }
