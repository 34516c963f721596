package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
)

// ErrInjected is what a fault makes an operation fail with.
var ErrInjected = errors.New("injected fault")

// Fault is what happens to an operation.
type Fault int

// The faults.
const (
	// None lets the operation through.
	None Fault = iota
	// FailBefore fails it without doing it.
	FailBefore
	// FailAfter does it and reports that it failed.
	FailAfter
	// SyncFailed fails a Put as a failed fsync does: nothing became visible, and the error matches ErrSyncFailed.
	SyncFailed
)

// Op is one operation on a store.
type Op struct {
	// Kind is "get", "open", "stat", "list", "put" or "delete".
	Kind string
	Name string
	// N numbers the operations of this store from 1.
	N int
	// IfAbsent is set for a Put that must not replace.
	IfAbsent bool
}

// String is "put name".
func (o Op) String() string {
	if o.IfAbsent {
		return o.Kind + " if absent " + o.Name
	}
	return o.Kind + " " + o.Name
}

// WithFaults wraps s so that hook decides about every operation. hook is called by whoever calls the store, also by several at once; it
// may also just look, or block to delay the operation.
func WithFaults(s Store, hook func(Op) Fault) Store { return &faulty{s: s, hook: hook} }

type faulty struct {
	s    Store
	hook func(Op) Fault
	n    atomic.Int64
}

func (f *faulty) fault(kind, name string, ifAbsent bool) Fault {
	return f.hook(Op{Kind: kind, Name: name, N: int(f.n.Add(1)), IfAbsent: ifAbsent})
}

// do runs op under the fault for it.
func (f *faulty) do(kind, name string, ifAbsent bool, op func() error) error {
	switch f.fault(kind, name, ifAbsent) {
	case FailBefore:
		return fmt.Errorf("%s %s: %w", kind, name, ErrInjected)
	case FailAfter:
		return errors.Join(fmt.Errorf("%s %s: %w (done)", kind, name, ErrInjected), ignoreResult(op()))
	case SyncFailed:
		return fmt.Errorf("%s %s: %w: %w", kind, name, ErrSyncFailed, ErrInjected)
	}
	return op()
}

// ignoreResult drops the outcome of an operation that is reported as failed all the same.
func ignoreResult(error) error { return nil }

func (f *faulty) Get(ctx context.Context, name string) (data []byte, err error) {
	err = f.do("get", name, false, func() error { data, err = f.s.Get(ctx, name); return err })
	return data, err
}

func (f *faulty) Open(ctx context.Context, name string) (file File, err error) {
	if fault := f.fault("open", name, false); fault != None {
		return nil, fmt.Errorf("open %s: %w", name, ErrInjected)
	}
	return f.s.Open(ctx, name)
}

func (f *faulty) Stat(ctx context.Context, name string) (info Info, err error) {
	err = f.do("stat", name, false, func() error { info, err = f.s.Stat(ctx, name); return err })
	return info, err
}

func (f *faulty) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	if fault := f.fault("list", prefix, false); fault != None {
		return func(yield func(Info, error) bool) { yield(Info{}, fmt.Errorf("list %s: %w", prefix, ErrInjected)) }
	}
	return f.s.List(ctx, prefix, startAfter)
}

func (f *faulty) Put(ctx context.Context, name string, data []byte, opts PutOptions) error {
	return f.do("put", name, opts.IfAbsent, func() error { return f.s.Put(ctx, name, data, opts) })
}

func (f *faulty) Delete(ctx context.Context, name string) error {
	return f.do("delete", name, false, func() error { return f.s.Delete(ctx, name) })
}

func (f *faulty) URL(name string) string { return f.s.URL(name) }
