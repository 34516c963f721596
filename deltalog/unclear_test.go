package deltalog

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// unclearStore loses the answer to some Puts of commits, and does them before, after a while, or not at all.
type unclearStore struct {
	store.Store
	mode string
	late func() error
	lost int
}

func (u *unclearStore) Put(ctx context.Context, name string, data []byte, opts store.PutOptions) error {
	if !opts.IfAbsent || u.lost == 0 {
		return u.Store.Put(ctx, name, data, opts)
	}
	u.lost--
	put := func() error { return u.Store.Put(context.Background(), name, data, opts) }
	switch u.mode {
	case "done":
		_ = put()
	case "done later":
		u.late = put
	}
	return fmt.Errorf("put %s: %w", name, store.ErrUnclear)
}

// Get of a commit whose Put is on its way does not see it; then it arrives.
func (u *unclearStore) Get(ctx context.Context, name string) ([]byte, error) {
	data, err := u.Store.Get(ctx, name)
	if late := u.late; late != nil {
		u.late = nil
		_ = late()
	}
	return data, err
}

// TestLostAnswersAreSettled: whatever became of a commit whose answer was lost, it is there once, and said to be.
func TestLostAnswersAreSettled(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"done", "done later", "not done"} {
		for _, lost := range []int{1, 3} {
			u := &unclearStore{Store: store.NewMemory(), mode: mode}
			tab := createTable(t, u, quiet, TableSpec{})
			u.lost = lost
			c, err := tab.Append(t.Context(), []arrow.RecordBatch{batch(t, tab.Cached().Schema(), id(1))}, "WRITE")
			if err != nil || c.Version != 1 {
				t.Errorf("%s, %d lost: %+v, %v", mode, lost, c, err)
			}
			again, err := Open(t.Context(), u.Store, quiet)
			if err != nil {
				t.Fatal(err)
			}
			if rows := readAll(t, again, again.Cached()); len(rows) != 1 || again.Cached().Version() != 1 {
				t.Errorf("%s, %d lost: %v at version %d", mode, lost, rows, again.Cached().Version())
			}
		}
	}
}

// TestUnclearForGood: a commit that never gets an answer is not said to have failed.
func TestUnclearForGood(t *testing.T) {
	t.Parallel()
	u := &unclearStore{Store: store.NewMemory(), mode: "not done"}
	tab := createTable(t, u, quiet, TableSpec{})
	u.lost = 1000
	if _, err := tab.Append(t.Context(), []arrow.RecordBatch{batch(t, tab.Cached().Schema(), id(1))}, "WRITE"); !errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tab.Append(ctx, []arrow.RecordBatch{batch(t, tab.Cached().Schema(), id(1))}, "WRITE"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
