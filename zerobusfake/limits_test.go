package zerobusfake

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestWaitingRowsAreBounded: while the store is stuck, streams are held back at their limit and at the table's; nothing is lost of what
// they sent.
func TestWaitingRowsAreBounded(t *testing.T) {
	t.Parallel()
	const streams, records, size = 8, 40, 1000
	tests := []struct {
		name   string
		limits limits
		bound  int // of what waits, on all streams
	}{
		{"a stream's", limits{stream: 4 * size, table: 1 << 30, group: 1 << 30}, streams * 5 * (size + 100)},
		{"a table's", limits{stream: 1 << 30, table: 10 * size, group: 1 << 30}, 10*size + streams*(size+100)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gate{reached: make(chan struct{}, 1)}
				f := newFixture(t, store.WithFaults(store.NewMemory(), g.hook))
				f.server.limits = tt.limits
				clients := make([]*client, streams)
				for i := range clients {
					clients[i] = f.json()
				}
				g.shut()
				clients[0].send(jsonRecord(0, `{"id":0}`))
				<-g.reached // from now on nothing is taken
				for i, c := range clients {
					for n := range records {
						if i > 0 || n > 0 {
							c.send(jsonRecord(int64(n), fmt.Sprintf(`{"id":%d,"name":"%s"}`, i, strings.Repeat("x", size))))
						}
					}
				}
				synctest.Wait() // whatever can be received has been
				pending := int(f.server.committers[f.table].pending.Load())
				if pending > tt.bound {
					t.Errorf("%d bytes wait, limits %+v", pending, tt.limits)
				}
				if pending < tt.bound/2 {
					t.Errorf("only %d bytes wait: the streams were not held back by a limit, limits %+v", pending, tt.limits)
				}
				g.open()
				for _, c := range clients {
					c.until(records - 1)
				}
				if rows := f.rows(); len(rows) != streams*records {
					t.Errorf("%d rows", len(rows))
				}
				if pending := f.server.committers[f.table].pending.Load(); pending != 0 {
					t.Errorf("%d bytes wait when all is committed", pending)
				}
			})
		})
	}
}

// TestEmptyRecordsCount: rows take room whatever is in them.
func TestEmptyRecordsCount(t *testing.T) {
	t.Parallel()
	r := newTestRows(t, "a BIGINT", "b DECIMAL(10,2)", "c STRING", "d STRUCT<x INT, y ARRAY<INT>>")
	if want := 8 + 16 + 4 + 4 + 4; r.width != want {
		t.Errorf("a row of %d bytes, want %d", r.width, want)
	}
}

// TestBrokenTableLetsHeldBackStreamsEnd: a stream that waits for room in a table that will never commit again ends with the reason.
func TestBrokenTableLetsHeldBackStreamsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gate{reached: make(chan struct{}, 1), answer: store.SyncFailed}
		f := newFixture(t, store.WithFaults(store.NewMemory(), g.hook))
		f.server.limits = limits{stream: 1 << 30, table: 1000, group: 1 << 30}
		first, full, held, late, last := f.json(), f.json(), f.json(), f.json(), f.json()
		g.shut()
		first.send(jsonRecord(0, `{"id":0}`))
		<-g.reached
		full.send(jsonRecord(0, `{"id":1,"name":"`+strings.Repeat("x", 2000)+`"}`))
		synctest.Wait()
		held.send(jsonRecord(0, `{"id":2}`))
		synctest.Wait()
		g.open()
		ends := func(c *client) {
			if acked, err := c.drain(); acked != -1 || err == nil || !strings.Contains(err.Error(), "restart the server") {
				t.Errorf("acknowledged %d, %v", acked, err)
			}
		}
		ends(first)
		ends(full)
		ends(held)
		late.send(jsonRecord(0, `{"id":3,"name":"`+strings.Repeat("x", 2000)+`"}`))
		ends(late) // its rows fill the table for good
		last.send(jsonRecord(0, `{"id":4}`))
		ends(last)
	})
}
