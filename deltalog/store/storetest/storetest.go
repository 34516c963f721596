// Package storetest is what a store promises, as checks that every implementation passes: those of package store, a bucket that `doctor --store`
// looks at, and yours. A table is only as safe as its store: a store on which two writers can both win a name loses commits.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TB is what Run needs of a *testing.T, so that a program that only calls Check does not link package testing.
type TB[T any] interface {
	Helper()
	Parallel()
	Errorf(format string, args ...any)
	Context() context.Context
	Run(name string, f func(T)) bool
}

// Run runs every check as a parallel subtest of t, each on an empty store that open makes:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return newMyStore(t) })
//	}
func Run[T TB[T]](t T, open func(T) store.Store) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t T) {
			t.Parallel()
			for _, p := range run(t.Context(), open(t), c) {
				t.Errorf("%s", p.Found)
			}
		})
	}
}

// Problem is a promise that a store does not keep.
type Problem struct {
	// Check names the promise, Found says what was seen instead.
	Check, Found string
}

// Checks is the number of checks that Check makes.
func Checks() int { return len(checks) }

// Check runs every check, one after the other, below a directory of its own in s, which it removes again. No problems: s keeps what a Store
// promises, as far as one process can see. It writes some 30 MB. After ctx has ended what is found says only that.
func Check(ctx context.Context, s store.Store) []Problem {
	root := ".storetest-" + uuid.NewString()
	var found []Problem
	for i, c := range checks {
		found = append(found, run(ctx, store.Sub(s, fmt.Sprintf("%s/%d", root, i)), c)...)
	}
	if err := removeAll(context.WithoutCancel(ctx), s, root+"/"); err != nil {
		found = append(found, Problem{"what was written can be removed", err.Error()})
	}
	return found
}

func removeAll(ctx context.Context, s store.Store, prefix string) error {
	var names []string
	for info, err := range s.List(ctx, prefix, "") {
		if err != nil {
			return err
		}
		names = append(names, info.Name)
	}
	for _, name := range names {
		if err := s.Delete(ctx, name); err != nil && !errors.Is(err, store.ErrNotExist) {
			return err
		}
	}
	return nil
}

// check is one promise. Its function gets an empty store and tells what it finds wrong.
type check struct {
	name string
	run  func(c *checker)
}

func run(ctx context.Context, s store.Store, c check) []Problem {
	k := &checker{ctx: ctx, s: s, name: c.name}
	c.run(k)
	return k.found
}

// checker collects what is wrong. Safe for concurrent use.
type checker struct {
	ctx  context.Context
	s    store.Store
	name string

	mu    sync.Mutex
	found []Problem
}

func (c *checker) errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found = append(c.found, Problem{c.name, fmt.Sprintf(format, args...)})
}

// is says that an operation should have failed with want, or with nothing for nil.
func (c *checker) is(what string, err, want error) {
	if !errors.Is(err, want) {
		c.errorf("%s: got error %v, want %v", what, err, want)
	}
}

func (c *checker) put(name, content string, opts store.PutOptions) {
	c.is("put "+name, c.s.Put(c.ctx, name, []byte(content), opts), nil)
}

// has says what name must hold.
func (c *checker) has(name, content string) {
	data, err := c.s.Get(c.ctx, name)
	switch {
	case err != nil:
		c.errorf("get %s: %v", name, err)
	case string(data) != content:
		c.errorf("get %s: got %s, want %s", name, short(string(data)), short(content))
	}
}

func short(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%d bytes (%q…)", len(s), s[:20])
	}
	return fmt.Sprintf("%q", s)
}

// lists says which names a List must give, in order, parted by blanks.
func (c *checker) lists(prefix, after, want string) {
	var names []string
	for info, err := range c.s.List(c.ctx, prefix, after) {
		if err != nil {
			c.errorf("list %q after %q: %v", prefix, after, err)
			return
		}
		names = append(names, info.Name)
	}
	if got := strings.Join(names, " "); got != want {
		c.errorf("list %q after %q: got %s, want %s", prefix, after, short(got), short(want))
	}
}

// each calls every operation with name and gives what each returns.
func (c *checker) each(ctx context.Context, name string, f func(op string, err error)) {
	_, err := c.s.Get(ctx, name)
	f("get", err)
	_, err = c.s.Stat(ctx, name)
	f("stat", err)
	file, err := c.s.Open(ctx, name)
	if err == nil {
		err = file.Close()
	}
	f("open", err)
	f("delete", c.s.Delete(ctx, name))
}

// readAt reads n bytes of f at off.
func readAt(f store.File, off int64, n int) (string, error) {
	data := make([]byte, n)
	read, err := f.ReadAt(data, off)
	if errors.Is(err, io.EOF) && read == n {
		err = nil
	}
	return string(data[:read]), err
}
