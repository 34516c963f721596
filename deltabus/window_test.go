package deltabus

import (
	"fmt"
	"slices"
	"testing"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestOnlyWhatWasHandledIsADuplicate: a message that was in the table before a consumer, or its filter, began was not handled by it. Published
// again under its id it is delivered.
func TestOnlyWhatWasHandledIsADuplicate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second []ConsumerOption
		filters       [2]string
		before        []string // topics of the message's earlier rows, a version each
		between       bool     // whether the second run comes after a run of its own filter
		want          int
	}{
		"handled":                        {nil, nil, [2]string{"a", "a"}, []string{"a"}, false, 0},
		"from latest":                    {[]ConsumerOption{WithFrom(Latest())}, nil, [2]string{"a", "a"}, []string{"a"}, false, 1},
		"from a version":                 {[]ConsumerOption{WithFrom(FromVersion(2))}, nil, [2]string{"a", "a"}, []string{"a"}, false, 1},
		"another filter":                 {nil, []ConsumerOption{WithChangedFilter()}, [2]string{"b", "a,b"}, []string{"a"}, false, 1},
		"another filter, and once again": {nil, []ConsumerOption{WithChangedFilter()}, [2]string{"b", "a,b"}, []string{"a"}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := newTestBus(t)
			seq := int64(0)
			publish := func(topic string) {
				appendEvents(t, b, event("m", topic, seq))
				seq++
			}
			for _, topic := range c.before {
				publish(topic)
			}
			consume(t, b, "c", c.filters[0], nil, c.first...)
			if c.between {
				consume(t, b, "c", c.filters[1], nil, c.second...)
			}
			publish("a")
			if got := consume(t, b, "c", c.filters[1], nil, c.second...); len(got) != c.want {
				t.Errorf("delivered %v, expected %d", got, c.want)
			}
			publish("a")
			if got := consume(t, b, "c", c.filters[1], nil); len(got) != 0 {
				t.Errorf("delivered again: %v", got)
			}
		})
	}
}

// TestFilterChangesWithinAVersion: of the rows before the position only those that the old filter wanted were handled.
func TestFilterChangesWithinAVersion(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	appendEvents(t, b, event("x", "b", 0), event("a1", "a", 1), event("a2", "a", 2))
	if got := consume(t, b, "c", "a", nil, WithMaxEvents(1)); !slices.Equal(got, []string{"a1"}) {
		t.Fatalf("first run %v", got)
	}
	appendEvents(t, b, event("x", "b", 3))
	if got := consume(t, b, "c", "a,b", nil, WithChangedFilter()); !slices.Equal(got, []string{"a2", "x"}) {
		t.Errorf("second run %v", got)
	}
}

// TestWindowIsReadBackOverManyVersions: a start remembers more than a thousand versions of one event each.
func TestWindowIsReadBackOverManyVersions(t *testing.T) {
	t.Parallel()
	b, _ := newTestBus(t)
	const n = 1200
	appendEvents(t, b, event("first", "a", 0))
	for i := int64(1); i < n; i++ {
		appendEvents(t, b, event(fmt.Sprint("e", i), "a", i))
	}
	if got := consume(t, b, "c", "a", nil); len(got) != n {
		t.Fatalf("%d events", len(got))
	}
	appendEvents(t, b, event("first", "a", n), event("new", "a", n+1))
	if got := consume(t, b, "c", "a", nil); !slices.Equal(got, []string{"new"}) {
		t.Errorf("delivered %v", got)
	}
}

// TestStartReadsBackOnce: what a start reads back grows with the versions, not with their square. Each costs its commit, its file, and little else.
func TestStartReadsBackOnce(t *testing.T) {
	t.Parallel()
	reads := func(n int64) (ops int) {
		st := store.NewMemory()
		b, err := Init(t.Context(), Config{Workspace: OnStore(st)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			appendEvents(t, b, event(fmt.Sprint("e", i), "a", i))
		}
		consume(t, b, "c", "a", nil)
		counted, err := Open(t.Context(), Config{Workspace: OnStore(store.WithFaults(st, func(store.Op) store.Fault {
			ops++
			return store.None
		}))})
		if err != nil {
			t.Fatal(err)
		}
		ops = 0
		if got := consume(t, counted, "c", "a", nil); len(got) != 0 {
			t.Fatalf("delivered %v", got)
		}
		return ops
	}
	few, many := reads(20), reads(220)
	if each := float64(many-few) / 200; each > 6 {
		t.Errorf("%d operations for 20 versions, %d for 220: %.1f for each", few, many, each)
	}
}
