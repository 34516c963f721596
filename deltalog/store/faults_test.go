package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// TestFaults: what each fault leaves behind, and what it reports.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault Fault
		err   error // nil: success
		left  string
	}{
		{None, nil, "dir/x=content"},
		{FailBefore, ErrInjected, ""},
		{FailAfter, ErrInjected, "dir/x=content"},
		{SyncFailed, ErrSyncFailed, ""},
		{Tear, ErrInjected, "dir/.x.torn.tmp=con"},
		{Drop, nil, ""},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			t.Parallel()
			inner := NewMemory()
			s := WithFaults(inner, func(Op) Fault { return c.fault })
			err := s.Put(t.Context(), "dir/x", []byte("content"), PutOptions{IfAbsent: true})
			if c.err == nil && err != nil || !errors.Is(err, c.err) {
				t.Errorf("put: %v", err)
			}
			left := list(t, inner, "", "")
			if left != "" {
				left += "=" + get(t, inner, left)
			}
			if left != c.left {
				t.Errorf("left %q, want %q", left, c.left)
			}
		})
	}
}

// TestFaultsOfEveryOperation: each kind passes the hook, and fails by it.
func TestFaultsOfEveryOperation(t *testing.T) {
	t.Parallel()
	var seen []string
	s := WithFaults(NewMemory(), func(op Op) Fault {
		seen = append(seen, fmt.Sprint(op.N, " ", op))
		return FailBefore
	})
	ctx := t.Context()
	_, getErr := s.Get(ctx, "x")
	_, openErr := s.Open(ctx, "x")
	_, statErr := s.Stat(ctx, "x")
	var listErr error
	for _, err := range s.List(ctx, "x", "") {
		listErr = err
	}
	for _, err := range []error{getErr, openErr, statErr, listErr, s.Put(ctx, "x", nil, PutOptions{IfAbsent: true}), s.Put(ctx, "x", nil, PutOptions{}), s.Delete(ctx, "x")} {
		if !errors.Is(err, ErrInjected) {
			t.Errorf("got %v", err)
		}
	}
	want := []string{"1 get x", "2 open x", "3 stat x", "4 list x", "5 put if absent x", "6 put x", "7 delete x"}
	if !slices.Equal(seen, want) {
		t.Errorf("seen %q", seen)
	}
}
