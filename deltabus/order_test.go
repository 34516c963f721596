package deltabus

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// TestHugeVersionIsSortedInBoundedMemory merges 300,000 events of 300 bytes, of which 5,000 may be in memory.
func TestHugeVersionIsSortedInBoundedMemory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir) // and not parallel: the heap is measured
	t.Setenv("TMP", dir)
	const n, limit = 300_000, 5_000
	payload := bytes.Repeat([]byte("x"), 300)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most := heap(), uint64(0)
	source := func(yield func(Event, error) bool) {
		for i := range n {
			seq := int64(i) * 7919 % n
			e := Event{Message: Message{ID: fmt.Sprint(seq), Payload: payload}, ProducerID: "p", ProducerSeq: seq, PublishedAt: time.Unix(1, 0)}
			if !yield(e, nil) {
				return
			}
		}
	}
	next := int64(0)
	for e, err := range sortedEvents(source, limit, sortBytes) {
		if err != nil {
			t.Fatal(err)
		}
		if e.ProducerSeq != next || len(e.Payload) != len(payload) {
			t.Fatalf("event %d is %+v", next, e)
		}
		if next%50_000 == 0 {
			most = max(most, heap())
		}
		next++
	}
	if next != n {
		t.Errorf("%d events", next)
	}
	if used := int64(most) - int64(before); used > 40<<20 {
		t.Errorf("%d MB of 180 MB were in memory", used>>20)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestSortThatIsLeftEarly leaves no file behind, and one that cannot spill says so.
func TestSortThatIsLeftEarly(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	source := func(yield func(Event, error) bool) {
		for i := range 100 {
			if !yield(Event{ProducerSeq: int64(-i)}, nil) {
				return
			}
		}
	}
	for _, err := range sortedEvents(source, 10, sortBytes) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, err := range sortedEvents(source, 10, sortBytes) {
		if err == nil {
			t.Error("it sorted without a place to spill to")
		}
	}
}

// TestSpilledEventsAreWhole: what goes through the file is what comes in.
func TestSpilledEventsAreWhole(t *testing.T) {
	t.Parallel()
	in := Event{
		Message: Message{
			ID: "m", Topic: "t", Key: "k", Source: "s", Type: "ty", Subject: "su", ContentType: "ct", Payload: []byte{0, 0xff},
			Headers: map[string]string{"": "x", "h": ""}, CorrelationID: "co",
		},
		ProducerID: "p", PublishedAt: time.UnixMicro(1_700_000_000_123_456).UTC(), Version: 9, Replay: 2, DeadLetterID: "d",
	}
	source := func(yield func(Event, error) bool) {
		for i := range 5 {
			in.ProducerSeq = int64(i)
			if !yield(in, nil) {
				return
			}
		}
	}
	var seqs []int64
	for e, err := range sortedEvents(source, 2, sortBytes) {
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, e.ProducerSeq)
		e.ProducerSeq = in.ProducerSeq
		if fmt.Sprintf("%+v", *e) != fmt.Sprintf("%+v", in) {
			t.Errorf("%+v, want %+v", *e, in)
		}
	}
	if !slices.Equal(seqs, []int64{0, 1, 2, 3, 4}) {
		t.Errorf("order %v", seqs)
	}
}

// TestSpilledEventsAreTheSame: what is empty stays apart from what is not there, in memory or not.
func TestSpilledEventsAreTheSame(t *testing.T) {
	t.Parallel()
	source := func(yield func(Event, error) bool) {
		for i := range 6 {
			e := Event{ProducerSeq: int64(i)}
			if i%2 == 0 {
				e.Payload, e.Headers = []byte{}, map[string]string{}
			}
			if !yield(e, nil) {
				return
			}
		}
	}
	for e, err := range sortedEvents(source, 2, sortBytes) {
		if err != nil {
			t.Fatal(err)
		}
		if set := e.ProducerSeq%2 == 0; (e.Payload != nil) != set || (e.Headers != nil) != set {
			t.Errorf("event %d: payload %#v, headers %#v", e.ProducerSeq, e.Payload, e.Headers)
		}
	}
}
