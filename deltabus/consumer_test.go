package deltabus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// newTestBus makes a bus in memory.
func newTestBus(t *testing.T) (*Bus, store.Store) {
	t.Helper()
	st := store.NewMemory()
	b, err := Init(t.Context(), Config{Workspace: OnStore(st)})
	if err != nil {
		t.Fatal(err)
	}
	return b, st
}

// publishBatch publishes messages as one version.
func publishBatch(t *testing.T, b *Bus, messages ...Message) {
	t.Helper()
	p, err := b.Publisher(WithSource("test"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if _, err := p.PublishAsync(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func numbered(topic string, n int) []Message {
	out := make([]Message, n)
	for i := range out {
		out[i] = Message{Topic: topic, Payload: fmt.Appendf(nil, "%d", i)}
	}
	return out
}

// fast are options that keep tests quick.
func fast(o ...ConsumerOption) []ConsumerOption {
	return append([]ConsumerOption{UntilCurrent(), WithRetry(RetryPolicy{MaxAttempts: 3, Backoff: 1, MaxBackoff: 1})}, o...)
}

// consume runs a consumer to the current end and returns the payloads that were handled.
func consume(t *testing.T, b *Bus, id, filter string, handle func(Event) error, o ...ConsumerOption) []string {
	t.Helper()
	var got []string
	c, err := b.Consumer(id, filter, func(_ context.Context, e Event) error {
		if handle != nil {
			if err := handle(e); err != nil {
				return err
			}
		}
		got = append(got, string(e.Payload))
		return nil
	}, fast(o...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatalf("consumer %s: %v", id, err)
	}
	return got
}

func TestConsumerResumesBehindItsCheckpoint(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	publishBatch(t, b, numbered("orders.new", 5)...)
	publishBatch(t, b, numbered("audit", 2)...)
	if got := consume(t, b, "c", "orders.*", nil, WithMaxEvents(2)); !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("first run: %v", got)
	}
	if got := consume(t, b, "c", "orders.*", nil); !slices.Equal(got, []string{"2", "3", "4"}) {
		t.Errorf("second run: %v", got)
	}
	if got := consume(t, b, "c", "orders.*", nil); len(got) != 0 {
		t.Errorf("third run: %v", got)
	}
	status, err := b.Consumers(t.Context())
	if err != nil || len(status) != 1 || status[0].State != StateCurrent || *status[0].LagEvents != 0 {
		t.Errorf("status %+v, %v", status, err)
	}
}

func TestConsumerStartsWhereItIsTold(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	publishBatch(t, b, numbered("t", 2)...)
	publishBatch(t, b, Message{Topic: "t", Payload: []byte("x")})
	if got := consume(t, b, "late", "t", nil); len(got) != 3 {
		t.Errorf("earliest: %v", got)
	}
	if got := consume(t, b, "new", "t", nil, WithFrom(Latest())); len(got) != 0 {
		t.Errorf("latest: %v", got)
	}
	if got := consume(t, b, "v", "t", nil, WithFrom(FromVersion(2))); !slices.Equal(got, []string{"x"}) {
		t.Errorf("version:2: %v", got)
	}
	if got := consume(t, b, "v", "t", nil, WithReset(Earliest())); len(got) != 3 {
		t.Errorf("reset: %v", got)
	}
}

func TestPoisonIsDeadLetteredAndReplayed(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	publishBatch(t, b, numbered("t", 4)...)
	broken := true
	tries := 0
	handle := func(e Event) error {
		if string(e.Payload) != "1" || !broken {
			return nil
		}
		tries++
		return errors.New("bad input")
	}
	if got := consume(t, b, "c", "t", handle); !slices.Equal(got, []string{"0", "2", "3"}) {
		t.Errorf("handled %v", got)
	}
	if tries != 3 {
		t.Errorf("tried %d times", tries)
	}
	dl := b.DeadLetters()
	open, err := dl.List(t.Context(), DeadLetterFilter{Consumer: "c", Status: StatusOpen})
	if err != nil || len(open) != 1 {
		t.Fatalf("dead letters %v, %v", open, err)
	}
	d := open[0]
	if d.Attempts != 3 || len(d.Log) != 3 || d.Error != "bad input" || d.ErrorType != "*errors.errorString" || string(d.Event.Payload) != "1" || d.Event.Topic != "t" {
		t.Errorf("dead letter %+v", d)
	}
	// Replayed to the consumer, it fails again: the second dead letter names the first.
	if _, err := dl.Replay(t.Context(), DeadLetterFilter{IDs: []string{d.ID}}, ToConsumer); err != nil {
		t.Fatal(err)
	}
	if got := consume(t, b, "other", "t", nil); len(got) != 4 {
		t.Errorf("another consumer got %v", got)
	}
	if got := consume(t, b, "c", "t", handle); len(got) != 0 {
		t.Errorf("handled %v", got)
	}
	again, err := dl.List(t.Context(), DeadLetterFilter{Status: StatusOpen})
	if err != nil || len(again) != 1 || again[0].Origin != d.ID || again[0].Replay != 1 {
		t.Fatalf("second dead letter %+v, %v", again, err)
	}
	broken = false
	for range 2 { // the second time nothing is open any more
		if _, err := dl.Replay(t.Context(), DeadLetterFilter{Consumer: "c"}, ToTopic); err != nil {
			t.Fatal(err)
		}
	}
	if got := consume(t, b, "c", "t", handle); !slices.Equal(got, []string{"1"}) {
		t.Errorf("after the mend %v", got)
	}
	if got := consume(t, b, "other", "t", nil); !slices.Equal(got, []string{"1"}) {
		t.Errorf("replay to the topic: another consumer got %v", got)
	}
	if _, err := dl.Get(t.Context(), "nope"); !errors.Is(err, ErrNoSuchDeadLetter) {
		t.Errorf("unknown id: %v", err)
	}
}

func TestHandlerAnswers(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	publishBatch(t, b, numbered("t", 4)...)
	tries := map[string]int{}
	stop := true
	handle := func(e Event) error {
		p := string(e.Payload)
		tries[p]++
		switch p {
		case "0":
			return Skip(errors.New("not for us"))
		case "1":
			if tries[p] == 1 {
				return RetryAfter(time.Microsecond, errors.New("busy"))
			}
		case "2":
			panic("boom")
		case "3":
			if stop {
				return Stop(errors.New("enough"))
			}
		}
		return nil
	}
	c, err := b.Consumer("c", "t", func(_ context.Context, e Event) error { return handle(e) }, fast()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err == nil || err.Error() != "enough" {
		t.Errorf("stop: %v", err)
	}
	letters, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{})
	if err != nil || len(letters) != 2 {
		t.Fatalf("dead letters %v, %v", letters, err)
	}
	if letters[0].Attempts != 1 || letters[0].Error != "not for us" {
		t.Errorf("skipped: %+v", letters[0])
	}
	if letters[1].ErrorType != "panic" || !strings.Contains(letters[1].Stack, "TestHandlerAnswers") {
		t.Errorf("panicked: %+v", letters[1])
	}
	if tries["0"] != 1 || tries["1"] != 2 || tries["2"] != 3 {
		t.Errorf("tries %v", tries)
	}
	stop = false
	if got := consume(t, b, "c", "t", nil); !slices.Equal(got, []string{"3"}) {
		t.Errorf("after the stop %v", got)
	}
}

func TestSecondInstanceFencesTheFirst(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	publishBatch(t, b, numbered("t", 3)...)
	var c1 *Consumer
	c1, err := b.Consumer("c", "t", func(_ context.Context, e Event) error {
		if string(e.Payload) == "1" { // a twin starts while this one handles
			if got := consume(t, b, "c", "t", nil); len(got) == 0 {
				t.Error("the second instance got nothing")
			}
		}
		return nil
	}, fast(WithCheckpointEvery(1, time.Hour))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c1.Run(t.Context()); !errors.Is(err, ErrFenced) {
		t.Errorf("first instance: %v", err)
	}
}

// TestEventThatKillsTheProcess abandons the consumer in the handler as a crash does: nothing more is written.
func TestEventThatKillsTheProcess(t *testing.T) {
	synctest.Test(t, eventThatKills)
}

func eventThatKills(t *testing.T) {
	b, st := newTestBus(t)
	publishBatch(t, b, numbered("t", 5)...)
	handled := map[string]bool{}
	deaths := 0
	for range 20 {
		dead := false
		doomed := store.WithFaults(st, func(store.Op) store.Fault {
			if dead {
				return store.FailBefore
			}
			return store.None
		})
		db, err := Open(t.Context(), Config{Workspace: OnStore(doomed)})
		if err != nil {
			t.Fatal(err)
		}
		c, err := db.Consumer("c", "t", func(_ context.Context, e Event) error {
			if string(e.Payload) == "3" {
				dead = true
				return errors.New("killed")
			}
			handled[string(e.Payload)] = true
			return nil
		}, fast()...)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); err == nil {
			break
		}
		deaths++
	}
	if len(handled) != 4 {
		t.Errorf("handled %v", handled)
	}
	letters, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{})
	if err != nil || len(letters) != 1 || string(letters[0].Event.Payload) != "3" || letters[0].ErrorType != "crashed" {
		t.Errorf("dead letters %+v, %v", letters, err)
	}
	if deaths < 3 || deaths > 6 {
		t.Errorf("the process died %d times", deaths)
	}
}

func TestDuplicatesAreHandledOnce(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	publishBatch(t, b, Message{ID: "m1", Topic: "t", Payload: []byte("a")})
	publishBatch(t, b, Message{ID: "m1", Topic: "t", Payload: []byte("a")}, Message{ID: "m2", Topic: "t", Payload: []byte("b")})
	if got := consume(t, b, "c", "t", nil, WithMaxEvents(1)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("first run %v", got)
	}
	// The window is rebuilt by the second run.
	if got := consume(t, b, "c", "t", nil); !slices.Equal(got, []string{"b"}) {
		t.Errorf("second run %v", got)
	}
	// Also from versions that are done.
	publishBatch(t, b, Message{ID: "m2", Topic: "t", Payload: []byte("b")}, Message{ID: "m3", Topic: "t", Payload: []byte("c")})
	if got := consume(t, b, "c", "t", nil); !slices.Equal(got, []string{"c"}) {
		t.Errorf("third run %v", got)
	}
	if got := consume(t, b, "few", "t", nil, WithDedupWindow(1)); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("with a window of one %v", got)
	}
	if got := consume(t, b, "all", "t", nil, WithDedupWindow(0)); !slices.Equal(got, []string{"a", "a", "b", "b", "c"}) {
		t.Errorf("without a window %v", got)
	}
}

func TestFilterMayOnlyChangeOnPurpose(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	publishBatch(t, b, numbered("a", 1)...)
	consume(t, b, "c", "a", nil)
	c, err := b.Consumer("c", "a,b", func(context.Context, Event) error { return nil }, fast()...)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, ErrFilterChanged) {
		t.Errorf("another filter: %v", err)
	}
	publishBatch(t, b, numbered("b", 1)...)
	if got := consume(t, b, "c", "b , a,a", nil, WithChangedFilter()); len(got) != 1 {
		t.Errorf("changed on purpose: %v", got)
	}
}

func TestSortedEventsInBoundedMemory(t *testing.T) {
	t.Parallel()
	const n = 5000
	source := func(yield func(Event, error) bool) {
		for i := range n {
			e := Event{Message: Message{ID: fmt.Sprint(i), Payload: []byte("p")}, ProducerID: "p", ProducerSeq: int64((i * 7919) % n)}
			if !yield(e, nil) {
				return
			}
		}
	}
	for _, limit := range []int{100, 999, n, 10 * n} {
		next := int64(0)
		for e, err := range sortedEvents(source, limit, sortBytes) {
			if err != nil {
				t.Fatal(err)
			}
			if e.ProducerSeq != next || string(e.Payload) != "p" {
				t.Fatalf("limit %d: event %d is %+v", limit, next, e)
			}
			next++
		}
		if next != n {
			t.Errorf("limit %d: %d events", limit, next)
		}
	}
}
