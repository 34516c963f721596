package deltabus

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestStopInTwoSteps: the first lets the handler finish, the second cancels it.
func TestStopInTwoSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		stops    int
		useCtx   bool
		takes    time.Duration
		handled  bool
		position int64
	}{
		"finishes":                  {stops: 1, takes: time.Minute / 4, handled: true, position: 1},
		"finishes after ctx's end":  {useCtx: true, takes: time.Minute / 4, handled: true, position: 1},
		"cut off by a second stop":  {stops: 2, takes: time.Minute / 4},
		"cut off after its grace":   {stops: 1, takes: time.Hour},
		"ctx's end, then a stop":    {useCtx: true, stops: 1, takes: time.Minute / 4},
		"a third stop does nothing": {stops: 3, takes: time.Minute / 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, _ := newTestBus(t)
				appendEvents(t, b, event("1", "t", 1), event("2", "t", 2))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				running := make(chan struct{})
				handled := false
				c, err := b.Consumer("c", "t", func(ctx context.Context, e Event) error {
					if e.ID != "1" {
						t.Error("an event was delivered after the stop")
					}
					close(running)
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(tc.takes):
						handled = true
						return nil
					}
				}, WithRetry(RetryPolicy{MaxAttempts: 1}))
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error)
				go func() { done <- c.Run(ctx) }()
				<-running
				begun := time.Now()
				if tc.useCtx {
					cancel()
					synctest.Wait()
				}
				for range tc.stops {
					c.Stop()
				}
				if err := <-done; err != nil {
					t.Errorf("run: %v", err)
				}
				if took := time.Since(begun); took > time.Minute/2 {
					t.Errorf("the stop took %v", took)
				}
				if handled != tc.handled {
					t.Errorf("handled: %v", handled)
				}
				// What was cut off is not to blame for it, and comes again.
				if c := stored(t, b, "c"); c.Position != tc.position && c.Version != 1 || c.StalledStarts != 0 {
					t.Errorf("checkpoint %+v", c)
				}
				if letters, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{}); err != nil || len(letters) != 0 {
					t.Errorf("dead letters %v, %v", letters, err)
				}
			})
		})
	}
}

func TestStopEndsPausesAndPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := newTestBus(t)
		idle := start(t, b, "idle", "t", func(context.Context, Event) error { return nil }, WithPollInterval(time.Hour))
		appendEvents(t, b, event("1", "other", 1))
		busy := start(t, b, "busy", "other", func(context.Context, Event) error { return errors.New("bad") }, WithRetry(RetryPolicy{Backoff: time.Hour}))
		<-time.After(3 * time.Hour / 2) // in the first pause, and in a wait between two polls
		begun := time.Now()
		for _, c := range []*running{idle, busy} {
			c.Stop()
			if err := <-c.done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the stop took %v", took)
		}
		if c := stored(t, b, "busy"); c.Version != 0 || c.Position != 0 || c.StalledStarts != 0 {
			t.Errorf("checkpoint %+v", c)
		}
	})
}

func TestConsumerRunsOnce(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	c, err := b.Consumer("c", "t", func(context.Context, Event) error { return nil }, UntilCurrent())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Error("it ran twice")
	}
}

// TestHandlerThatEndsItsGoroutine is a failed attempt, not a hang.
func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	appendEvents(t, b, event("1", "t", 1))
	consume(t, b, "c", "t", func(Event) error { runtime.Goexit(); return nil })
	letters, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{})
	if err != nil || len(letters) != 1 || !strings.Contains(letters[0].Error, "Goexit") {
		t.Errorf("dead letters %+v, %v", letters, err)
	}
}

func TestBadConsumersAreRefused(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	h := func(context.Context, Event) error { return nil }
	for name, f := range map[string]func() (*Consumer, error){
		"no id":        func() (*Consumer, error) { return b.Consumer("", "t", h) },
		"long id":      func() (*Consumer, error) { return b.Consumer(strings.Repeat("x", 201), "t", h) },
		"long escaped": func() (*Consumer, error) { return b.Consumer(strings.Repeat("%", 67), "t", h) },
		"bad utf-8":    func() (*Consumer, error) { return b.Consumer("\xff", "t", h) },
		"control":      func() (*Consumer, error) { return b.Consumer("a\nb", "t", h) },
		"no filter":    func() (*Consumer, error) { return b.Consumer("c", "", h) },
		"no handler":   func() (*Consumer, error) { return b.Consumer("c", "t", nil) },
		"no attempts":  func() (*Consumer, error) { return b.Consumer("c", "t", h, WithRetry(RetryPolicy{MaxAttempts: -1})) },
		"backoff": func() (*Consumer, error) {
			return b.Consumer("c", "t", h, WithRetry(RetryPolicy{Backoff: 2, MaxBackoff: 1}))
		},
		"no checkpoint": func() (*Consumer, error) { return b.Consumer("c", "t", h, WithCheckpointEvery(0, time.Second)) },
		"no poll":       func() (*Consumer, error) { return b.Consumer("c", "t", h, WithPollInterval(0)) },
		"window":        func() (*Consumer, error) { return b.Consumer("c", "t", h, WithDedupWindow(-1)) },
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
