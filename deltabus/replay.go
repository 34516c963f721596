package deltabus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"

	"github.com/deltabus/deltabus-local/deltalog"
)

// DeadLetters looks at dead letters, replays and discards them. Safe for concurrent use.
type DeadLetters struct{ bus *Bus }

// DeadLetters of the bus.
func (b *Bus) DeadLetters() *DeadLetters { return &DeadLetters{b} }

// DeadLetterFilter says which dead letters are meant; empty fields match anything.
type DeadLetterFilter struct {
	Consumer string
	Status   string
	IDs      []string
}

func (f DeadLetterFilter) match(d *DeadLetter) bool {
	return (f.Consumer == "" || d.Consumer == f.Consumer) && (f.Status == "" || d.Status == f.Status) &&
		(f.IDs == nil || slices.Contains(f.IDs, d.ID))
}

// List returns the dead letters that match, oldest first.
func (dl *DeadLetters) List(ctx context.Context, f DeadLetterFilter) ([]DeadLetter, error) {
	return dl.bus.readDeadLetters(ctx, f.match, f.Consumer)
}

// Get returns one dead letter, or ErrNoSuchDeadLetter.
func (dl *DeadLetters) Get(ctx context.Context, id string) (DeadLetter, error) {
	found, err := dl.List(ctx, DeadLetterFilter{IDs: []string{id}})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("dead letter %s: %w", id, ErrNoSuchDeadLetter)
	}
	if err != nil {
		return DeadLetter{}, err
	}
	return found[0], nil
}

// ReplayTarget is whom a replay is for.
type ReplayTarget string

// The targets of a replay.
const (
	// ToConsumer replays to the consumer that failed, alone: others pass over it.
	ToConsumer ReplayTarget = "consumer"
	// ToTopic publishes the event again for everybody.
	ToTopic ReplayTarget = "topic"
)

// Replay publishes the open dead letters that match again, and marks them as replayed. A replayed event has a new message id, derived
// from the dead letter, so that a repetition after a crash is one event; it names the dead letter it came from, and gives up its place
// in the order. Named ids that are not there are ErrNoSuchDeadLetter; ones that are not open any more are left alone.
func (dl *DeadLetters) Replay(ctx context.Context, f DeadLetterFilter, to ReplayTarget) ([]DeadLetter, error) {
	if to != ToConsumer && to != ToTopic {
		return nil, fmt.Errorf("replay to %q: use consumer or topic", to)
	}
	return dl.change(ctx, f, func(open []DeadLetter) error {
		if err := dl.bus.publishReplays(ctx, open, to); err != nil {
			return err
		}
		for i := range open {
			open[i].Status, open[i].ReplayMessageID = StatusReplayed, replayID(&open[i])
		}
		return nil
	})
}

// Discard marks the open dead letters that match as not to be replayed.
func (dl *DeadLetters) Discard(ctx context.Context, f DeadLetterFilter) ([]DeadLetter, error) {
	return dl.change(ctx, f, func(open []DeadLetter) error {
		for i := range open {
			open[i].Status = StatusDiscarded
		}
		return nil
	})
}

// change lets f change the open dead letters that match, and returns them as they are then.
func (dl *DeadLetters) change(ctx context.Context, filter DeadLetterFilter, f func([]DeadLetter) error) ([]DeadLetter, error) {
	filter.Status = ""
	all, err := dl.List(ctx, filter)
	if err != nil {
		return nil, err
	}
	for _, id := range filter.IDs {
		if !slices.ContainsFunc(all, func(d DeadLetter) bool { return d.ID == id }) {
			return nil, fmt.Errorf("dead letter %s: %w", id, ErrNoSuchDeadLetter)
		}
	}
	byConsumer := map[string][]DeadLetter{}
	for _, d := range all {
		if d.Status == StatusOpen {
			byConsumer[d.Consumer] = append(byConsumer[d.Consumer], d)
		}
	}
	var out []DeadLetter
	for _, consumer := range slices.Sorted(maps.Keys(byConsumer)) {
		open := byConsumer[consumer]
		if err := f(open); err != nil {
			return out, err
		}
		if err := dl.bus.replaceDeadLetters(ctx, consumer, open); err != nil {
			return out, err
		}
		out = append(out, open...)
	}
	return out, nil
}

// replaceDeadLetters writes the changed dead letters of a consumer over the stored ones: that partition's files are replaced in one commit,
// and tried again if a new dead letter came in between.
func (b *Bus) replaceDeadLetters(ctx context.Context, consumer string, changed []DeadLetter) error {
	at := b.cfg.Clock().UTC().Truncate(time.Microsecond)
	byID := map[string]*DeadLetter{}
	for i := range changed {
		changed[i].StatusAt = at
		byID[changed[i].ID] = &changed[i]
	}
	for attempt := 0; ; attempt++ {
		snap, err := b.deadLetters.Snapshot(ctx)
		if err != nil {
			return err
		}
		all, err := b.readDeadLettersOf(ctx, snap, func(*DeadLetter) bool { return true }, consumer)
		if err != nil {
			return err
		}
		for i := range all {
			if d := byID[all[i].ID]; d != nil {
				all[i] = *d
			}
		}
		adds, err := b.deadLetters.WriteFiles(ctx, snap, []arrow.RecordBatch{deadLetterBatch(snap.Schema(), all)})
		if err != nil {
			return err
		}
		_, err = b.deadLetters.Commit(ctx, deltalog.Transaction{
			Base: snap, Operation: "UPDATE", Adds: adds, Removes: slices.Collect(snap.FilesIn(consumerPartition(consumer))),
			ReadPartitions: []map[string]string{consumerPartition(consumer)}, Parameters: map[string]any{"consumer": consumer},
		})
		if !errors.Is(err, deltalog.ErrConflict) || attempt == 20 {
			return err
		}
	}
}

// replayID is the message id of the next replay of d.
func replayID(d *DeadLetter) string {
	return uuid.NewSHA1(namespace, fmt.Appendf(nil, "replay\x00%s\x00%d", d.ID, d.Replay+1)).String()
}

// publishReplays appends one message for each dead letter, unless it is there already.
func (b *Bus) publishReplays(ctx context.Context, letters []DeadLetter, to ReplayTarget) error {
	for i := range letters {
		d := &letters[i]
		m := d.Event.Message
		m.ID = replayID(d)
		m.Headers = maps.Clone(m.Headers)
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		delete(m.Headers, HeaderReplayTo)
		if to == ToConsumer {
			m.Headers[HeaderReplayTo] = d.Consumer
		}
		m.Headers[HeaderDeadLetterID] = d.ID
		m.Headers[HeaderReplayNumber] = strconv.Itoa(d.Replay + 1)
		if err := b.appendOnce(ctx, &m); err != nil {
			return fmt.Errorf("replay dead letter %s: %w", d.ID, err)
		}
	}
	return nil
}

// appendOnce appends one message in a commit of its own whose txn is the message's id: a second time adds nothing.
func (b *Bus) appendOnce(ctx context.Context, m *Message) error {
	snap, err := b.messages.Snapshot(ctx)
	if err != nil {
		return err
	}
	if _, done := snap.Txn(m.ID); done {
		return nil
	}
	schema, err := deltalog.ArrowSchema(snap.Schema())
	if err != nil {
		return err
	}
	rows := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer rows.Release()
	now := b.cfg.Clock()
	appendMessage(rows, 0, m, m.ID, 0, now) // a producer of its own: its one message has sequence 0
	adds, err := b.messages.WriteFiles(ctx, snap, []arrow.RecordBatch{rows.NewRecordBatch()})
	if err != nil {
		return err
	}
	updated := now.UnixMilli()
	_, err = b.messages.Commit(ctx, deltalog.Transaction{
		Base: snap, Operation: "WRITE", Adds: adds, Txns: []deltalog.Txn{{AppID: m.ID, Version: 0, LastUpdated: &updated}},
		Parameters: map[string]any{"mode": "Append"},
	})
	if errors.Is(err, deltalog.ErrTxnAlreadyCommitted) {
		return nil
	}
	return err
}
