package deltabus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// deadLetterAll has consumer id dead-letter every event of topic t.
func deadLetterAll(t *testing.T, b *Bus, id string) []DeadLetter {
	t.Helper()
	consume(t, b, id, "t", func(e Event) error { return Skip(fmt.Errorf("bad %s", e.ID)) })
	letters, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{Consumer: id, Status: StatusOpen})
	if err != nil {
		t.Fatal(err)
	}
	return letters
}

func TestDeadLetterKeepsTheWholeEvent(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	want := Event{
		Message: Message{
			ID: "m", Topic: "t", Key: "k", Source: "s", Type: "ty", Subject: "su", ContentType: "image/png", Payload: []byte{0xff, 0},
			Headers: map[string]string{"h": "v"}, CorrelationID: "co",
		},
		ProducerID: "p", ProducerSeq: 7, PublishedAt: time.Unix(1_700_000_000, 123_000).UTC(),
	}
	appendEvents(t, b, event("other", "u", 1))
	appendEvents(t, b, want)
	var observed []DeadLetter
	consume(t, b, "c", "t", func(Event) error { return errors.New("invalid \xff") }, WithObserver(Observer{DeadLetter: func(d DeadLetter) { observed = append(observed, d) }}))
	letters := deadLetterAll(t, b, "c")
	if len(letters) != 1 || len(observed) != 1 || observed[0].ID != letters[0].ID {
		t.Fatalf("dead letters %+v, observed %+v", letters, observed)
	}
	d := letters[0]
	got := d.Event
	got.Version, got.Attempt = 0, 0
	if !reflect.DeepEqual(got, want) || d.Event.Version != 2 {
		t.Errorf("event %+v\nwant  %+v", d.Event, want)
	}
	if d.Attempts != 3 || len(d.Log) != 3 || d.Error != "invalid \ufffd" || d.Status != StatusOpen || d.Origin != "" || d.Replay != 0 || !d.StatusAt.IsZero() || d.ReplayMessageID != "" {
		t.Errorf("dead letter %+v", d)
	}
	if again, err := b.DeadLetters().Get(t.Context(), d.ID); err != nil || !reflect.DeepEqual(again, d) {
		t.Errorf("get %+v, %v", again, err)
	}
}

// TestCheckpointBeforeAndAfterADeadLetter: a crash between leaves one event in doubt, the first of the next start.
func TestCheckpointBeforeAndAfterADeadLetter(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	appendEvents(t, b, event("1", "t", 1), event("2", "t", 2), event("bad", "t", 3), event("4", "t", 4))
	var seen []string
	consume(t, b, "c", "t", func(e Event) error {
		if e.ID == "bad" {
			return Skip(errors.New("bad"))
		}
		return nil
	}, WithObserver(Observer{
		Outcome:    func(e Event, _ error) { seen = append(seen, "outcome "+e.ID) },
		Checkpoint: func(c Checkpoint) { seen = append(seen, fmt.Sprintf("checkpoint %d+%d", c.Version, c.Position)) },
		DeadLetter: func(d DeadLetter) { seen = append(seen, "dead "+d.Event.ID) },
	}))
	want := []string{"checkpoint 0+0", "outcome 1", "outcome 2", "outcome bad", "checkpoint 0+2", "dead bad", "checkpoint 0+3", "outcome 4", "checkpoint 1+0"}
	if !slices.Equal(seen, want) {
		t.Errorf("%q\nwant %q", seen, want)
	}
}

func TestDiscardAndReplayByIDAndConsumer(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	publishBatch(t, b, numbered("t", 3)...)
	a, other := deadLetterAll(t, b, "a"), deadLetterAll(t, b, "b")
	if len(a) != 3 || len(other) != 3 {
		t.Fatalf("dead letters %v %v", a, other)
	}
	dl := b.DeadLetters()
	if _, err := dl.Discard(t.Context(), DeadLetterFilter{IDs: []string{a[0].ID, "nope"}}); !errors.Is(err, ErrNoSuchDeadLetter) {
		t.Errorf("an unknown id: %v", err)
	}
	if _, err := dl.Replay(t.Context(), DeadLetterFilter{Consumer: "a"}, "nobody"); err == nil {
		t.Error("an unknown target was accepted")
	}
	if got, err := dl.Discard(t.Context(), DeadLetterFilter{IDs: []string{a[0].ID}}); err != nil || len(got) != 1 || got[0].Status != StatusDiscarded || got[0].StatusAt.IsZero() {
		t.Errorf("discard %+v, %v", got, err)
	}
	if got, err := dl.Replay(t.Context(), DeadLetterFilter{IDs: []string{a[0].ID, a[1].ID}}, ToConsumer); err != nil || len(got) != 1 || got[0].ID != a[1].ID {
		t.Errorf("replay of a discarded one and another %+v, %v", got, err)
	}
	if got, err := dl.Discard(t.Context(), DeadLetterFilter{Consumer: "a"}); err != nil || len(got) != 1 || got[0].ID != a[2].ID {
		t.Errorf("discard of the rest %+v, %v", got, err)
	}
	for status, want := range map[string]int{StatusOpen: 3, StatusDiscarded: 2, StatusReplayed: 1, "": 6} {
		if got, err := dl.List(t.Context(), DeadLetterFilter{Status: status}); err != nil || len(got) != want {
			t.Errorf("%q: %d, %v", status, len(got), err)
		}
	}
	replayed, err := dl.Get(t.Context(), a[1].ID)
	if err != nil {
		t.Fatal(err)
	}
	var got []Event
	consume(t, b, "a", "t", func(e Event) error { got = append(got, e); return nil })
	if len(got) != 1 || got[0].ID != replayed.ReplayMessageID || got[0].DeadLetterID != a[1].ID || got[0].Replay != 1 || string(got[0].Payload) != "1" {
		t.Errorf("replayed %+v", got)
	}
}

// TestReplayOfManyIsOneVersion in the order of the dead letters.
func TestReplayOfManyIsOneVersion(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	publishBatch(t, b, numbered("t", 50)...)
	deadLetterAll(t, b, "c")
	before := b.messages.Cached().Version()
	if _, err := b.DeadLetters().Replay(t.Context(), DeadLetterFilter{Consumer: "c"}, ToTopic); err != nil {
		t.Fatal(err)
	}
	if n := b.messages.Cached().Version() - before; n != 1 {
		t.Errorf("%d versions", n)
	}
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprint(i))
	}
	if got := consume(t, b, "c", "t", nil); !slices.Equal(got, want) {
		t.Errorf("replayed %v", got)
	}
}

// TestCrashBetweenReplayAndStatus: the message is out, the status is not; the next replay adds nothing.
func TestCrashBetweenReplayAndStatus(t *testing.T) {
	t.Parallel()
	b, st := newTestBus(t)
	publishBatch(t, b, numbered("t", 2)...)
	deadLetterAll(t, b, "c")
	crashed, err := Open(t.Context(), Config{Workspace: OnStore(store.WithFaults(st, func(o store.Op) store.Fault {
		if o.Kind == "put" && len(o.Name) > 26 && o.Name[:26] == "main/deltabus/dead_letters" {
			return store.FailBefore
		}
		return store.None
	}))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crashed.DeadLetters().Replay(t.Context(), DeadLetterFilter{Consumer: "c"}, ToConsumer); !errors.Is(err, store.ErrInjected) {
		t.Fatalf("crashed replay: %v", err)
	}
	if got, err := b.DeadLetters().Replay(t.Context(), DeadLetterFilter{Consumer: "c"}, ToConsumer); err != nil || len(got) != 2 {
		t.Fatalf("second replay: %v, %v", got, err)
	}
	if got := consume(t, b, "c", "t", nil, WithDedupWindow(0)); !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("replayed %v", got)
	}
}

// TestReplaysAtOnce: many commands for the same dead letters make one replay of each.
func TestReplaysAtOnce(t *testing.T) {
	t.Parallel()
	b, st := newTestBus(t)
	publishBatch(t, b, numbered("t", 5)...)
	deadLetterAll(t, b, "c")
	var wg sync.WaitGroup
	var replayed atomic.Int64
	for i := range 6 {
		wg.Go(func() {
			b, err := Open(t.Context(), Config{Workspace: OnStore(st)})
			if err == nil {
				to := []ReplayTarget{ToConsumer, ToTopic}[i%2]
				var got []DeadLetter
				got, err = b.DeadLetters().Replay(t.Context(), DeadLetterFilter{Consumer: "c"}, to)
				replayed.Add(int64(len(got)))
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := replayed.Load(); n != 5 {
		t.Errorf("all together say that they replayed %d", n)
	}
	if got := consume(t, b, "c", "t", nil, WithDedupWindow(0)); len(got) != 5 {
		t.Errorf("replayed %v", got)
	}
	if open, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{Status: StatusReplayed}); err != nil || len(open) != 5 {
		t.Errorf("%d replayed, %v", len(open), err)
	}
}

// TestLineageGrows over three failed replays.
func TestLineageGrows(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	publishBatch(t, b, numbered("t", 1)...)
	var ids []string
	for replay := range 4 {
		open := deadLetterAll(t, b, "c")
		if len(open) != 1 || open[0].Replay != replay || replay > 0 && open[0].Origin != ids[replay-1] || string(open[0].Event.Payload) != "0" {
			t.Fatalf("after %d replays: %+v", replay, open)
		}
		ids = append(ids, open[0].ID)
		if _, err := b.DeadLetters().Replay(t.Context(), DeadLetterFilter{IDs: []string{open[0].ID}}, ToConsumer); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(maps.Collect(slices.All(ids))); n != 4 {
		t.Errorf("ids %v", ids)
	}
	// A consumer that comes later passes over all replays.
	if got := consume(t, b, "late", "t", nil); len(got) != 1 {
		t.Errorf("a late consumer got %v", got)
	}
}

// TestDeadLetterWrittenAgain as after a crash before the checkpoint: it adds nothing.
func TestDeadLetterWrittenAgain(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	publishBatch(t, b, numbered("t", 2)...)
	deadLetterAll(t, b, "c")
	stale := stored(t, b, "c")
	back := stale
	back.Version, back.Position = 0, 1 // the first is done, the second is dead but not checkpointed
	if err := b.backend.saveCheckpoint(context.WithoutCancel(t.Context()), stale, back); err != nil {
		t.Fatal(err)
	}
	if letters := deadLetterAll(t, b, "c"); len(letters) != 2 {
		t.Errorf("%d dead letters", len(letters))
	}
}

// TestIDsThatAreHardToNameDirectoriesBy have partitions of their own, on a disk.
func TestIDsThatAreHardToNameDirectoriesBy(t *testing.T) {
	t.Parallel()
	st, err := store.NewLocal(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Init(t.Context(), Config{Workspace: OnStore(st)})
	if err != nil {
		t.Fatal(err)
	}
	publishBatch(t, b, numbered("t", 1)...)
	ids := []string{"a", "a/b", "a%2Fb", "a b=c", "é:?*", "../x", "{%}", "__HIVE_DEFAULT_PARTITION__"}
	for _, id := range ids {
		deadLetterAll(t, b, id)
	}
	if b, err = Open(t.Context(), Config{Workspace: OnStore(st)}); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if letters := deadLetterAll(t, b, id); len(letters) != 1 || letters[0].Consumer != id {
			t.Errorf("%q: %+v", id, letters)
		}
		if c := stored(t, b, id); c.Consumer != id || c.Version != 1 {
			t.Errorf("%q: %+v", id, c)
		}
	}
}
