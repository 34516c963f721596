package deltabus

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// drop removes every file of a table of the default bus.
func drop(t *testing.T, st store.Store, table string) {
	t.Helper()
	for _, name := range filesOf(t, st, table) {
		if err := st.Delete(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	}
}

func filesOf(t *testing.T, st store.Store, table string) (names []string) {
	t.Helper()
	for info, err := range st.List(context.WithoutCancel(t.Context()), "main/deltabus/"+table+"/", "") {
		if err != nil {
			t.Error(err)
			return nil
		}
		names = append(names, info.Name)
	}
	return names
}

// TestDroppedTableEndsAPublisher, with what is not durable reported, and nothing of the table is made again.
func TestDroppedTableEndsAPublisher(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ anew, spool bool }{"gone": {}, "made anew": {anew: true}, "with a spool": {spool: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, err := store.NewLocal(t.TempDir(), true)
			if err != nil {
				t.Fatal(err)
			}
			b, err := Init(t.Context(), Config{Workspace: OnStore(st)})
			if err != nil {
				t.Fatal(err)
			}
			options := []PublisherOption{WithBatches(time.Millisecond, 100, 1<<20), WithRecovery(0)}
			if test.spool {
				options = append(options, WithSpool(filepath.Join(t.TempDir(), "spool.db")))
			}
			p, err := b.Publisher(options...)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Publish(t.Context(), Message{ID: "there", Topic: "t"}); err != nil {
				t.Fatal(err)
			}
			drop(t, st, MessagesTable)
			if test.anew {
				if _, err := Init(t.Context(), Config{Workspace: OnStore(st)}); err != nil {
					t.Fatal(err)
				}
			}
			before := len(filesOf(t, st, MessagesTable))
			_, err = p.Publish(t.Context(), Message{ID: "lost", Topic: "t"})
			var u *UndeliveredError
			if !errors.Is(err, ErrTableDropped) || !errors.As(err, &u) || len(u.Messages) != 1 {
				t.Fatalf("error %v", err)
			}
			if m := u.Messages[0]; m.Message.ID != "lost" || m.Unclear || m.Spooled != test.spool {
				t.Errorf("undelivered %+v", m)
			}
			if !strings.Contains(err.Error(), "main.deltabus.messages: the table was dropped") {
				t.Errorf("error %v", err)
			}
			if _, err := p.Publish(t.Context(), Message{Topic: "t"}); !errors.Is(err, ErrTableDropped) {
				t.Errorf("the next: %v", err)
			}
			if err := p.Close(t.Context()); err != nil {
				t.Errorf("close: %v", err)
			}
			if after := len(filesOf(t, st, MessagesTable)); after != before {
				t.Errorf("%d files, %d before", after, before)
			}
		})
	}
}

// forgetful is a workspace that does not know its tables for a while, as one that starts.
type forgetful struct {
	Workspace
	times atomic.Int64
}

func (w *forgetful) Table(ctx context.Context, name string) (*deltalog.Table, error) {
	if w.times.Add(-1) >= 0 {
		return nil, fmt.Errorf("table %s: %w", name, deltalog.ErrNotTable)
	}
	return w.Workspace.Table(ctx, name)
}

// TestTableThatIsAwayForAMoment ends no publisher.
func TestTableThatIsAwayForAMoment(t *testing.T) {
	t.Parallel()
	var failing atomic.Bool
	st := store.WithFaults(store.NewMemory(), func(op store.Op) store.Fault {
		if op.Kind == "put" && failing.Swap(false) {
			return store.FailBefore // after which the table is looked up again
		}
		return store.None
	})
	w := &forgetful{Workspace: OnStore(st)}
	b, err := Init(t.Context(), Config{Workspace: w})
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Publisher(WithBatches(time.Millisecond, 100, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	w.times.Store(2)
	failing.Store(true)
	if _, err := p.Publish(t.Context(), Message{Topic: "t"}); err != nil {
		t.Error(err)
	}
	if left := w.times.Load(); left >= 0 {
		t.Errorf("the workspace was not asked, %d left", left)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDroppedTableEndsAConsumer, whichever of the three it is and whatever the consumer does at the moment, and not as an expired position.
func TestDroppedTableEndsAConsumer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		table string
		when  string // "start", "handling", "idle"
		fails bool   // the handler
	}{
		"messages at the start":        {table: MessagesTable, when: "start"},
		"messages while it is behind":  {table: MessagesTable, when: "handling"},
		"messages while it is idle":    {table: MessagesTable, when: "idle"},
		"checkpoints at the start":     {table: CheckpointsTable, when: "start"},
		"checkpoints while it handles": {table: CheckpointsTable, when: "handling"},
		"dead letters":                 {table: DeadLettersTable, when: "handling", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, err := store.NewLocal(t.TempDir(), true)
			if err != nil {
				t.Fatal(err)
			}
			b, err := Init(t.Context(), Config{Workspace: OnStore(st)})
			if err != nil {
				t.Fatal(err)
			}
			appendEvents(t, b, event("1", "t", 1))
			appendEvents(t, b, event("2", "t", 2))
			handled := 0
			handler := func(context.Context, Event) error {
				if handled++; handled == 1 && test.when == "handling" || handled == 2 && test.when == "idle" {
					drop(t, st, test.table)
				}
				if test.fails {
					return Skip(errors.New("no"))
				}
				return nil
			}
			c, err := b.Consumer("c", "t", handler, WithCheckpointEvery(1, time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			c.o.idleEvery = time.Millisecond
			if test.when == "start" {
				drop(t, st, test.table)
			}
			err = c.Run(t.Context())
			if !errors.Is(err, ErrTableDropped) || errors.Is(err, ErrPositionExpired) {
				t.Errorf("error %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), "table main.deltabus."+test.table+": the table was dropped") {
				t.Errorf("error %v", err)
			}
			if left := filesOf(t, st, test.table); len(left) > 0 {
				t.Errorf("made again: %v", left)
			}
			if test.table != MessagesTable || test.when != "start" {
				return
			}
			if _, err := b.Consumers(t.Context()); !errors.Is(err, ErrTableDropped) {
				t.Errorf("consumers: %v", err)
			}
		})
	}
}
