package deltabus

import (
	"context"
	"iter"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/deltabus/deltabus-local/cdf"
)

// backend is what consumers, their lag and the dead letters need of the three tables. onTables works straight on their logs; where only
// a warehouse can be reached, SQL statements can do the same (docs/design.md, decision 10). The errors of the feed are those of package
// cdf (ErrExpired, ErrRewritten, ErrNotEnabled) in any backend; ErrTableDropped is the error where a table is gone. Safe for concurrent use.
type backend interface {
	// head is the messages table as it is now.
	head(ctx context.Context) (head, error)
	// recreated reports whether a version of messages that was read is no longer the one that is there.
	recreated(ctx context.Context, version int64) (bool, error)
	// earliest is the first version of messages that is still recorded, and whether the feed was on then.
	earliest(ctx context.Context) (version int64, feed bool, err error)
	// follow reads the feed of messages behind a version.
	follow(after int64, columns []string) feed
	// rows yields the rows of messages as of a version; ErrExpired if they cannot be had any more.
	rows(ctx context.Context, version int64, columns []string) iter.Seq2[arrow.RecordBatch, error]
	// publish appends messages, in one version if they are not many. A message id that was published by it before adds nothing.
	publish(ctx context.Context, messages []Message) error

	// checkpoint is the stored checkpoint of a consumer; its Epoch is 0 if there is none.
	checkpoint(ctx context.Context, consumer string) (Checkpoint, error)
	// checkpoints are those of all consumers.
	checkpoints(ctx context.Context) ([]Checkpoint, error)
	// saveCheckpoint replaces the checkpoint of next.Consumer, provided that the stored one has the epoch and the owner of held, or else
	// those of next (a write of ours whose outcome we did not learn), and, where next takes another epoch, the place of held; otherwise
	// ErrFenced.
	saveCheckpoint(ctx context.Context, held, next Checkpoint) error
	// tidy removes what replaced checkpoints and dead letters left behind. It is called now and then, by whoever replaces some.
	tidy(ctx context.Context) error

	// deadLetters are those that match, of one consumer or ("") of all, oldest first.
	deadLetters(ctx context.Context, consumer string, match func(*DeadLetter) bool) ([]DeadLetter, error)
	// addDeadLetter adds d; with look, only if its id is not there.
	addDeadLetter(ctx context.Context, d DeadLetter, look bool) error
	// changeDeadLetters lets change look at every dead letter of a consumer, and stores those that it changed (true) at once. It may be
	// called again from the start, with what is stored then.
	changeDeadLetters(ctx context.Context, consumer string, change func(*DeadLetter) bool) ([]DeadLetter, error)
}

// head is a state of the messages table.
type head struct {
	tableID string // metaData.id, over SQL DESCRIBE DETAIL's id
	version int64
	// held is how old a commit becomes at least, while a consumer needs it, before our own maintenance removes it.
	held time.Duration
	// recreated: what was read of the table before is of another one.
	recreated bool
}

// feed is *cdf.Follower, or what does the same.
type feed interface {
	// Next is the next version, or nil when it is not committed yet.
	Next(ctx context.Context) (*cdf.Version, error)
}
