package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// every is each kind of store, empty.
var every = map[string]func(t *testing.T) Store{
	"local":         func(t *testing.T) Store { return newLocal(t, t.TempDir(), false) },
	"local no sync": func(t *testing.T) Store { return newLocal(t, t.TempDir(), true) },
	"memory":        func(*testing.T) Store { return NewMemory() },
	"sub of local":  func(t *testing.T) Store { return Sub(newLocal(t, t.TempDir(), true), "a/b") },
	"sub of sub":    func(*testing.T) Store { return Sub(Sub(NewMemory(), "a"), "b") },
	"faults":        func(*testing.T) Store { return WithFaults(NewMemory(), func(Op) Fault { return None }) },
}

func newLocal(t *testing.T, dir string, noSync bool) Store {
	t.Helper()
	s, err := NewLocal(dir, noSync)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestConformance is what a Store promises, for every kind of it.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, make := range every {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range conformance {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(t, make(t))
				})
			}
		})
	}
}

var conformance = []struct {
	name string
	run  func(t *testing.T, s Store)
}{
	{"what was put is there", func(t *testing.T, s Store) {
		ctx := t.Context()
		content := []byte("content")
		put(t, s, "x/y/z.json", content, PutOptions{})
		content[0] = 'X' // the store keeps a copy
		if got := get(t, s, "x/y/z.json"); got != "content" {
			t.Errorf("got %q", got)
		}
		info, err := s.Stat(ctx, "x/y/z.json")
		if err != nil || info.Name != "x/y/z.json" || info.Size != 7 || info.ModTime.IsZero() {
			t.Errorf("stat: %+v, %v", info, err)
		}
		f, err := s.Open(ctx, "x/y/z.json")
		if err != nil {
			t.Fatal(err)
		}
		tail := make([]byte, 4)
		if n, err := f.ReadAt(tail, 3); n != 4 || err != nil && err != io.EOF || string(tail) != "tent" || f.Size() != 7 {
			t.Errorf("read at 3: %d %v %q of %d", n, err, tail, f.Size())
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}},
	{"what was got is the caller's", func(t *testing.T, s Store) {
		put(t, s, "x", []byte("abc"), PutOptions{})
		data, err := s.Get(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		data[0] = 'X'
		if got := get(t, s, "x"); got != "abc" {
			t.Errorf("the store's content changed to %q", got)
		}
	}},
	{"put replaces", func(t *testing.T, s Store) {
		put(t, s, "x", []byte("long content"), PutOptions{})
		put(t, s, "x", []byte("short"), PutOptions{})
		if got := get(t, s, "x"); got != "short" {
			t.Errorf("got %q", got)
		}
	}},
	{"an open file outlives its replacement", func(t *testing.T, s Store) {
		put(t, s, "x", []byte("before"), PutOptions{})
		f, err := s.Open(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, "x", []byte("after!"), PutOptions{})
		got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
		if err := errors.Join(err, f.Close()); err != nil || string(got) != "before" {
			t.Errorf("got %q, %v", got, err)
		}
	}},
	{"put if absent", func(t *testing.T, s Store) {
		put(t, s, "x", []byte("first"), PutOptions{IfAbsent: true})
		if err := s.Put(t.Context(), "x", []byte("second"), PutOptions{IfAbsent: true}); !errors.Is(err, ErrExist) {
			t.Errorf("second put: %v", err)
		}
		if got := get(t, s, "x"); got != "first" {
			t.Errorf("got %q", got)
		}
		if got := list(t, s, "", ""); got != "x" {
			t.Errorf("left behind: %s", got)
		}
	}},
	{"empty content", func(t *testing.T, s Store) {
		put(t, s, "x", nil, PutOptions{IfAbsent: true})
		if got := get(t, s, "x"); got != "" {
			t.Errorf("got %q", got)
		}
	}},
	{"modification time", func(t *testing.T, s Store) {
		for _, at := range []time.Time{time.UnixMilli(1_700_000_000_123), time.UnixMilli(1_600_000_000_999)} {
			for _, ifAbsent := range []bool{true, false} {
				name := fmt.Sprint(at.UnixMilli(), ifAbsent)
				put(t, s, name, []byte("x"), PutOptions{IfAbsent: ifAbsent, ModTime: at})
				if info, err := s.Stat(t.Context(), name); err != nil || !info.ModTime.Truncate(time.Millisecond).Equal(at) {
					t.Errorf("%v: %v, %v", at, info.ModTime, err)
				}
				for info, err := range s.List(t.Context(), name, "") {
					if err != nil || !info.ModTime.Truncate(time.Millisecond).Equal(at) {
						t.Errorf("listed %v: %v, %v", at, info.ModTime, err)
					}
				}
			}
		}
	}},
	{"what is not there", func(t *testing.T, s Store) {
		ctx := t.Context()
		put(t, s, "dir/file", nil, PutOptions{})
		for _, name := range []string{"none", "dir", "dir/none", "none/none"} {
			_, getErr := s.Get(ctx, name)
			_, statErr := s.Stat(ctx, name)
			_, openErr := s.Open(ctx, name)
			for _, err := range []error{getErr, statErr, openErr, s.Delete(ctx, name)} {
				if !errors.Is(err, ErrNotExist) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}},
	{"delete", func(t *testing.T, s Store) {
		put(t, s, "x/y", []byte("1"), PutOptions{})
		if err := s.Delete(t.Context(), "x/y"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Stat(t.Context(), "x/y"); !errors.Is(err, ErrNotExist) {
			t.Errorf("stat after delete: %v", err)
		}
		if err := s.Delete(t.Context(), "x"); !errors.Is(err, ErrNotExist) {
			t.Errorf("a directory is no file: %v", err)
		}
		put(t, s, "x/y", []byte("2"), PutOptions{IfAbsent: true})
	}},
	{"list", func(t *testing.T, s Store) {
		// By bytes of the whole name: "a-b" < "a/b" < "a0", although the directory a sorts before a-b.
		for _, name := range []string{"a/b/c", "a/b", "a-b", "a0", "a/c", "b", "_log/1", "é", ".hidden.tmp"} {
			if name == "a/b" {
				continue // a directory, in a store of files
			}
			put(t, s, name, []byte("x"), PutOptions{})
		}
		for _, c := range []struct{ prefix, after, want string }{
			{"", "", ".hidden.tmp _log/1 a-b a/b/c a/c a0 b é"},
			{"a", "", "a-b a/b/c a/c a0"},
			{"a/", "", "a/b/c a/c"},
			{"a/b", "", "a/b/c"},
			{"a/b/", "", "a/b/c"},
			{"a/b/c", "", "a/b/c"},
			{"a", "a-b", "a/b/c a/c a0"},
			{"", "a/b/c", "a/c a0 b é"},
			{"a/", "a/b", "a/b/c a/c"},
			{"a/", "a/b0", "a/c"},
			{"", "z", "é"},
			{"none/", "", ""},
			{"a/none", "", ""},
		} {
			if got := list(t, s, c.prefix, c.after); got != c.want {
				t.Errorf("list %q after %q: %s, want %s", c.prefix, c.after, got, c.want)
			}
		}
		for _, err := range s.List(t.Context(), "", "") {
			if err != nil {
				t.Error(err)
			}
			break // a caller may stop
		}
	}},
	{"names that leave the root are refused", func(t *testing.T, s Store) {
		ctx := t.Context()
		for _, name := range []string{"", "..", "../x", "a/../../x", "a/../x", "/etc/passwd", "./x", "a//b", "a/", `a\b`, "a\x00b"} {
			_, getErr := s.Get(ctx, name)
			_, statErr := s.Stat(ctx, name)
			_, openErr := s.Open(ctx, name)
			for _, err := range []error{s.Put(ctx, name, nil, PutOptions{}), getErr, statErr, openErr, s.Delete(ctx, name)} {
				if !errors.Is(err, fs.ErrInvalid) {
					t.Errorf("%q: %v", name, err)
				}
			}
		}
		if got := list(t, s, "", ""); got != "" {
			t.Errorf("left behind: %s", got)
		}
	}},
	{"one of many wins, and nobody reads a part", func(t *testing.T, s Store) {
		const versions, writers = 20, 8
		var won [versions]atomic.Int64
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				content := bytes.Repeat([]byte{'a' + byte(w)}, 4096)
				for v := range versions {
					err := s.Put(t.Context(), fmt.Sprint("log/", v), content, PutOptions{IfAbsent: true})
					switch {
					case err == nil:
						won[v].Add(1)
					case !errors.Is(err, ErrExist):
						t.Error(err)
					}
					got, err := s.Get(t.Context(), fmt.Sprint("log/", v))
					if err != nil || len(got) != 4096 || bytes.Count(got, got[:1]) != 4096 {
						t.Errorf("version %d: %d bytes, %v", v, len(got), err)
					}
				}
			})
		}
		group.Wait()
		for v := range won {
			if n := won[v].Load(); n != 1 {
				t.Errorf("version %d has %d winners", v, n)
			}
		}
	}},
	{"a context that has ended", func(t *testing.T, s Store) {
		put(t, s, "x", nil, PutOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, getErr := s.Get(ctx, "x")
		_, statErr := s.Stat(ctx, "x")
		_, openErr := s.Open(ctx, "x")
		var listErr error
		for _, err := range s.List(ctx, "", "") {
			listErr = err
		}
		for _, err := range []error{s.Put(ctx, "y", nil, PutOptions{}), getErr, statErr, openErr, listErr, s.Delete(ctx, "x")} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
		if got := list(t, s, "", ""); got != "x" {
			t.Errorf("done all the same: %s", got)
		}
	}},
	{"address", func(t *testing.T, s Store) {
		if u := s.URL("t/a b"); !strings.HasSuffix(u, "t/a%20b") && !strings.HasPrefix(u, "memory:///") {
			t.Errorf("URL %s", u)
		}
	}},
}

func put(t *testing.T, s Store, name string, data []byte, opts PutOptions) {
	t.Helper()
	if err := s.Put(t.Context(), name, data, opts); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s Store, name string) string {
	t.Helper()
	data, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func list(t *testing.T, s Store, prefix, after string) string {
	t.Helper()
	var names []string
	for info, err := range s.List(t.Context(), prefix, after) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	return strings.Join(names, " ")
}
