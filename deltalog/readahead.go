package deltalog

import (
	"context"
	"iter"
	"runtime"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/semaphore"
)

// What one source may have decoded beyond what was taken from it. A single larger batch is let through.
const (
	aheadBytes   = 16 << 20
	aheadBatches = 16
)

// maxAhead is how many sources are read at once at most, however many cores there are: each may hold aheadBytes.
const maxAhead = 8

// Source is one part of a sequence of batches, such as a data file. Key is what its reader wants to know about it.
type Source[K any] struct {
	Key     K
	Batches func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error]
}

// Failed is a source that gives only an error.
func Failed[K any](key K, err error) Source[K] {
	return Source[K]{key, func(context.Context) iter.Seq2[arrow.RecordBatch, error] {
		return func(yield func(arrow.RecordBatch, error) bool) { yield(nil, err) }
	}}
}

// ReadAhead yields the batches of sources, one source after the other, while the next ones are read by further goroutines: as many as there
// are cores, at most 8, each up to 16 MiB ahead. The first error, in the order of the sources, ends it, as does yield with false, or ctx
// with its error. sources is run by a goroutine too; none is left when ReadAhead returns. A batch is valid until the next one, unless retained.
func ReadAhead[K any](ctx context.Context, sources iter.Seq[Source[K]], yield func(K, arrow.RecordBatch, error) bool) {
	inner, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	streams := make(chan *stream[K], min(runtime.GOMAXPROCS(0), maxAhead)-1) // the planner holds one more
	running.Go(func() {
		defer close(streams)
		for source := range sources {
			s := &stream[K]{source: source, batches: make(chan result, aheadBatches), room: semaphore.NewWeighted(aheadBytes)}
			running.Go(func() { s.run(inner) })
			select {
			case streams <- s:
			case <-inner.Done():
				return
			}
		}
	})
	var none K
	for {
		s, ok, err := receive(ctx, streams)
		if err != nil {
			yield(none, nil, err)
		}
		if err != nil || !ok || !s.drain(ctx, yield) {
			return
		}
	}
}

// receive takes the next value, but nothing once ctx is done.
func receive[T any](ctx context.Context, c <-chan T) (v T, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return v, false, err
	}
	select {
	case v, ok = <-c:
		if ctx.Err() == nil { // else what ended may have ended for that
			return v, ok, nil
		}
	case <-ctx.Done():
	}
	return v, false, ctx.Err()
}

// stream is a source that is being read.
type stream[K any] struct {
	source  Source[K]
	batches chan result
	room    *semaphore.Weighted // in bytes, for what batches holds
}

type result struct {
	rec  arrow.RecordBatch
	err  error
	size int64
}

// run reads the source into the channel, until its end, an error, or the end of ctx.
func (s *stream[K]) run(ctx context.Context) {
	defer close(s.batches)
	for rec, err := range s.source.Batches(ctx) {
		r := result{rec, err, 0}
		if rec != nil {
			r.size = min(sizeOf(rec), aheadBytes)
		}
		if s.room.Acquire(ctx, r.size) != nil {
			return
		}
		if rec != nil {
			rec.Retain()
		}
		select {
		case s.batches <- r:
		case <-ctx.Done():
			return // the batch is left to the garbage collector, as are those in the channel
		}
		if err != nil {
			return
		}
	}
}

func sizeOf(rec arrow.RecordBatch) int64 {
	size := uint64(0)
	for _, c := range rec.Columns() {
		size += c.Data().SizeInBytes()
	}
	return int64(size)
}

// drain yields what the source gives and reports whether to go on with the next one.
func (s *stream[K]) drain(ctx context.Context, yield func(K, arrow.RecordBatch, error) bool) bool {
	for {
		r, ok, err := receive(ctx, s.batches)
		if err != nil {
			yield(s.source.Key, nil, err)
			return false
		}
		if !ok {
			return true
		}
		s.room.Release(r.size)
		more := yield(s.source.Key, r.rec, r.err)
		if r.rec != nil {
			r.rec.Release()
		}
		if !more || r.err != nil {
			return false
		}
	}
}
