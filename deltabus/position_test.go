package deltabus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestOrderWithinAVersion has each rank of the order decide once.
func TestOrderWithinAVersion(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	at := time.Unix(1_700_000_000, 0)
	row := func(id, producer string, seq int64, at time.Time) Event {
		e := event(id, "t", seq)
		e.ProducerID, e.PublishedAt = producer, at
		return e
	}
	appendEvents(t, b,
		row("7", "a", 0, at.Add(time.Microsecond)),
		row("6", "é", 0, at), // UTF-8: behind every ASCII letter
		row("5", "z", 3, at), row("4", "z", 2, at),
		row("3", "b", 1, at), row("2", "b", 1, at),
		row("1", "a", 9, at.Add(-time.Microsecond)),
	)
	appendEvents(t, b, row("8", "a", 0, at.Add(-time.Hour))) // across versions: the version
	if got := consume(t, b, "c", "t", nil); !slices.Equal(got, strings.Split("12345678", "")) {
		t.Errorf("order %v", got)
	}
}

// TestPositionCountsEveryRow: also those that the filter does not want.
func TestPositionCountsEveryRow(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	appendEvents(t, b, event("a0", "a", 0), event("b1", "b", 1), event("b2", "b", 2), event("a3", "a", 3), event("a4", "a", 4))
	if got := consume(t, b, "c", "a", nil, WithMaxEvents(2)); !slices.Equal(got, []string{"a0", "a3"}) {
		t.Fatalf("first run %v", got)
	}
	if c := stored(t, b, "c"); c.Version != 0 || c.Position != 4 || c.Epoch != 1 || c.StalledStarts != 0 || c.TableID != b.messages.Cached().Metadata().ID || c.Filter != "a" {
		t.Errorf("checkpoint %+v", c)
	}
	status, err := b.Consumers(t.Context())
	if err != nil || len(status) != 1 || status[0].State != StateBehind || *status[0].LagVersions != 1 || *status[0].LagEvents != 1 || status[0].LagTime == nil {
		t.Errorf("status %+v, %v", status, err)
	}
	if got := consume(t, b, "c", "a", nil); !slices.Equal(got, []string{"a4"}) {
		t.Errorf("second run %v", got)
	}
	if c := stored(t, b, "c"); c.Version != 1 || c.Position != 0 || c.Epoch != 2 {
		t.Errorf("checkpoint %+v", c)
	}
}

// expire deletes the commits of messages below version, as log cleanup does behind a checkpoint, and opens the bus anew.
func expire(t *testing.T, b *Bus, st store.Store, version int64) *Bus {
	t.Helper()
	if err := b.messages.Checkpoint(t.Context(), b.messages.Cached()); err != nil {
		t.Fatal(err)
	}
	for v := range version {
		if err := st.Delete(t.Context(), fmt.Sprintf("main/deltabus/messages/_delta_log/%020d.json", v)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Open(t.Context(), Config{Workspace: OnStore(st)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestEarliestBeyondTheFeed reads the rows of the table, then the feed, and resumes within either.
func TestEarliestBeyondTheFeed(t *testing.T) {
	t.Parallel()
	b, st := newTestBus(t)
	appendEvents(t, b, event("3", "t", 3), event("1", "t", 1), event("x", "other", 9))
	appendEvents(t, b, event("2", "t", 2), event("1", "t", 1)) // a duplicate
	appendEvents(t, b, event("4", "t", 4))
	b = expire(t, b, st, 3)
	if got := consume(t, b, "c", "t", nil, WithMaxEvents(2)); !slices.Equal(got, []string{"1", "2"}) {
		t.Fatalf("within the backfill %v", got)
	}
	c := stored(t, b, "c")
	if c.Backfill == nil || *c.Backfill != 3 || c.Version != -1 || c.Position != 3 { // 1, 1 again, 2
		t.Errorf("checkpoint within the backfill %+v", c)
	}
	status, err := b.Consumers(t.Context())
	if err != nil || status[0].State != StateBackfilling || status[0].LagEvents != nil {
		t.Errorf("status %+v, %v", status, err)
	}
	appendEvents(t, b, event("0", "t", 0)) // behind the backfill's version: from the feed
	if got := consume(t, b, "c", "t", nil); !slices.Equal(got, []string{"3", "4", "0"}) {
		t.Errorf("rest %v", got)
	}
	if c := stored(t, b, "c"); c.Backfill != nil || c.Version != 4 || c.Position != 0 {
		t.Errorf("checkpoint behind the backfill %+v", c)
	}
}

func TestExpiredPositionSaysWhatTheChoicesAre(t *testing.T) {
	t.Parallel()
	b, st := newTestBus(t)
	appendEvents(t, b, event("1", "t", 1))
	consume(t, b, "c", "t", nil)
	appendEvents(t, b, event("2", "t", 2))
	appendEvents(t, b, event("3", "t", 3))
	b = expire(t, b, st, 3)
	c, err := b.Consumer("c", "t", func(context.Context, Event) error { return nil }, fast()...)
	if err != nil {
		t.Fatal(err)
	}
	var expired *PositionExpiredError
	if err := c.Run(t.Context()); !errors.Is(err, ErrPositionExpired) || !errors.As(err, &expired) || expired.Version != 2 || expired.Earliest != 3 {
		t.Errorf("run: %v", err)
	}
	if status, err := b.Consumers(t.Context()); err != nil || status[0].State != StateExpired {
		t.Errorf("status %+v, %v", status, err)
	}
	if got := consume(t, b, "c", "t", nil, WithReset(Latest())); len(got) != 0 {
		t.Errorf("latest: %v", got)
	}
	if got := consume(t, b, "c", "t", nil, WithReset(Earliest())); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("earliest: %v", got)
	}
}

// TestEarliestWhereFilesWereVacuumed: the log has every version, but the file of one was compacted away and deleted.
func TestEarliestWhereFilesWereVacuumed(t *testing.T) {
	t.Parallel()
	b, st := newTestBus(t)
	appendEvents(t, b, event("1", "t", 1))
	appendEvents(t, b, event("2", "t", 2))
	snap, err := b.messages.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	removes := slices.Collect(snap.Files())
	commitRows(t, b, deltalog.Transaction{Operation: "OPTIMIZE", NoDataChange: true, Removes: removes}, event("1", "t", 1), event("2", "t", 2))
	if got := consume(t, b, "before", "t", nil); !slices.Equal(got, []string{"1", "2"}) { // OPTIMIZE delivers nothing
		t.Errorf("before VACUUM %v", got)
	}
	if err := st.Delete(t.Context(), "main/deltabus/messages/"+removes[1].Path); err != nil {
		t.Fatal(err)
	}
	if got := consume(t, b, "c", "t", nil); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("after VACUUM %v", got)
	}
}

func TestRewrittenHistoryStopsTheConsumer(t *testing.T) {
	t.Parallel()
	for name, rewrite := range map[string]func(*testing.T, *Bus){
		"overwrite": func(t *testing.T, b *Bus) {
			commitRows(t, b, deltalog.Transaction{Operation: "WRITE", Removes: slices.Collect(b.messages.Cached().Files())}, event("x", "t", 9))
		},
		"restore": func(t *testing.T, b *Bus) {
			commitRows(t, b, deltalog.Transaction{Operation: "RESTORE"}, event("1", "t", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := newTestBus(t)
			appendEvents(t, b, event("1", "t", 1))
			rewrite(t, b)
			appendEvents(t, b, event("2", "t", 2))
			c, err := b.Consumer("c", "t", func(context.Context, Event) error { return nil }, fast()...)
			if err != nil {
				t.Fatal(err)
			}
			var rewritten *HistoryRewrittenError
			if err := c.Run(t.Context()); !errors.Is(err, ErrHistoryRewritten) || !errors.As(err, &rewritten) || rewritten.Version != 2 {
				t.Errorf("run: %v", err)
			}
			if c := stored(t, b, "c"); c.Version != 1 {
				t.Errorf("checkpoint %+v", c)
			}
			if got := consume(t, b, "c", "t", nil, WithReset(FromVersion(3))); !slices.Equal(got, []string{"2"}) {
				t.Errorf("behind it: %v", got)
			}
		})
	}
}

// recreate drops the messages table and makes it anew in the same place.
func recreate(t *testing.T, st store.Store) {
	t.Helper()
	for info, err := range st.List(t.Context(), "main/deltabus/messages/", "") {
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Delete(t.Context(), info.Name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Init(t.Context(), Config{Workspace: OnStore(st)}); err != nil {
		t.Fatal(err)
	}
}

func TestRecreatedTableIsNoticedAtAStart(t *testing.T) {
	t.Parallel()
	b, st := newTestBus(t)
	appendEvents(t, b, event("1", "t", 1))
	consume(t, b, "c", "t", nil)
	recreate(t, st)
	anew, err := Open(t.Context(), Config{Workspace: OnStore(st)})
	if err != nil {
		t.Fatal(err)
	}
	appendEvents(t, anew, event("2", "t", 2))
	appendEvents(t, anew, event("3", "t", 3))
	for name, b := range map[string]*Bus{"opened anew": anew, "open since before": b} {
		c, err := b.Consumer("c", "t", func(context.Context, Event) error { return nil }, fast()...)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); !errors.Is(err, ErrTableRecreated) {
			t.Errorf("%s: %v", name, err)
		}
		if status, err := b.Consumers(t.Context()); err != nil || status[0].State != StateRecreated || status[0].LagVersions != nil {
			t.Errorf("%s: status %+v, %v", name, status, err)
		}
	}
	if got := consume(t, anew, "c", "t", nil, WithReset(Earliest())); !slices.Equal(got, []string{"2", "3"}) {
		t.Errorf("reset: %v", got)
	}
}

// TestVersionThatGoesBack: an older copy of the table was put back, with the same id.
func TestVersionThatGoesBack(t *testing.T) {
	t.Parallel()
	b, st := newTestBus(t)
	appendEvents(t, b, event("1", "t", 1))
	appendEvents(t, b, event("2", "t", 2))
	consume(t, b, "c", "t", nil)
	if err := st.Delete(t.Context(), "main/deltabus/messages/_delta_log/00000000000000000002.json"); err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), Config{Workspace: OnStore(st)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Consumer("c", "t", func(context.Context, Event) error { return nil }, fast()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, ErrTableRecreated) {
		t.Errorf("run: %v", err)
	}
	if status, err := b.Consumers(t.Context()); err != nil || status[0].State != StateRecreated {
		t.Errorf("status %+v, %v", status, err)
	}
}

// TestRecreatedTableIsNoticedWhilePolling: both when nothing comes, and when the new table reaches the version that is waited for.
func TestRecreatedTableIsNoticedWhilePolling(t *testing.T) {
	for _, versions := range []int{0, 3} {
		t.Run(fmt.Sprint(versions), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, st := newTestBus(t)
				appendEvents(t, b, event("1", "t", 1))
				var got []string
				c := start(t, b, "c", "t", func(_ context.Context, e Event) error {
					got = append(got, e.ID)
					return nil
				})
				<-time.After(3 * time.Second)
				recreate(t, st)
				anew, err := Open(t.Context(), Config{Workspace: OnStore(st)})
				if err != nil {
					t.Fatal(err)
				}
				for i := range versions {
					<-time.After(time.Millisecond)
					appendEvents(t, anew, event(fmt.Sprint("new", i), "t", 9))
				}
				begun := time.Now()
				if err := <-c.done; !errors.Is(err, ErrTableRecreated) {
					t.Errorf("run: %v", err)
				}
				if took := time.Since(begun); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
				if !slices.Equal(got, []string{"1"}) {
					t.Errorf("handled %v", got)
				}
			})
		})
	}
}

// TestWhenACheckpointIsWritten: after N events, after T, and every 5 s where only the version moves.
func TestWhenACheckpointIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newTestBus(t)
		begun := time.Now()
		type write struct {
			at       time.Duration
			position int64
			version  int64
		}
		var mu sync.Mutex
		var writes []write
		c := start(t, b, "c", "t", func(context.Context, Event) error { return nil }, WithCheckpointEvery(3, 10*time.Second), WithPollInterval(100*time.Millisecond),
			WithObserver(Observer{Checkpoint: func(c Checkpoint) {
				mu.Lock()
				defer mu.Unlock()
				writes = append(writes, write{time.Since(begun).Round(time.Second), c.Position, c.Version})
			}}))
		<-time.After(20 * time.Second) // the first look for messages finds version 0, which is worth nothing but a new version
		mu.Lock()
		writes, begun = nil, time.Now()
		mu.Unlock()
		appendEvents(t, b, event("1", "t", 1), event("2", "t", 2), event("3", "t", 3), event("4", "t", 4))
		<-time.After(15 * time.Second)
		appendEvents(t, b, event("5", "other", 5))
		<-time.After(15 * time.Second)
		c.Stop()
		if err := <-c.done; err != nil {
			t.Fatal(err)
		}
		// The mark of the first event, three events, the fourth after 10 s, the other one after 5 s; nothing at the stop.
		want := []write{{0, 0, 0}, {0, 3, 0}, {10 * time.Second, 0, 1}, {20 * time.Second, 0, 2}}
		if !slices.Equal(writes, want) {
			t.Errorf("checkpoints %v, want %v", writes, want)
		}
	})
}

// TestCheckpointWhileAHandlerRuns: what was settled before is not kept waiting by a slow handler, nor by a pause between attempts.
func TestCheckpointWhileAHandlerRuns(t *testing.T) {
	for name, slow := range map[string]func() error{
		"handler": func() error { <-time.After(time.Minute); return nil },
		"pause":   func() error { return RetryAfter(time.Minute, errors.New("busy")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := newTestBus(t)
				appendEvents(t, b, event("1", "t", 1), event("2", "t", 2))
				busy := true
				c := start(t, b, "c", "t", func(_ context.Context, e Event) error {
					if e.ID == "2" && busy {
						busy = false
						return slow()
					}
					return nil
				}, UntilCurrent())
				<-time.After(2 * time.Second)
				if c := stored(t, b, "c"); c.Position != 1 {
					t.Errorf("checkpoint while event 2 is under way: %+v", c)
				}
				if err := <-c.done; err != nil {
					t.Fatal(err)
				}
				if c := stored(t, b, "c"); c.Version != 1 {
					t.Errorf("last checkpoint %+v", c)
				}
			})
		})
	}
}

// TestIdlePollIsOneStat counts what a waiting consumer asks of the store.
func TestIdlePollIsOneStat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, st := newTestBus(t)
		var mu sync.Mutex
		ops := map[string]int{}
		b, err := Open(t.Context(), Config{Workspace: OnStore(store.WithFaults(st, func(o store.Op) store.Fault {
			mu.Lock()
			defer mu.Unlock()
			ops[o.Kind]++
			return store.None
		}))})
		if err != nil {
			t.Fatal(err)
		}
		c := start(t, b, "c", "t", func(context.Context, Event) error { return nil })
		<-time.After(time.Minute)
		synctest.Wait()
		mu.Lock()
		clear(ops)
		mu.Unlock()
		<-time.After(time.Minute)
		synctest.Wait()
		mu.Lock()
		// 60 polls, and every 5 s a look whether the table is still the same.
		if ops["stat"] < 60 || ops["stat"] > 75 || len(ops) != 1 {
			t.Errorf("a minute cost %v", ops)
		}
		mu.Unlock()
		c.Stop()
		if err := <-c.done; err != nil {
			t.Fatal(err)
		}
	})
}

// TestStartDoesNotSetBackWhoMovesOn: between a start's reading and its writing the other instance writes a checkpoint.
func TestStartDoesNotSetBackWhoMovesOn(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	first := Checkpoint{Consumer: "c", Filter: "t", TableID: "x", Version: 1, Epoch: 1, Owner: "old"}
	if err := b.backend.saveCheckpoint(t.Context(), Checkpoint{}, first); err != nil {
		t.Fatal(err)
	}
	moved := first
	moved.Version = 5
	if err := b.backend.saveCheckpoint(t.Context(), first, moved); err != nil {
		t.Fatal(err)
	}
	taken := first // what the start has read
	taken.Epoch, taken.Owner = 2, "new"
	if err := b.backend.saveCheckpoint(t.Context(), first, taken); !errors.Is(err, ErrFenced) {
		t.Errorf("a start with a stale reading: %v", err)
	}
	taken.Version = 5
	if err := b.backend.saveCheckpoint(t.Context(), moved, taken); err != nil {
		t.Errorf("a start that has read again: %v", err)
	}
}
