package deltalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestReadAheadIsBoundedInBytes: many large sources hold no more than the limit each, a few at once, while nobody takes.
func TestReadAheadIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	rec := benchRows(t, 2_000, 1024) // some 2 MiB
	size := sizeOf(rec)
	var held, most, opened atomic.Int64
	sources := func(yield func(Source[int]) bool) {
		for i := range 30 {
			s := Source[int]{i, func(context.Context) iter.Seq2[arrow.RecordBatch, error] {
				return func(yield func(arrow.RecordBatch, error) bool) {
					opened.Add(1)
					for range 12 { // more than the limit in bytes, fewer than the limit in batches
						n := held.Add(size)
						for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
						}
						if !yield(rec, nil) {
							return
						}
					}
				}
			}}
			if !yield(s) {
				return
			}
		}
	}
	cores := int64(min(runtime.GOMAXPROCS(0), maxAhead))
	limit := (cores + 1) * (aheadBytes + 2*size) // for each: what lies there, what waits for room, what is being taken
	taken := 0
	ReadAhead(t.Context(), sources, func(i int, _ arrow.RecordBatch, err error) bool {
		if err != nil || i != taken/12 {
			t.Errorf("batch %d is of source %d, %v", taken, i, err)
			return false
		}
		for range 1000 {
			runtime.Gosched() // let those run that read ahead
		}
		taken++
		held.Add(-size)
		return true
	})
	if taken != 30*12 || opened.Load() != 30 {
		t.Errorf("%d batches of %d sources", taken, opened.Load())
	}
	if most.Load() > limit {
		t.Errorf("%d bytes were held at once, more than %d", most.Load(), limit)
	}
}

// TestReadAheadOfOneLargeBatch: a batch beyond the limit comes through.
func TestReadAheadOfOneLargeBatch(t *testing.T) {
	t.Parallel()
	rec := benchRows(t, 10_000, 2*aheadBytes/10_000)
	one := func(context.Context) iter.Seq2[arrow.RecordBatch, error] {
		return func(yield func(arrow.RecordBatch, error) bool) {
			for more := 2; more > 0 && yield(rec, nil); more-- {
			}
		}
	}
	n := 0
	ReadAhead(t.Context(), slices.Values([]Source[int]{{1, one}, {2, one}}), func(_ int, rec arrow.RecordBatch, err error) bool {
		if err == nil && rec.NumRows() == 10_000 {
			n++
		}
		return true
	})
	if n != 4 {
		t.Errorf("%d batches", n)
	}
}

// TestReadAheadErrors: the first error in the order of the sources is the one that comes, though a later source failed before.
func TestReadAheadErrors(t *testing.T) {
	t.Parallel()
	early, late := errors.New("early"), errors.New("late")
	failedLate := make(chan struct{})
	sources := []Source[int]{
		{1, func(context.Context) iter.Seq2[arrow.RecordBatch, error] {
			return func(yield func(arrow.RecordBatch, error) bool) { <-failedLate; yield(nil, early) }
		}},
		{2, func(context.Context) iter.Seq2[arrow.RecordBatch, error] {
			return func(yield func(arrow.RecordBatch, error) bool) { close(failedLate); yield(nil, late) }
		}},
	}
	var got []string
	ReadAhead(t.Context(), slices.Values(sources), func(i int, _ arrow.RecordBatch, err error) bool {
		got = append(got, fmt.Sprint(i, err))
		return true
	})
	if fmt.Sprint(got) != "[1 early]" {
		t.Error(got)
	}
}

// TestScanIsInOrder: the rows of a snapshot of many files come as they would without reading ahead.
func TestScanIsInOrder(t *testing.T) {
	t.Parallel()
	tab, _ := benchTable(t, store.NewMemory())
	defer tab.Close()
	for i := range 8 {
		if _, err := tab.Append(t.Context(), []arrow.RecordBatch{benchRows(t, []int{10_000, 1}[i%2], 20)}, "WRITE"); err != nil {
			t.Fatal(err)
		}
	}
	snap := tab.Cached()
	var want, got []int64
	for add := range snap.FilesIn(nil) {
		for rec, err := range tab.ReadFile(t.Context(), snap, add.DataFile(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, rec.NumRows())
		}
	}
	for rec, err := range tab.Scan(t.Context(), snap, nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rec.NumRows())
	}
	if len(want) != 12 || !slices.Equal(got, want) {
		t.Errorf("batches of %v rows, want %v", got, want)
	}
}
