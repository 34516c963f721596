package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
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
	// Tear fails a Put half way, as a crash does: half of the content is left under the name of a temporary file (Torn).
	Tear
	// Drop reports success and does nothing, as a disk that lies about its cache does in a power cut: what a table loses by it is what
	// audits must find. Only a Put and a Delete can be dropped.
	Drop
)

// String names the fault.
func (f Fault) String() string {
	names := []string{"none", "fail before", "fail after", "sync failed", "tear", "drop"}
	if f < 0 || int(f) >= len(names) {
		return fmt.Sprintf("fault(%d)", int(f))
	}
	return names[f]
}

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
// may also just look, or block to delay the operation. A fault that an operation cannot have (a Get that tears) is FailBefore.
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
func (f *faulty) do(fault Fault, kind, name string, op func() error) error {
	switch fault {
	case None:
		return op()
	case FailAfter:
		if err := op(); err != nil {
			return fmt.Errorf("%s %s: %w: %w", kind, name, ErrInjected, err)
		}
		return fmt.Errorf("%s %s: %w (done)", kind, name, ErrInjected)
	case SyncFailed:
		return fmt.Errorf("%s %s: %w: %w", kind, name, ErrSyncFailed, ErrInjected)
	}
	return fmt.Errorf("%s %s: %w", kind, name, ErrInjected)
}

func (f *faulty) Get(ctx context.Context, name string) (data []byte, err error) {
	err = f.do(f.fault("get", name, false), "get", name, func() error { data, err = f.s.Get(ctx, name); return err })
	return data, err
}

func (f *faulty) Open(ctx context.Context, name string) (File, error) {
	if fault := f.fault("open", name, false); fault != None {
		return nil, fmt.Errorf("open %s: %w", name, ErrInjected)
	}
	return f.s.Open(ctx, name)
}

func (f *faulty) Stat(ctx context.Context, name string) (info Info, err error) {
	err = f.do(f.fault("stat", name, false), "stat", name, func() error { info, err = f.s.Stat(ctx, name); return err })
	return info, err
}

func (f *faulty) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	if fault := f.fault("list", prefix, false); fault != None {
		return func(yield func(Info, error) bool) { yield(Info{}, fmt.Errorf("list %s: %w", prefix, ErrInjected)) }
	}
	return f.s.List(ctx, prefix, startAfter)
}

// Torn is the name under which the Tear of a Put leaves its half.
func Torn(name string) string { return path.Join(path.Dir(name), "."+path.Base(name)+".torn.tmp") }

func (f *faulty) Put(ctx context.Context, name string, data []byte, opts PutOptions) error {
	switch fault := f.fault("put", name, opts.IfAbsent); fault {
	case Tear:
		err := f.s.Put(ctx, Torn(name), data[:len(data)/2], PutOptions{ModTime: opts.ModTime})
		return errors.Join(fmt.Errorf("put %s: %w (torn)", name, ErrInjected), err)
	case Drop:
		return nil
	default:
		return f.do(fault, "put", name, func() error { return f.s.Put(ctx, name, data, opts) })
	}
}

func (f *faulty) Delete(ctx context.Context, name string) error {
	fault := f.fault("delete", name, false)
	if fault == Drop {
		return nil
	}
	return f.do(fault, "delete", name, func() error { return f.s.Delete(ctx, name) })
}

func (f *faulty) URL(name string) string { return f.s.URL(name) }
