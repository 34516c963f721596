package deltabus

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
)

// compareEvents is the order within one version (docs/design.md, Order).
func compareEvents(a, b *Event) int {
	return cmp.Or(a.PublishedAt.Compare(b.PublishedAt), cmp.Compare(a.ProducerID, b.ProducerID),
		cmp.Compare(a.ProducerSeq, b.ProducerSeq), cmp.Compare(a.ID, b.ID))
}

// Limits of what is sorted in memory; beyond them sorted runs go to a temporary file.
const (
	sortRows  = 50_000
	sortBytes = 64 << 20
)

// sortedEvents yields the events of source in the order of a version, in bounded memory.
func sortedEvents(source iter.Seq2[Event, error], maxRows, maxBytes int) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		var s spiller
		defer s.close()
		var run []Event
		size := 0
		for e, err := range source {
			if err != nil {
				yield(nil, err)
				return
			}
			run = append(run, e)
			if size += eventSize(&e); len(run) >= maxRows || size >= maxBytes {
				if err := s.spill(run); err != nil {
					yield(nil, fmt.Errorf("sort events: %w", err))
					return
				}
				clear(run) // what was spilled is garbage now
				run, size = run[:0], 0
			}
		}
		slices.SortFunc(run, func(a, b Event) int { return compareEvents(&a, &b) })
		if len(s.ends) == 0 {
			for i := range run {
				if !yield(&run[i], nil) {
					return
				}
			}
			return
		}
		s.merge(run, yield)
	}
}

func eventSize(e *Event) int {
	n := 256 + len(e.ID) + len(e.Topic) + len(e.Key) + len(e.Source) + len(e.Type) + len(e.Subject) + len(e.ContentType) +
		len(e.Payload) + len(e.CorrelationID) + len(e.ProducerID)
	for k, v := range e.Headers {
		n += len(k) + len(v) + 32
	}
	return n
}

// spiller keeps sorted runs, one behind the other, in a temporary file.
type spiller struct {
	f       *os.File
	removed bool
	ends    []int64 // of the runs
}

func (s *spiller) spill(run []Event) (err error) {
	slices.SortFunc(run, func(a, b Event) int { return compareEvents(&a, &b) })
	if s.f == nil {
		if s.f, err = os.CreateTemp("", "deltabus-sort-"); err != nil {
			return err
		}
		// Where an open file can lose its name, nothing stays behind when the process is killed.
		s.removed = os.Remove(s.f.Name()) == nil
	}
	w := bufio.NewWriterSize(s.f, 1<<18)
	enc := gob.NewEncoder(w)
	for i := range run {
		e := spilled{run[i], run[i].Payload != nil, run[i].Headers != nil}
		if err := enc.Encode(&e); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	end, err := s.f.Seek(0, io.SeekCurrent)
	s.ends = append(s.ends, end)
	return err
}

// spilled is an event in the file. gob does not tell what is empty from what is not there.
type spilled struct {
	Event      Event
	HasPayload bool
	HasHeaders bool
}

func (s *spilled) event() Event {
	if s.HasPayload && s.Event.Payload == nil {
		s.Event.Payload = []byte{}
	}
	if s.HasHeaders && s.Event.Headers == nil {
		s.Event.Headers = map[string]string{}
	}
	return s.Event
}

func (s *spiller) close() {
	if s.f == nil {
		return
	}
	_ = s.f.Close() // a temporary file: what matters was read
	if !s.removed {
		_ = os.Remove(s.f.Name())
	}
}

// mergeBuffers is shared by the readers of all runs.
const mergeBuffers = 8 << 20

// merge yields the events of all runs and of last, which is in memory.
func (s *spiller) merge(last []Event, yield func(*Event, error) bool) {
	fail := func(err error) { yield(nil, fmt.Errorf("sort events: %w", err)) }
	var sources []func(*Event) error
	start := int64(0)
	for _, end := range s.ends {
		r := bufio.NewReaderSize(io.NewSectionReader(s.f, start, end-start), max(4<<10, mergeBuffers/len(s.ends)))
		dec := gob.NewDecoder(r)
		sources = append(sources, func(e *Event) error {
			var s spilled
			err := dec.Decode(&s)
			*e = s.event()
			return err
		})
		start = end
	}
	sources = append(sources, func(e *Event) error {
		if len(last) == 0 {
			return io.EOF
		}
		*e, last = last[0], last[1:]
		return nil
	})
	var q mergeQueue
	for _, next := range sources {
		item := &mergeItem{next: next}
		if err := item.next(&item.head); errors.Is(err, io.EOF) {
			continue
		} else if err != nil {
			fail(err)
			return
		}
		q = append(q, item)
	}
	heap.Init(&q)
	for len(q) > 0 {
		e := q[0].head
		if !yield(&e, nil) {
			return
		}
		q[0].head = Event{}
		switch err := q[0].next(&q[0].head); {
		case errors.Is(err, io.EOF):
			heap.Pop(&q)
		case err != nil:
			fail(err)
			return
		default:
			heap.Fix(&q, 0)
		}
	}
}

type mergeItem struct {
	head Event
	next func(*Event) error
}

type mergeQueue []*mergeItem

func (q mergeQueue) Len() int           { return len(q) }
func (q mergeQueue) Less(i, j int) bool { return compareEvents(&q[i].head, &q[j].head) < 0 }
func (q mergeQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push is heap.Interface's.
func (q *mergeQueue) Push(x any) { *q = append(*q, x.(*mergeItem)) }

// Pop is heap.Interface's.
func (q *mergeQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}
