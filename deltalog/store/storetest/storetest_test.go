package storetest

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestCheckLeavesNothing: neither problems in a good store, nor anything of its own, nor less of what was there.
func TestCheckLeavesNothing(t *testing.T) {
	t.Parallel()
	s := store.NewMemory()
	if err := s.Put(t.Context(), "mine", []byte("1"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range Check(t.Context(), s) {
		t.Errorf("%s: %s", p.Check, p.Found)
	}
	for info, err := range s.List(t.Context(), "", "") {
		if err != nil || info.Name != "mine" {
			t.Errorf("left %v, %v", info.Name, err)
		}
	}
}

// broken is a memory store with one fault.
type broken struct {
	store.Store
	put     func(s store.Store, ctx context.Context, name string, data []byte, opts store.PutOptions) error
	listing func(s store.Store, ctx context.Context, prefix, after string) iter.Seq2[store.Info, error]
}

func (b broken) Put(ctx context.Context, name string, data []byte, opts store.PutOptions) error {
	if b.put == nil {
		return b.Store.Put(ctx, name, data, opts)
	}
	return b.put(b.Store, ctx, name, data, opts)
}

func (b broken) List(ctx context.Context, prefix, after string) iter.Seq2[store.Info, error] {
	if b.listing == nil {
		return b.Store.List(ctx, prefix, after)
	}
	return b.listing(b.Store, ctx, prefix, after)
}

// TestBrokenStoresAreFound: each planted fault is found by the check that is for it.
func TestBrokenStoresAreFound(t *testing.T) {
	t.Parallel()
	var looked sync.WaitGroup
	looked.Add(16)
	for want, b := range map[string]broken{
		"put if absent refuses a name that is taken": {put: func(s store.Store, ctx context.Context, name string, data []byte, opts store.PutOptions) error {
			opts.IfAbsent = false // a server that ignores If-None-Match
			return s.Put(ctx, name, data, opts)
		}},
		"one of many racing writers wins, and nobody reads a part": {put: func(s store.Store, ctx context.Context, name string, data []byte, opts store.PutOptions) error {
			if opts.IfAbsent && len(data) == 4096 && strings.HasSuffix(name, "/00000000000000000000.json") { // a gateway that looks first and writes then; all of the racers look before the first writes
				opts.IfAbsent = false
				_, err := s.Stat(ctx, name)
				looked.Done()
				looked.Wait()
				if err == nil {
					return store.ErrExist
				}
			}
			return s.Put(ctx, name, data, opts)
		}},
		"big content": {put: func(s store.Store, ctx context.Context, name string, data []byte, opts store.PutOptions) error {
			opts.IfAbsent = opts.IfAbsent && len(data) < 16<<20 // a client that drops the condition from multipart uploads
			return s.Put(ctx, name, data, opts)
		}},
		"times are kept": {put: func(s store.Store, ctx context.Context, name string, data []byte, opts store.PutOptions) error {
			return s.Put(ctx, name, data, store.PutOptions{IfAbsent: opts.IfAbsent})
		}},
		"list is in the order of bytes, and begins where it is told": {listing: func(s store.Store, ctx context.Context, prefix, _ string) iter.Seq2[store.Info, error] {
			return s.List(ctx, prefix, "")
		}},
		"list of many": {listing: func(s store.Store, ctx context.Context, prefix, after string) iter.Seq2[store.Info, error] {
			return func(yield func(store.Info, error) bool) { // one page, and no other
				n := 0
				for info, err := range s.List(ctx, prefix, after) {
					if n++; n > 1000 || !yield(info, err) {
						return
					}
				}
			}
		}},
		"a context that has ended ends operations": {put: func(s store.Store, ctx context.Context, name string, data []byte, opts store.PutOptions) error {
			return s.Put(context.WithoutCancel(ctx), name, data, opts)
		}},
		"what was written can be removed": {listing: func(store.Store, context.Context, string, string) iter.Seq2[store.Info, error] {
			return func(yield func(store.Info, error) bool) { yield(store.Info{}, errors.New("planted")) }
		}},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			b.Store = store.NewMemory()
			for _, p := range Check(t.Context(), b) {
				if p.Check == want {
					return
				}
			}
			t.Error("not found")
		})
	}
}
