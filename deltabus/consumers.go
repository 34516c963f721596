package deltabus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/cdf"
)

// The states of a consumer, by its stored checkpoint; whether a process runs is not stored.
const (
	// StateCurrent: everything committed is done.
	StateCurrent = "current"
	// StateBehind: there is more to read.
	StateBehind = "behind"
	// StateBackfilling: it reads the table's rows before the feed.
	StateBackfilling = "backfilling"
	// StateStalled: its last start had an event to handle and ended without moving past it.
	StateStalled = "stalled"
	// StateExpired: the feed no longer reaches back to it.
	StateExpired = "expired"
	// StateRecreated: the messages table is not the one that it read.
	StateRecreated = "recreated"
)

// ConsumerStatus is how a consumer is doing. A nil lag is unknown, which is not zero.
type ConsumerStatus struct {
	Checkpoint
	State string
	// LagVersions is how many versions are not wholly done, LagEvents how many events that the filter wants are not, LagTime how long ago the
	// oldest of those versions was committed.
	LagVersions *int64
	LagEvents   *int64
	LagTime     *time.Duration
}

// maxLagVersions bounds how many versions are read to count the events that a consumer lags.
const maxLagVersions = 2000

// Consumers returns the status of every consumer, by id.
func (b *Bus) Consumers(ctx context.Context) ([]ConsumerStatus, error) {
	snap, err := b.checkpoints.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	var out []ConsumerStatus
	for add := range snap.Files() {
		rows, err := b.readCheckpointFile(ctx, snap, add)
		if err != nil {
			return nil, err
		}
		for _, c := range rows {
			out = append(out, ConsumerStatus{Checkpoint: c})
		}
	}
	slices.SortFunc(out, func(a, b ConsumerStatus) int { return strings.Compare(a.Consumer, b.Consumer) })
	messages, err := b.messages.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	for i := range out {
		s := &out[i]
		if s.TableID != messages.Metadata().ID || s.Version > messages.Version() {
			s.State = StateRecreated
			continue
		}
		if err := b.lag(ctx, s, messages.Version()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (b *Bus) lag(ctx context.Context, s *ConsumerStatus, latest int64) error {
	versions := latest - s.Version
	s.LagVersions = &versions
	zero := time.Duration(0)
	switch {
	case s.Backfill != nil:
		s.State = StateBackfilling
		return nil
	case versions == 0:
		s.State, s.LagEvents, s.LagTime = StateCurrent, new(int64), &zero
		return nil
	}
	s.State = StateBehind
	if s.StalledStarts > 0 {
		s.State = StateStalled
	}
	filter, err := ParseFilter(s.Filter)
	if err != nil {
		return nil // written past us: unknown
	}
	c := &Consumer{id: s.Consumer, filter: filter}
	feed := cdf.Follow(b.messages, s.Version, []string{"topic", "headers"})
	var events int64
	for n := 0; ; n++ {
		v, err := feed.Next(ctx)
		if errors.Is(err, cdf.ErrExpired) {
			s.State = StateExpired
			return nil
		}
		if errors.Is(err, cdf.ErrNotInsert) {
			return nil // the consumer will say so
		}
		if err != nil {
			return err
		}
		if v == nil {
			break
		}
		if s.LagTime == nil {
			age := max(0, b.cfg.Clock().Sub(v.Timestamp))
			s.LagTime = &age
		}
		if n >= maxLagVersions {
			return nil // too many to count
		}
		got, err := c.count(v)
		if err != nil {
			return err
		}
		if n == 0 && s.Position > 0 { // some of the first version are done: which, only its order tells
			done, err := (&Consumer{bus: b, id: c.id, filter: filter, o: consumerOptions{runRows: runRows, runB: runBytes}}).idsOf(ctx, v.Version, s.Position)
			if err != nil {
				return err
			}
			got -= int64(len(done))
		}
		events += got
	}
	s.LagEvents = &events
	return nil
}

// count is how many rows of a version are wanted.
func (c *Consumer) count(v *cdf.Version) (n int64, err error) {
	for batch, err := range v.Batches {
		if err != nil {
			return 0, err
		}
		topics, headers := batch.Rows.Column(0).(*array.String), batch.Rows.Column(1).(*array.Map)
		for i := range int(batch.Rows.NumRows()) {
			e := Event{Message: Message{Topic: topics.Value(i)}}
			if !headers.IsNull(i) {
				from, to := headers.ValueOffsets(i)
				keys, values := headers.Keys().(*array.String), headers.Items().(*array.String)
				for j := int(from); j < int(to); j++ {
					if keys.Value(j) == HeaderReplayTo {
						e.Headers = map[string]string{HeaderReplayTo: values.Value(j)}
					}
				}
			}
			if c.wants(&e) {
				n++
			}
		}
	}
	return n, nil
}
