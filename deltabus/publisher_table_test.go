package deltabus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// flakyStore fails Puts before or after they happen.
type flakyStore struct {
	store.Store
	mu   sync.Mutex
	fail func(name string) (before, after error)
}

func (f *flakyStore) Put(ctx context.Context, name string, data []byte, opts store.PutOptions) error {
	f.mu.Lock()
	var before, after error
	if f.fail != nil {
		before, after = f.fail(name)
	}
	f.mu.Unlock()
	if before != nil {
		return before
	}
	if err := f.Store.Put(ctx, name, data, opts); err != nil {
		return err
	}
	return after
}

// testBus is a bus in memory.
func testBus(t *testing.T, st store.Store) *Bus {
	t.Helper()
	b, err := Init(t.Context(), Config{Workspace: OnStore(st)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readMessages reads the messages table, in the order of commits.
func readMessages(t *testing.T, b *Bus) []Event {
	t.Helper()
	var out []Event
	table := b.Messages()
	snap, err := table.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for v := int64(1); v <= snap.Version(); v++ {
		c, err := table.ReadCommit(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range c.Actions {
			if a.Add == nil {
				continue
			}
			for rec, err := range table.ReadFile(t.Context(), snap, a.Add.DataFile(), nil) {
				if err != nil {
					t.Fatal(err)
				}
				for i := range int(rec.NumRows()) {
					e, err := messageRow(rec, 0, i)
					if err != nil {
						t.Fatal(err)
					}
					e.Version = v
					out = append(out, e)
				}
			}
		}
	}
	return out
}

func eventRows(events []Event) []row {
	var out []row
	for _, e := range events {
		out = append(out, row{producer: e.ProducerID, seq: e.ProducerSeq, id: e.ID, version: e.Version})
	}
	return out
}

// TestRowsKeepMessages: what is published by batches is what is read, and the commit carries the txn.
func TestRowsKeepMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testBus(t, store.NewMemory())
		p, err := b.Publisher(WithSource("tests"))
		if err != nil {
			t.Fatal(err)
		}
		msgs := []Message{
			{Topic: "a", Payload: []byte(`{"n":1}`), ContentType: "application/json", Key: "k", Type: "ty", Subject: "su", CorrelationID: "co", Headers: map[string]string{"h": "v", "": "x"}},
			{Topic: "b", Payload: []byte{0xff, 0}, Source: "other"},
			{Topic: "c"},
			{Topic: "d", Payload: []byte("x"), ContentType: "image/png"},
		}
		receipts, err := p.Publish(t.Context(), msgs...)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		events := readMessages(t, b)
		if len(events) != len(msgs) {
			t.Fatalf("%d rows", len(events))
		}
		for i, e := range events {
			want := msgs[i]
			want.ID = receipts[i].MessageID
			if want.Source == "" {
				want.Source = "tests"
			}
			if fmt.Sprint(e.Key, e.Type, e.Subject, e.CorrelationID, e.ContentType, e.Headers, e.Topic, e.Source, e.ID) !=
				fmt.Sprint(want.Key, want.Type, want.Subject, want.CorrelationID, want.ContentType, want.Headers, want.Topic, want.Source, want.ID) ||
				!bytes.Equal(e.Payload, want.Payload) || e.ProducerSeq != int64(i) || e.ProducerID != p.ProducerID() || !e.PublishedAt.Equal(receipts[i].PublishedAt) {
				t.Errorf("row %d: %+v\nwant %+v", i, e, want)
			}
		}
		snap, err := b.Messages().Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if txn, ok := snap.Txn(p.ProducerID()); !ok || txn.Version != 3 || txn.LastUpdated == nil {
			t.Errorf("txn %+v, %v", txn, ok)
		}
	})
}

// TestBatchOnFlakyStore: Puts that fail, or that happen and say that they failed, lose nothing and write nothing twice.
func TestBatchOnFlakyStore(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name string
		only string // part of the names that fail
	}{{"log", "_delta_log/"}, {"data", ".parquet"}, {"all", ""}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &flakyStore{Store: store.NewMemory()}
				b := testBus(t, st)
				rnd := rand.New(rand.NewPCG(7, 7)) // used below st.mu
				st.mu.Lock()
				st.fail = func(name string) (before, after error) {
					if strings.Contains(name, tc.only) {
						switch rnd.IntN(3) {
						case 0:
							before = boom
						case 1:
							after = boom
						}
					}
					return before, after
				}
				st.mu.Unlock()
				p, err := b.Publisher(WithBatches(time.Second, 7, 1<<20))
				if err != nil {
					t.Fatal(err)
				}
				var sent []*Delivery
				for i := range 100 {
					d, err := p.PublishAsync(t.Context(), Message{Topic: "t", ID: fmt.Sprint(i)})
					if err != nil {
						t.Fatal(err)
					}
					sent = append(sent, d)
					<-time.After(200 * time.Millisecond)
				}
				if err := p.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := checkRows(eventRows(readMessages(t, b)), sent); err != nil {
					t.Error(err)
				}
				_ = b.Messages().Close()
			})
		})
	}
}

// TestOwnRows: the look-up finds this producer's rows, whichever way it has to read.
func TestOwnRows(t *testing.T) {
	t.Parallel()
	b := testBus(t, store.NewMemory())
	j := &tableJournal{name: "messages", id: b.messages.Cached().Metadata().ID, table: b.messages, clock: time.Now}
	add := func(producer string, from, n int64) {
		var batch []*entry
		for i := range n {
			batch = append(batch, &entry{msg: Message{ID: fmt.Sprint(producer, from+i), Topic: "t", Source: "s"}, Delivery: Delivery{receipt: Receipt{ProducerID: producer, ProducerSeq: from + i}}})
		}
		if err := j.append(t.Context(), producer, batch, -1); err != nil {
			t.Fatal(err)
		}
	}
	add("p1", 0, 3) // version 1
	add("p2", 0, 5) // 2
	add("p1", 3, 2) // 3
	for _, tc := range []struct {
		q    ownQuery
		want string
	}{
		{ownQuery{"p1", -1, 0}, "map[0:true 1:true 2:true 3:true 4:true]"},
		{ownQuery{"p1", 0, 2}, "map[2:true 3:true 4:true]"},
		{ownQuery{"p1", 1, 0}, "map[3:true 4:true]"},
		{ownQuery{"p1", 3, 0}, "map[]"},
		{ownQuery{"p1", 99, 4}, "map[4:true]"}, // a version that is not there: the whole table
		{ownQuery{"p0", -1, 0}, "map[]"},
	} {
		rows, err := j.own(t.Context(), tc.q)
		if err != nil || fmt.Sprint(rows.seqs) != tc.want || rows.upTo != 3 {
			t.Errorf("%+v: %v (up to %d), %v; want %s", tc.q, rows.seqs, rows.upTo, err, tc.want)
		}
	}
	if rows, _ := j.own(t.Context(), ownQuery{"p1", -1, 0}); rows.txn != 4 {
		t.Errorf("txn %d, want 4", rows.txn)
	}
}

// TestAppendAfter: a batch that depends on a look-up is not committed over rows that came after it.
func TestAppendAfter(t *testing.T) {
	t.Parallel()
	b := testBus(t, store.NewMemory())
	j := &tableJournal{name: "messages", id: b.messages.Cached().Metadata().ID, table: b.messages, clock: time.Now}
	msg := func(producer string) []*entry {
		return []*entry{{msg: Message{ID: producer, Topic: "t", Source: "s"}, Delivery: Delivery{receipt: Receipt{ProducerID: producer}}}}
	}
	rows, err := j.own(t.Context(), ownQuery{"p1", -1, 0})
	if err != nil {
		t.Fatal(err)
	}
	other := &tableJournal{name: "messages", id: b.messages.Cached().Metadata().ID, table: b.messages, clock: time.Now}
	if err := other.append(t.Context(), "p2", msg("p2"), -1); err != nil {
		t.Fatal(err)
	}
	if err := j.append(t.Context(), "p1", msg("p1"), rows.upTo); !errors.Is(err, deltalog.ErrConflict) {
		t.Fatalf("append after version %d, over version %d: %v", rows.upTo, rows.upTo+1, err)
	}
	if rows, err = j.own(t.Context(), ownQuery{"p1", rows.upTo, 0}); err != nil || len(rows.seqs) != 0 {
		t.Fatalf("own rows %+v, %v", rows, err)
	}
	if err := j.append(t.Context(), "p1", msg("p1"), rows.upTo); err != nil {
		t.Fatal(err)
	}
	if err := j.append(t.Context(), "p1", msg("p1"), -1); !errors.Is(err, deltalog.ErrTxnAlreadyCommitted) {
		t.Fatalf("the same batch again: %v", err)
	}
}

// TestPlantedPublisherFaults: the checker of these tests sees each fault it is there for.
func TestPlantedPublisherFaults(t *testing.T) {
	t.Parallel()
	done := func(id string, err error) *Delivery {
		d := &Delivery{done: make(chan struct{}), receipt: Receipt{MessageID: id}, err: err}
		close(d.done)
		return d
	}
	for _, tc := range []struct {
		name string
		rows []row
		sent []*Delivery
		want string
	}{
		{"lost", []row{{id: "a"}}, []*Delivery{done("a", nil), done("b", nil)}, "lost"},
		{"twice", []row{{id: "a"}, {id: "a", seq: 1}}, []*Delivery{done("a", nil)}, "2 times"},
		{"order", []row{{id: "a", seq: 1}, {id: "b", seq: 0}}, []*Delivery{done("a", nil), done("b", nil)}, "stands behind"},
		{"refused and there", []row{{id: "a"}}, []*Delivery{done("a", ErrRefused)}, "called refused"},
		{"invented", []row{{id: "a"}}, nil, "published by nobody"},
		{"not done", []row{{id: "a"}}, []*Delivery{{done: make(chan struct{}), receipt: Receipt{MessageID: "a"}}}, "not done"},
		{"well", []row{{id: "a"}, {id: "b", seq: 1}}, []*Delivery{done("a", nil), done("b", nil), done("c", ErrRefused)}, ""},
	} {
		err := checkRows(tc.rows, tc.sent)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
