package deltabus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestCrashRedeliversWhatCameAfterTheCheckpoint kills the process at every event in turn.
func TestCrashRedeliversWhatCameAfterTheCheckpoint(t *testing.T) {
	const n, every = 20, 6
	for at := range n {
		synctest.Test(t, func(t *testing.T) { crashAt(t, at, n, every) })
	}
}

func crashAt(t *testing.T, at, n, every int) {
	b, st := newTestBus(t)
	publishBatch(t, b, numbered("t", n)...)
	p := newProcess(t, st)
	var before []string
	c, err := p.Consumer("c", "t", func(_ context.Context, e Event) error {
		if string(e.Payload) == fmt.Sprint(at) {
			p.kill()
		}
		before = append(before, string(e.Payload))
		return nil
	}, fast(WithCheckpointEvery(every, time.Hour))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Fatalf("killed at %d: the run ended well", at)
	}
	done := int(stored(t, b, "c").Position)
	if want := at / every * every; done != want {
		t.Errorf("killed at %d: the checkpoint has %d events, want %d", at, done, want)
	}
	var want []string
	for i := done; i < n; i++ {
		want = append(want, fmt.Sprint(i))
	}
	if got := consume(t, b, "c", "t", nil); !slices.Equal(got, want) {
		t.Errorf("killed at %d, with %v handled: then %v", at, before, got)
	}
}

// TestFailingStoreSkipsNothing fails every n-th write to the store, or any operation at random, before or after it is done, until all
// is consumed.
func TestFailingStoreSkipsNothing(t *testing.T) {
	for n := range 12 {
		for _, fault := range []store.Fault{store.FailBefore, store.FailAfter} {
			if n >= 3 { // below, a write of two files never gets through
				t.Run(fmt.Sprint("put/", n, "/", fault), func(t *testing.T) {
					puts := 0
					synctest.Test(t, func(t *testing.T) {
						starts := consumeFlaky(t, func(o store.Op) bool {
							if o.Kind == "put" {
								puts++
							}
							return o.Kind == "put" && puts%n == 0
						}, fault)
						if starts > 1 {
							t.Errorf("it ended %d times for failures that were over in a moment", starts-1)
						}
					})
				})
			}
			t.Run(fmt.Sprint("any/", n, "/", fault), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(uint64(n), 1))
				synctest.Test(t, func(t *testing.T) {
					consumeFlaky(t, func(store.Op) bool { return rnd.IntN(8) == 0 }, fault)
				})
			})
		}
	}
}

func consumeFlaky(t *testing.T, fails func(store.Op) bool, fault store.Fault) (starts int) {
	b, st := newTestBus(t)
	publishBatch(t, b, numbered("t", 15)...)
	publishBatch(t, b, numbered("t", 15)...)
	failed, opened := 0, false
	fb, err := Open(t.Context(), Config{Workspace: OnStore(store.WithFaults(st, func(o store.Op) store.Fault {
		if opened && fails(o) {
			failed++
			return fault
		}
		return store.None
	}))})
	if err != nil {
		t.Fatal(err)
	}
	opened = true
	last := int64(-1) // in the order of the log: version and sequence
	handled := map[string]int{}
	for ended := false; !ended; starts++ {
		if starts == 20 {
			t.Fatalf("no end; handled %d", len(handled))
		}
		c, err := fb.Consumer("c", "t", func(_ context.Context, e Event) error {
			if e.ProducerSeq == 7 { // also what fails must go somewhere
				return Skip(errors.New("poison"))
			}
			place := e.Version*1000 + e.ProducerSeq
			if handled[e.ID]++; handled[e.ID] == 1 {
				if place < last {
					t.Errorf("%d delivered first after %d", place, last)
				}
				last = place
			}
			return nil
		}, fast(WithCheckpointEvery(4, time.Hour))...)
		if err != nil {
			t.Fatal(err)
		}
		ended = c.Run(t.Context()) == nil
	}
	if failed == 0 {
		t.Error("nothing failed")
	}
	letters, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{})
	if err != nil || len(handled) != 28 || len(letters) != 2 {
		t.Errorf("handled %d, %d dead letters, %v", len(handled), len(letters), err)
	}
	if c := stored(t, b, "c"); c.Version != 2 || c.StalledStarts != 0 {
		t.Errorf("checkpoint %+v", c)
	}
	return starts
}

// TestTwinsThatStartTogether have the same owner's name, too: one goes on, all others are fenced.
func TestTwinsThatStartTogether(t *testing.T) {
	t.Parallel()
	_, st := newTestBus(t)
	const twins = 4
	results := make(chan error, twins)
	var all []*Consumer
	for range twins {
		b, err := Open(t.Context(), Config{Workspace: OnStore(st)}) // a process each
		if err != nil {
			t.Fatal(err)
		}
		c, err := b.Consumer("c", "t", func(context.Context, Event) error { return nil }, WithOwner("same"), WithCheckpointEvery(1, time.Hour), WithPollInterval(time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() { results <- c.Run(context.WithoutCancel(t.Context())) })
	}
	b, err := Open(t.Context(), Config{Workspace: OnStore(st)})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; len(results) < twins-1; i++ { // each event makes the stale ones write, and find out
		appendEvents(t, b, event(fmt.Sprint(i), "t", int64(i)))
	}
	for _, c := range all {
		c.Stop()
	}
	wg.Wait()
	fenced := 0
	for range twins {
		if err := <-results; errors.Is(err, ErrFenced) {
			fenced++
		} else if err != nil {
			t.Error(err)
		}
	}
	if fenced != twins-1 {
		t.Errorf("%d of %d were fenced", fenced, twins)
	}
}

// TestTwinsOfOneNameInTheSameMoment: one commits its start between the other's look and its commit. They hold different epochs.
func TestTwinsOfOneNameInTheSameMoment(t *testing.T) {
	t.Parallel()
	b, st := newTestBus(t)
	appendEvents(t, b, event("1", "t", 1))
	first, err := b.Consumer("c", "t", func(context.Context, Event) error { return nil }, fast(WithOwner("same"))...)
	if err != nil {
		t.Fatal(err)
	}
	started := false
	other, err := Open(t.Context(), Config{Workspace: OnStore(store.WithFaults(st, func(o store.Op) store.Fault {
		if o.IfAbsent && strings.Contains(o.Name, "checkpoints/_delta_log") && !started {
			started = true
			if err := first.start(t.Context()); err != nil {
				t.Error(err)
			}
		}
		return store.None
	}))})
	if err != nil {
		t.Fatal(err)
	}
	consume(t, other, "c", "t", nil, WithOwner("same"))
	if err := first.loop(t.Context()); !errors.Is(err, ErrFenced) || !started {
		t.Errorf("the first to start: %v", err)
	}
	if c := stored(t, b, "c"); c.Epoch != 2 || !strings.HasPrefix(c.Owner, "same/") {
		t.Errorf("checkpoint %+v", c)
	}
}

// TestFencedWhileAHandlerRuns: the checkpoint that becomes due finds out, and the handler is cancelled.
func TestFencedWhileAHandlerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := newTestBus(t)
		appendEvents(t, b, event("1", "t", 1), event("2", "t", 2))
		twin := newProcess(t, st)
		c := start(t, b, "c", "t", func(ctx context.Context, e Event) error {
			if e.ID == "1" {
				return nil
			}
			second, err := twin.Consumer("c", "t", func(context.Context, Event) error { return nil }, fast()...)
			if err == nil {
				err = second.Run(ctx)
			}
			if err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		begun := time.Now()
		if err := <-c.done; !errors.Is(err, ErrFenced) {
			t.Errorf("run: %v", err)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if letters, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{}); err != nil || len(letters) != 0 {
			t.Errorf("dead letters %v, %v", letters, err)
		}
	})
}

// TestStalledStartsCountsOnlyStartsThatGotStuck: graceful ends and starts without an event do not count.
func TestStalledStartsCountsOnlyStartsThatGotStuck(t *testing.T) {
	synctest.Test(t, stalledStarts)
}

func stalledStarts(t *testing.T) {
	b, st := newTestBus(t)
	crash := func() {
		t.Helper()
		p := newProcess(t, st)
		c, err := p.Consumer("c", "t", func(context.Context, Event) error { p.kill(); return errors.New("killed") }, fast()...)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); err == nil {
			t.Fatal("a killed consumer ended well")
		}
	}
	for range 5 {
		consume(t, b, "c", "t", nil) // nothing to handle
	}
	appendEvents(t, b, event("1", "t", 1), event("2", "t", 2))
	crash()
	crash()
	if n := stored(t, b, "c").StalledStarts; n != 2 {
		t.Errorf("after two crashes: %d", n)
	}
	if status, err := b.Consumers(t.Context()); err != nil || status[0].State != StateStalled {
		t.Errorf("status %+v, %v", status, err)
	}
	c, err := b.Consumer("c", "t", func(context.Context, Event) error { return Stop(errors.New("not now")) }, fast()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil || err.Error() != "not now" {
		t.Errorf("stopped: %v", err)
	}
	if n := stored(t, b, "c").StalledStarts; n != 0 {
		t.Errorf("after a graceful end: %d", n)
	}
	for range 3 { // the budget of fast()
		crash()
	}
	if got := consume(t, b, "c", "t", nil); !slices.Equal(got, []string{"2"}) {
		t.Errorf("after the budget %v", got)
	}
	letters, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{})
	if err != nil || len(letters) != 1 || letters[0].Event.ID != "1" || letters[0].ErrorType != "crashed" || letters[0].Attempts != 3 {
		t.Errorf("dead letters %+v, %v", letters, err)
	}
}

// TestRetryPausesAndBudget looks at the clock of every attempt.
func TestRetryPausesAndBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newTestBus(t)
		appendEvents(t, b, event("1", "t", 1))
		begun := time.Now()
		type try struct {
			attempt int
			at      time.Duration
		}
		var tries []try
		deferred := 0
		c, err := b.Consumer("c", "t", func(_ context.Context, e Event) error {
			tries = append(tries, try{e.Attempt, time.Since(begun)})
			if deferred < 10 { // costs no attempt
				deferred++
				return RetryAfter(time.Minute, errors.New("not yet"))
			}
			return errors.New("bad")
		}, UntilCurrent(), WithRetry(RetryPolicy{MaxAttempts: 6, Backoff: time.Second, MaxBackoff: 4 * time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(tries) != 16 {
			t.Fatalf("tries %v", tries)
		}
		for i, limit := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second, 4 * time.Second} {
			pause := tries[11+i].at - tries[10+i].at
			if pause < limit/2 || pause > limit || tries[11+i].attempt != i+2 {
				t.Errorf("attempt %d came after %v, want at most %v", tries[11+i].attempt, pause, limit)
			}
		}
		if tries[10].attempt != 1 || tries[10].at < 10*time.Minute {
			t.Errorf("deferred: %+v", tries[:11])
		}
		letters, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{})
		if err != nil || len(letters) != 1 || letters[0].Attempts != 6 || len(letters[0].Log) != 6 || !letters[0].FirstFailedAt.Equal(letters[0].Log[0].At) {
			t.Errorf("dead letters %+v, %v", letters, err)
		}
	})
}

// TestDeadLetterBeforeACrashIsFinal: a process that is killed between a dead letter and its checkpoint has settled the event; the next
// one does not handle it, though it would succeed.
func TestDeadLetterBeforeACrashIsFinal(t *testing.T) {
	t.Parallel()
	b, st := newTestBus(t)
	publishBatch(t, b, numbered("t", 3)...)
	dead := false
	doomed := store.WithFaults(st, func(op store.Op) store.Fault {
		if dead {
			return store.FailBefore
		}
		// The dead letter's commit is the last thing that the process does.
		dead = op.Kind == "put" && op.IfAbsent && strings.Contains(op.Name, DeadLettersTable)
		return store.None
	})
	db, err := Open(t.Context(), Config{Workspace: OnStore(doomed)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := db.Consumer("c", "t", func(_ context.Context, e Event) error {
		if string(e.Payload) == "1" {
			return Skip(errors.New("poison"))
		}
		return nil
	}, fast()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Fatal("the process did not die")
	}
	if got := consume(t, b, "c", "t", nil); !slices.Equal(got, []string{"2"}) {
		t.Errorf("the next process handled %v", got)
	}
	all, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{})
	if err != nil || len(all) != 1 {
		t.Errorf("dead letters %v, %v", all, err)
	}
}
