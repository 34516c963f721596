package deltalog

import (
	"context"
	"errors"
	"log/slog"
	"time"
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
	// ErrRecreated: the log was deleted and made anew in the same place, or put back to an earlier version, by somebody else: what an open Table
	// knows is of the old one. Open it again. It is no ErrConflict, since trying again with this Table does not help.
	ErrRecreated = errors.New("the table was created anew")
	// ErrTxnAlreadyCommitted: the table's txn for this application is already at or past the version.
	ErrTxnAlreadyCommitted = errors.New("transaction already committed")
	// ErrOutcomeUnknown: a commit may or may not have happened, as the store neither answered nor could be read. Trying again may do it twice;
	// a transaction with a Txn may be tried again safely.
	ErrOutcomeUnknown = errors.New("outcome of the commit unknown")
	// ErrCorrupt: the log or a file contradicts the protocol (a gap, a missing file, broken content).
	ErrCorrupt = errors.New("corrupt table")
)

// DefaultEngineInfo is how commits of this package tell their writer, unless told otherwise.
const DefaultEngineInfo = "deltabus-local"

// Options of a table. The zero value is right for most.
type Options struct {
	// Clock gives the time of commits; default time.Now.
	Clock func() time.Time
	// EngineInfo is written to commitInfo; default DefaultEngineInfo.
	EngineInfo string
	// Logger gets what happens in the background (checkpoints that fail); default: nothing.
	Logger *slog.Logger
	// CheckpointInterval is the number of commits between checkpoints; 0: scaled with the table, from 100 to 1,000
	// (design.md, decision 8); negative: never (tests).
	CheckpointInterval int64
	// KeepFrom, if set, gives the lowest version that somebody still needs, of the table whose newest snapshot it is given (math.MaxInt64:
	// nobody does). What that version and the later ones need, in the log and of data files, log cleanup and Vacuum leave there however old
	// it is, up to KeepAtMost; after an error they remove nothing. It is only asked when something is about to be removed, in the
	// background; ctx ends when the table is closed.
	KeepFrom func(ctx context.Context, s *Snapshot) (int64, error)
	// KeepAtMost is how long beyond its retention something is kept for KeepFrom; 0: without a limit.
	KeepAtMost time.Duration
}

// TableSpec is what Create makes.
type TableSpec struct {
	Name, Description string
	Schema            Struct
	PartitionColumns  []string
	// Configuration holds table properties, such as delta.enableChangeDataFeed.
	Configuration map[string]string
}
