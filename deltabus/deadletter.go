package deltabus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/uuid"

	"github.com/deltabus/deltabus-local/deltalog"
)

// The states of a dead letter.
const (
	StatusOpen      = "open"
	StatusReplayed  = "replayed"
	StatusDiscarded = "discarded"
)

// DeadLetter is an event that a consumer failed at, with why.
type DeadLetter struct {
	// ID is derived from the consumer, the message id and the replay number.
	ID       string
	Consumer string
	// Event is the whole event; its Version is the Delta version that committed it.
	Event Event
	// Attempts is how often it was tried; Log has each time, as far as it was recorded.
	Attempts         int
	Log              []Attempt
	Error, ErrorType string
	// Stack is the stack of a panic, or "".
	Stack          string
	FirstFailedAt  time.Time
	DeadLetteredAt time.Time
	Status         string
	// StatusAt and ReplayMessageID are set once it was replayed or discarded.
	StatusAt        time.Time
	ReplayMessageID string
	// Origin is the dead letter that the event was replayed from, or ""; Replay counts the replays so far.
	Origin string
	Replay int
}

// namespace is that of ids derived by this package.
var namespace = uuid.MustParse("b6a1b5d0-2a5f-4c39-9a54-6d2c0e3b7f10")

func deadLetterID(consumer, message string, replay int) string {
	return uuid.NewSHA1(namespace, fmt.Appendf(nil, "dead-letter\x00%s\x00%s\x00%d", consumer, message, replay)).String()
}

// deadLetter writes e as a dead letter. The checkpoint is written before, so that after a crash only the first event of a start can be in
// doubt; the caller writes it again after.
func (c *Consumer) deadLetter(ctx context.Context, e *Event, log []Attempt, cause error) error {
	if !samePlace(&c.at, &c.stored) || c.pending > 0 {
		if err := c.save(ctx); err != nil {
			return err
		}
	}
	now := c.bus.cfg.Clock().UTC().Truncate(time.Microsecond)
	d := DeadLetter{
		ID: deadLetterID(c.id, e.ID, e.Replay), Consumer: c.id, Event: *e, Attempts: e.Attempt, Log: log, Error: cause.Error(),
		ErrorType: errorType(cause), Stack: errorStack(cause), FirstFailedAt: log[0].At, DeadLetteredAt: now, Status: StatusOpen,
		Origin: e.DeadLetterID, Replay: e.Replay,
	}
	err := c.insist(ctx, "write dead letter", func(attempt int) error {
		return c.bus.backend.addDeadLetter(ctx, d, c.first || attempt > 0)
	})
	if err != nil {
		return err
	}
	if c.o.observer.DeadLetter != nil {
		c.o.observer.DeadLetter(d)
	}
	return nil
}

// deadLetterColumns are those of dead_letters (docs/design.md, The three tables).
var deadLetterColumns = slices.Concat(deadLetterHead, messageColumns, deadLetterTail)

// addDeadLetter appends d. Where a crash may have left it behind already (the first event of a start), it is looked for before.
func (t *onTables) addDeadLetter(ctx context.Context, d DeadLetter, look bool) (err error) {
	defer t.told(ctx, t.deadLetterTable, DeadLettersTable, &err)
	if look {
		known, err := t.deadLetters(ctx, d.Consumer, func(x *DeadLetter) bool { return x.ID == d.ID })
		if err != nil || len(known) > 0 {
			return err
		}
	}
	snap, err := t.deadLetterTable.Snapshot(ctx)
	if err != nil {
		return err
	}
	adds, err := t.writeDeadLetters(ctx, snap, []DeadLetter{d})
	if err != nil {
		return err
	}
	_, err = t.deadLetterTable.Commit(ctx, deltalog.Transaction{
		Base: snap, Operation: "WRITE", Adds: adds, Parameters: map[string]any{"mode": "Append", "consumer": d.Consumer},
	})
	return err
}

func (t *onTables) writeDeadLetters(ctx context.Context, snap *deltalog.Snapshot, letters []DeadLetter) ([]deltalog.Add, error) {
	rec, err := buildRows(snap.Schema(), deadLetterColumns, func(b *array.RecordBuilder) {
		for i := range letters {
			appendDeadLetter(b, &letters[i])
		}
	})
	if err != nil {
		return nil, err
	}
	return t.deadLetterTable.WriteFiles(ctx, snap, []arrow.RecordBatch{rec})
}

func (t *onTables) deadLetters(ctx context.Context, consumer string, match func(*DeadLetter) bool) (_ []DeadLetter, err error) {
	defer t.told(ctx, t.deadLetterTable, DeadLettersTable, &err)
	snap, err := t.deadLetterTable.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out, err := t.deadLettersIn(ctx, snap, consumer, match)
	slices.SortStableFunc(out, func(a, b DeadLetter) int { return a.DeadLetteredAt.Compare(b.DeadLetteredAt) })
	return out, err
}

func (t *onTables) deadLettersIn(ctx context.Context, snap *deltalog.Snapshot, consumer string, match func(*DeadLetter) bool) ([]DeadLetter, error) {
	var partition map[string]string
	if consumer != "" {
		partition = consumerPartition(consumer)
	}
	var out []DeadLetter
	for rec, err := range t.deadLetterTable.Scan(ctx, snap, columnNames(deadLetterColumns), partition) {
		if err != nil {
			return nil, err
		}
		for i := range int(rec.NumRows()) {
			d, err := deadLetterRow(rec, i)
			if err != nil {
				return nil, err
			}
			if match(&d) {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// changeDeadLetters replaces the files of the consumer's partition in one commit; what came in between is read and changed anew.
func (t *onTables) changeDeadLetters(ctx context.Context, consumer string, change func(*DeadLetter) bool) (_ []DeadLetter, err error) {
	defer t.told(ctx, t.deadLetterTable, DeadLettersTable, &err)
	for attempt := 0; ; attempt++ {
		snap, err := t.deadLetterTable.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		all, err := t.deadLettersIn(ctx, snap, consumer, func(*DeadLetter) bool { return true })
		if err != nil {
			return nil, err
		}
		var changed []DeadLetter
		for i := range all {
			if change(&all[i]) {
				changed = append(changed, all[i])
			}
		}
		if len(changed) == 0 {
			return nil, nil
		}
		adds, err := t.writeDeadLetters(ctx, snap, all)
		if err != nil {
			return nil, err
		}
		_, err = t.deadLetterTable.Commit(ctx, deltalog.Transaction{
			Base: snap, Operation: "UPDATE", Adds: adds, Removes: slices.Collect(snap.FilesIn(consumerPartition(consumer))),
			ReadPartitions: []map[string]string{consumerPartition(consumer)}, Parameters: map[string]any{"consumer": consumer},
		})
		if errors.Is(err, deltalog.ErrConflict) && attempt < 20 {
			continue
		}
		if err != nil {
			return nil, err
		}
		return changed, nil
	}
}

// tail is the index of the first column behind the message's.
var tail = len(deadLetterHead) + len(messageColumns)

func deadLetterRow(rec arrow.RecordBatch, i int) (DeadLetter, error) {
	text := func(c int) string {
		if rec.Column(c).IsNull(i) {
			return ""
		}
		return strings.Clone(rec.Column(c).(*array.String).Value(i))
	}
	at := func(c int) time.Time {
		if rec.Column(c).IsNull(i) {
			return time.Time{}
		}
		return time.UnixMicro(int64(rec.Column(c).(*array.Timestamp).Value(i))).UTC()
	}
	number := func(c int) int { return int(rec.Column(c).(*array.Int32).Value(i)) }
	e, err := messageRow(rec, len(deadLetterHead), i)
	if err != nil {
		return DeadLetter{}, err
	}
	e.Version = rec.Column(tail).(*array.Int64).Value(i)
	d := DeadLetter{
		ID: text(0), Consumer: text(1), Event: e, Attempts: number(tail + 1), Error: text(tail + 3), ErrorType: text(tail + 4),
		Stack: text(tail + 5), FirstFailedAt: at(tail + 6), DeadLetteredAt: at(tail + 7), Status: text(tail + 8),
		StatusAt: at(tail + 9), ReplayMessageID: text(tail + 10), Origin: text(tail + 11), Replay: number(tail + 12),
	}
	if log := rec.Column(tail + 2).(*array.List); !log.IsNull(i) {
		from, to := log.ValueOffsets(i)
		entries := log.ListValues().(*array.Struct)
		for j := int(from); j < int(to); j++ {
			d.Log = append(d.Log, Attempt{
				At:        time.UnixMicro(int64(entries.Field(0).(*array.Timestamp).Value(j))).UTC(),
				Error:     strings.Clone(entries.Field(1).(*array.String).Value(j)),
				ErrorType: strings.Clone(entries.Field(2).(*array.String).Value(j)),
			})
		}
	}
	return d, nil
}

func appendDeadLetter(b *array.RecordBuilder, d *DeadLetter) {
	must := func(c int, s string) { b.Field(c).(*array.StringBuilder).Append(s) }
	text := func(c int, s string) {
		if s == "" {
			b.Field(c).AppendNull()
		} else {
			must(c, s)
		}
	}
	at := func(c int, t time.Time) {
		if t.IsZero() {
			b.Field(c).AppendNull()
		} else {
			b.Field(c).(*array.TimestampBuilder).Append(arrow.Timestamp(t.UnixMicro()))
		}
	}
	must(0, d.ID)
	must(1, d.Consumer)
	appendMessage(b, len(deadLetterHead), &d.Event.Message, d.Event.ProducerID, d.Event.ProducerSeq, d.Event.PublishedAt)
	b.Field(tail).(*array.Int64Builder).Append(d.Event.Version)
	b.Field(tail + 1).(*array.Int32Builder).Append(int32(d.Attempts))
	log := b.Field(tail + 2).(*array.ListBuilder)
	log.Append(true)
	entry := log.ValueBuilder().(*array.StructBuilder)
	for _, a := range d.Log {
		entry.Append(true)
		entry.FieldBuilder(0).(*array.TimestampBuilder).Append(arrow.Timestamp(a.At.UnixMicro()))
		entry.FieldBuilder(1).(*array.StringBuilder).Append(strings.ToValidUTF8(a.Error, "\ufffd"))
		entry.FieldBuilder(2).(*array.StringBuilder).Append(a.ErrorType)
	}
	must(tail+3, strings.ToValidUTF8(d.Error, "\ufffd"))
	text(tail+4, d.ErrorType)
	text(tail+5, strings.ToValidUTF8(d.Stack, "\ufffd"))
	at(tail+6, d.FirstFailedAt)
	at(tail+7, d.DeadLetteredAt)
	must(tail+8, d.Status)
	at(tail+9, d.StatusAt)
	text(tail+10, d.ReplayMessageID)
	text(tail+11, d.Origin)
	b.Field(tail + 12).(*array.Int32Builder).Append(int32(d.Replay))
}
