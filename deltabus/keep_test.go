package deltabus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

const day = 24 * time.Hour

// commitDaily commits an event a day, with a Delta checkpoint, and so a cleaning of the log, every ten.
func commitDaily(t *testing.T, b *Bus, days int) {
	t.Helper()
	if snap := b.messages.Cached(); snap.Property("delta.checkpointInterval") == "" {
		m := *snap.Metadata()
		m.Configuration = maps.Clone(m.Configuration)
		m.Configuration["delta.checkpointInterval"] = "10"
		commitRows(t, b, deltalog.Transaction{Operation: "SET TBLPROPERTIES", Metadata: &m})
	}
	for range days {
		<-time.After(day)
		n := b.messages.Cached().Version() + 1
		appendEvents(t, b, event(fmt.Sprint(n), "t", n))
		synctest.Wait() // for the checkpoint, which runs beside
	}
}

func firstVersion(t *testing.T, b *Bus) int64 {
	t.Helper()
	v, err := b.messages.EarliestVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestLogIsKeptForConsumers beyond its retention, for as long as a stored checkpoint needs it, up to the limit.
func TestLogIsKeptForConsumers(t *testing.T) {
	t.Parallel()
	three := int64(3)
	for name, test := range map[string]struct {
		at    Checkpoint
		other bool // of another messages table
		keeps bool
	}{
		"nobody":              {},
		"behind":              {at: Checkpoint{Consumer: "c", Version: 3}, keeps: true},
		"at the beginning":    {at: Checkpoint{Consumer: "c", Version: -1}, keeps: true},
		"in a backfill":       {at: Checkpoint{Consumer: "c", Version: -1, Backfill: &three, Position: 1}, keeps: true},
		"of another table":    {at: Checkpoint{Consumer: "c", Version: 3}, other: true},
		"done with all of it": {at: Checkpoint{Consumer: "c", Version: 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := newTestBus(t)
				if c := test.at; c.Consumer != "" {
					c.Filter, c.TableID, c.Epoch, c.UpdatedAt = "t", b.messages.Cached().Metadata().ID, 1, time.Now()
					if test.other {
						c.TableID = "another"
					}
					if err := b.backend.saveCheckpoint(t.Context(), Checkpoint{}, c); err != nil {
						t.Fatal(err)
					}
				}
				commitDaily(t, b, 109)
				if first := firstVersion(t, b); test.keeps != (first == 0) {
					t.Fatalf("after 109 days the log begins at %d, keeps: %v", first, test.keeps)
				}
				if !test.keeps {
					return
				}
				var until time.Time
				status, err := b.Consumers(t.Context())
				if err != nil || len(status) != 1 || status[0].KeptUntil == nil {
					t.Fatalf("status %+v, %v", status, err)
				}
				until = *status[0].KeptUntil
				commitDaily(t, b, int(time.Until(until)/day)-1)
				if first := firstVersion(t, b); first > 3 {
					t.Errorf("the log begins at %d before %v", first, until)
				}
				c, err := b.Consumer("c", "t", func(context.Context, Event) error { return nil }, UntilCurrent(), WithMaxEvents(1))
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Run(t.Context()); err != nil {
					t.Errorf("it cannot go on: %v", err)
				}
			})
		})
	}
}

// TestPositionExpiresAtTheLimit that Consumers shows.
func TestPositionExpiresAtTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := newTestBus(t)
		commitDaily(t, b, 10)
		began := time.Now()
		consume(t, b, "c", "t", nil, WithMaxEvents(5)) // of 10, the first a day after the start
		status, err := b.Consumers(t.Context())
		if err != nil || len(status) != 1 || status[0].KeptUntil == nil {
			t.Fatalf("status %+v, %v", status, err)
		}
		if want := began.Add(-5 * day).Add(120 * day); status[0].KeptUntil.Sub(want).Abs() > time.Minute {
			t.Errorf("kept until %v, want %v", status[0].KeptUntil, want)
		}
		commitDaily(t, b, 140)
		if first := firstVersion(t, b); first < 20 {
			t.Errorf("the log begins at %d", first)
		}
		if status, err = b.Consumers(t.Context()); err != nil || status[0].State != StateExpired || status[0].KeptUntil != nil {
			t.Errorf("status %+v, %v", status, err)
		}
		c, err := b.Consumer("c", "t", func(context.Context, Event) error { return nil }, UntilCurrent())
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); !errors.Is(err, ErrPositionExpired) {
			t.Errorf("error %v", err)
		}
	})
}

// TestCheckpointsAreOnlyReadToClean the log, not with every commit.
func TestCheckpointsAreOnlyReadToClean(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		st := store.NewMemory()
		var o deltalog.Options
		name := DefaultSchema + "." + MessagesTable
		b, err := Init(t.Context(), Config{Workspace: OnStore(st)})
		if err != nil {
			t.Fatal(err)
		}
		KeepForConsumers(name, func(ctx context.Context, full string) (*deltalog.Table, error) {
			looks++
			return OnStore(st).Table(ctx, full)
		}, &o)
		if b.messages, err = deltalog.Open(t.Context(), store.Sub(st, "main/deltabus/messages"), o); err != nil {
			t.Fatal(err)
		}
		commitDaily(t, b, 29)
		if looks != 0 {
			t.Errorf("%d looks while nothing has expired", looks)
		}
		commitDaily(t, b, 30)
		if looks == 0 || looks > 3 {
			t.Errorf("%d looks in 30 days with 3 cleanings", looks)
		}
	})
}
