package deltabus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
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
	return dl.bus.backend.deadLetters(ctx, f.Consumer, f.match)
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
	publish := func(open []DeadLetter) error {
		messages := make([]Message, len(open))
		for i := range open {
			messages[i] = replayOf(&open[i], to)
		}
		return dl.bus.backend.publish(ctx, messages)
	}
	return dl.change(ctx, f, publish, func(d *DeadLetter) bool {
		if d.Status == StatusReplayed {
			return false // by somebody else, in this moment
		}
		// Also one that was discarded in this moment: its replay is out.
		d.Status, d.ReplayMessageID = StatusReplayed, replayID(d)
		return true
	})
}

// Discard marks the open dead letters that match as not to be replayed, and returns them. Named ids that are not there are
// ErrNoSuchDeadLetter; ones that are not open any more are left alone.
func (dl *DeadLetters) Discard(ctx context.Context, f DeadLetterFilter) ([]DeadLetter, error) {
	return dl.change(ctx, f, nil, func(d *DeadLetter) bool {
		if d.Status != StatusOpen {
			return false
		}
		d.Status = StatusDiscarded
		return true
	})
}

// change calls publish, if it is set, with the open dead letters that match, one consumer after the other, and stores what set makes of them.
// It returns them as they are then.
func (dl *DeadLetters) change(ctx context.Context, filter DeadLetterFilter, publish func([]DeadLetter) error, set func(*DeadLetter) bool) ([]DeadLetter, error) {
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
	defer func() {
		if len(out) == 0 {
			return
		}
		if err := dl.bus.backend.tidy(ctx); err != nil { // no reason to fail
			dl.bus.cfg.Logger.Warn("clean up dead letters", "error", err)
		}
	}()
	for _, consumer := range slices.Sorted(maps.Keys(byConsumer)) {
		open := byConsumer[consumer]
		if publish != nil {
			if err := publish(open); err != nil {
				return out, fmt.Errorf("replay dead letters of %s: %w", consumer, err)
			}
		}
		meant := map[string]bool{}
		for _, d := range open {
			meant[d.ID] = true
		}
		at := dl.bus.cfg.Clock().UTC().Truncate(time.Microsecond)
		changed, err := dl.bus.backend.changeDeadLetters(ctx, consumer, func(d *DeadLetter) bool {
			if !meant[d.ID] || !set(d) {
				return false
			}
			d.StatusAt = at
			return true
		})
		if err != nil {
			return out, fmt.Errorf("change dead letters of %s: %w", consumer, err)
		}
		out = append(out, changed...)
	}
	return out, nil
}

// replayID is the message id of the next replay of d.
func replayID(d *DeadLetter) string {
	return uuid.NewSHA1(namespace, fmt.Appendf(nil, "replay\x00%s\x00%d", d.ID, d.Replay+1)).String()
}

// replayOf is the message that replays d.
func replayOf(d *DeadLetter, to ReplayTarget) Message {
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
	return m
}
