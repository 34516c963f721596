package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestCrashableForgetsTheUnsynced: what a file system may take in a crash is taken, and nothing else.
func TestCrashableForgetsTheUnsynced(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		do      func(d disk) error
		nothing string // of the unsynced survives
		all     string
	}{
		{"entry not synced", func(d disk) error { return write(d, "/r/a", "x", true) }, "", "a=x"},
		{"content not synced", func(d disk) error { return errors.Join(write(d, "/r/a", "x", false), d.syncDir("/r")) }, "a=", "a=x"},
		{"both synced", func(d disk) error { return errors.Join(write(d, "/r/a", "x", true), d.syncDir("/r")) }, "a=x", "a=x"},
		{"directory not synced", func(d disk) error {
			return errors.Join(d.mkdir("/r/d"), write(d, "/r/d/a", "x", true), d.syncDir("/r/d"))
		}, "", "d/a=x"},
		{"link not synced", func(d disk) error {
			return errors.Join(write(d, "/r/t", "x", true), d.syncDir("/r"), d.publishIfAbsent("/r/t", "/r/a"))
		}, "t=x", "a=x"},
		{"rename not synced", func(d disk) error {
			return errors.Join(write(d, "/r/a", "x", true), write(d, "/r/t", "y", true), d.syncDir("/r"), d.rename("/r/t", "/r/a"))
		}, "a=x t=y", "a=y"},
		{"removal not synced", func(d disk) error {
			return errors.Join(write(d, "/r/a", "x", true), d.syncDir("/r"), d.remove("/r/a"))
		}, "a=x", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := NewCrashable()
			if err := c.do(s.disk); err != nil {
				t.Fatal(err)
			}
			for seed, want := range []string{c.nothing, c.all} {
				if got := holds(t, s.Restart(uint64(seed))); got != want {
					t.Errorf("seed %d: %q, want %q", seed, got, want)
				}
			}
			if err := s.Delete(t.Context(), "a"); !errors.Is(err, ErrCrashed) {
				t.Errorf("after the crash: %v", err)
			}
		})
	}
}

func write(d disk, p, data string, sync bool) error {
	f, err := d.create(p)
	if err != nil {
		return err
	}
	if _, err := f.Write([]byte(data)); err != nil {
		return err
	}
	if sync {
		return f.Sync()
	}
	return nil
}

func holds(t *testing.T, s Store) string {
	t.Helper()
	var out []string
	for info, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, info.Name+"="+get(t, s, info.Name))
	}
	return strings.Join(out, " ")
}

// TestLocalSurvivesACrashAnywhere: after a crash at any operation a Put was done if it said so, and is there wholly or not at all; at most its
// temporary file is left.
func TestLocalSurvivesACrashAnywhere(t *testing.T) {
	t.Parallel()
	for n := 0; ; n++ {
		s := NewCrashable()
		s.CrashAfter(n)
		ctx := t.Context()
		first := s.Put(ctx, "a/b/x", []byte("first"), PutOptions{IfAbsent: true})
		second := s.Put(ctx, "a/b/x", []byte("second"), PutOptions{})
		crashed := s.Crashed()
		for seed := range uint64(20) {
			var got []string
			for _, f := range strings.Fields(holds(t, s.Restart(seed))) {
				if !strings.Contains(f, ".tmp=") {
					got = append(got, f)
				}
			}
			want := []string{"[a/b/x=second]"}
			if second != nil {
				want = append(want, "[a/b/x=first]")
			}
			if first != nil {
				want = append(want, "[]")
			}
			if !slices.Contains(want, fmt.Sprint(got)) {
				t.Errorf("crash after %d operations, seed %d: %v, want one of %v", n, seed, got, want)
			}
		}
		if !crashed {
			if n < 10 {
				t.Errorf("only %d operations: is everything synced? %q", n, s.Operations())
			}
			return
		}
	}
}

// TestCrashableIsReproducible: one seed, one outcome.
func TestCrashableIsReproducible(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for seed := range uint64(30) {
		var got [2]string
		for i := range got {
			s := NewCrashable()
			for k := range 6 {
				if err := write(s.disk, fmt.Sprint("/r/f", k), "content", k%2 == 0); err != nil {
					t.Fatal(err)
				}
			}
			got[i] = holds(t, s.Restart(seed))
		}
		if got[0] != got[1] {
			t.Errorf("seed %d: %s, then %s", seed, got[0], got[1])
		}
		seen[got[0]] = true
	}
	if len(seen) < 15 {
		t.Errorf("30 seeds have only %d outcomes", len(seen))
	}
}
