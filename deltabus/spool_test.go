package deltabus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// abandon ends a publisher as a kill would: what is on the spool stays there.
func abandon(t *testing.T, p *Publisher) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var u *UndeliveredError
	if err := p.Close(ctx); err != nil && !errors.As(err, &u) {
		t.Errorf("abandon: %v", err)
	}
}

// TestSpoolResumes: a publisher that ends at any point leaves its messages to the next one: each arrives once, in order.
func TestSpoolResumes(t *testing.T) {
	for _, tc := range []struct {
		name     string
		endpoint bool
		fault    func(*rig)
		heal     func(*rig)
	}{
		{"nothing was sent", false, func(*rig) {}, func(*rig) {}},
		{"the batch was not written", false, func(r *rig) { r.table.before = func(int) error { return errDown } }, func(r *rig) { r.table.before = nil }},
		{"the batch was written, and nobody said so", false, func(r *rig) { r.table.after = func(int) error { return errDown } }, func(r *rig) { r.table.after = nil }},
		{"zerobus committed, and did not acknowledge", true, func(r *rig) { r.endpoint.set(func(e *fakeEndpoint) { e.noAck = true }) }, func(r *rig) { r.endpoint.set(func(e *fakeEndpoint) { e.noAck = false }) }},
		{"zerobus took it, and did nothing", true, func(r *rig) { r.endpoint.set(func(e *fakeEndpoint) { e.stall = true }) }, func(r *rig) { r.endpoint.set(func(e *fakeEndpoint) { e.stall = false }) }},
		{"zerobus was not there", true, func(r *rig) { r.endpoint.set(func(e *fakeEndpoint) { e.gone = true }); r.endpoint.cut() }, func(r *rig) { r.endpoint.set(func(e *fakeEndpoint) { e.gone = false }) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spool := filepath.Join(t.TempDir(), "spool.db")
				r := newRig(t, tc.endpoint, WithSpool(spool))
				id := r.p.ProducerID()
				r.send(ids("a", 3)...)
				r.flush()
				tc.fault(r)
				r.send(ids("b", 3)...)
				<-time.After(6 * time.Second)
				r.send(ids("c", 2)...)
				abandon(t, r.p)
				tc.heal(r)
				sent := r.sent[:3:3]
				undone := r.sent[3:]

				r.p = r.publisher(WithSpool(spool))
				if r.p.ProducerID() != id {
					t.Errorf("producer id %s, want %s", r.p.ProducerID(), id)
				}
				r.sent = sent
				r.send(ids("d", 3)...)
				if seq := r.sent[3].receipt.ProducerSeq; seq != 8 {
					t.Errorf("the next producer_seq is %d, want 8", seq)
				}
				for _, d := range undone { // their deliveries are of the dead process; the messages must be there
					done := &Delivery{done: make(chan struct{}), receipt: d.receipt}
					close(done.done)
					r.sent = append(r.sent, done)
				}
				r.close()
				if got := len(r.table.rows); got != 11 {
					t.Errorf("%d rows, want 11", got)
				}

				r.p = r.publisher0(t, WithSpool(spool))
				if r.p.Buffered() != 0 {
					t.Errorf("%d messages left on the spool", r.p.Buffered())
				}
				if err := r.p.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// publisher0 makes a publisher without an endpoint.
func (r *rig) publisher0(t *testing.T, options ...PublisherOption) *Publisher {
	t.Helper()
	r.endpoint = nil
	return r.publisher(options...)
}

// TestSpoolTrustsTheTxn: a batch that was written is not written again, although its rows are deleted since; and the
// look-up begins at the version that the spool noted.
func TestSpoolTrustsTheTxn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "spool.db")
		r := newRig(t, true, WithSpool(path))
		for range 3 {
			r.send(fmt.Sprint(len(r.sent)))
			<-time.After(markInterval)
		}
		r.endpoint.set(func(e *fakeEndpoint) { e.gone = true })
		r.endpoint.cut()
		r.table.mu.Lock()
		r.table.after = func(int) error { r.table.down = true; return errDown }
		r.table.mu.Unlock()
		r.send("written")
		<-time.After(20 * time.Second)
		abandon(t, r.p)
		r.table.mu.Lock()
		r.table.after, r.table.down = nil, false
		n := len(r.table.rows)
		if n == 0 || r.table.rows[n-1].id != "written" {
			t.Errorf("rows %+v", r.table.rows)
		}
		r.table.rows = r.table.rows[:n-1]
		r.table.ownReads = nil
		r.table.mu.Unlock()
		r.sent = r.sent[:3]
		r.p = r.publisher(WithSpool(path))
		r.endpoint.set(func(e *fakeEndpoint) { e.gone = false })
		r.close()
		if len(r.table.ownReads) == 0 || r.table.ownReads[0].after < 2 {
			t.Errorf("look-ups %+v, want one from a noted version on", r.table.ownReads)
		}
	})
}

func TestSpoolInUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spool.db")
	first, err := openSpool(path, "main.deltabus")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openSpool(path, "main.deltabus"); !errors.Is(err, ErrSpoolInUse) {
		t.Errorf("second open: %v", err)
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := openSpool(path, "main.other"); err == nil {
		t.Error("another bus's spool was accepted")
	}
	again, err := openSpool(path, "main.deltabus")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.close(); err != nil {
		t.Fatal(err)
	}
}

// TestSpoolExpired: what the table may have forgotten is refused, and stays where it is.
func TestSpoolExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "spool.db")
		r := newRig(t, false, WithSpool(path))
		r.table.before = func(int) error { return errDown }
		r.send("old")
		abandon(t, r.p)
		const retention = 30 * 24 * time.Hour
		<-time.After(retention + time.Hour)
		options := defaultPublisherOptions()
		options.spool = path
		for range 2 {
			_, err := newPublisher(publisherConfig{bus: "main.deltabus", table: fakeJournal{r.table}, options: options, retention: retention})
			var expired *SpoolExpiredError
			if !errors.As(err, &expired) || !errors.Is(err, ErrSpoolExpired) || expired.Path != path {
				t.Errorf("open: %v", err)
			}
		}
	})
}

// TestSpoolLimitIsTheTables: what the messages table's properties say decides.
func TestSpoolLimitIsTheTables(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		property string // "": none
		days     int
		refused  bool
	}{
		"as Init makes it, in time":  {"interval 30 days", 29, false},
		"as Init makes it, too late": {"interval 30 days", 31, true},
		"shorter":                    {"interval 2 days", 3, true},
		"longer":                     {"interval 60 days", 59, false},
		"for ever":                   {"", 1000, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			b, err := Init(t.Context(), Config{Workspace: OnStore(store.NewMemory()), Clock: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			const key = "delta.setTransactionRetentionDuration"
			if test.property != b.messages.Cached().Property(key) {
				m := *b.messages.Cached().Metadata()
				m.Configuration = maps.Clone(m.Configuration)
				if m.Configuration[key] = test.property; test.property == "" {
					delete(m.Configuration, key)
				}
				commitRows(t, b, deltalog.Transaction{Operation: "SET TBLPROPERTIES", Metadata: &m})
			}
			path := filepath.Join(t.TempDir(), "spool.db")
			s, err := openSpool(path, DefaultSchema)
			if err != nil {
				t.Fatal(err)
			}
			e := &entry{msg: Message{ID: "id", Topic: "t", Source: "s"}, queued: now, Delivery: Delivery{receipt: Receipt{PublishedAt: now}}}
			if err := errors.Join(s.write([]*entry{e}, s.state), s.close()); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Duration(test.days) * 24 * time.Hour)
			p, err := b.Publisher(WithSpool(path))
			if errors.Is(err, ErrSpoolExpired) != test.refused {
				t.Fatalf("error %v, refused %v", err, test.refused)
			}
			if err == nil {
				err = p.Close(t.Context())
			}
			if err != nil && !test.refused {
				t.Error(err)
			}
		})
	}
}

// TestSpoolKeepsMessages: a message comes back from the spool as it was.
func TestSpoolKeepsMessages(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spool.db")
	s, err := openSpool(path, "b")
	if err != nil {
		t.Fatal(err)
	}
	at := time.UnixMicro(1_234_567).UTC()
	want := Message{
		ID: "id", Topic: "t", Key: "k", Source: "s", Type: "ty", Subject: "su", CorrelationID: "c", ContentType: "image/png", Payload: []byte{0, 1, 0xff},
		Headers: map[string]string{"a": "ü", "b": ""},
	}
	state := s.state
	state.nextSeq, state.lastAt, state.mark = 7, at, mark{seq: 5, version: 9}
	e := &entry{msg: want, queued: at, Delivery: Delivery{receipt: Receipt{ProducerSeq: 6, PublishedAt: at}}}
	if err := s.write([]*entry{e}, state); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s, err = openSpool(path, "b")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if s.state != state {
		t.Errorf("state %+v, want %+v", s.state, state)
	}
	if got := s.left[0]; fmt.Sprint(got.msg) != fmt.Sprint(want) || got.receipt.ProducerSeq != 6 || !got.receipt.PublishedAt.Equal(at) {
		t.Errorf("message %+v", got)
	}
}

// TestSpoolFailure: a spool that cannot be written refuses messages, and what was accepted before is published.
func TestSpoolFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false, WithSpool(filepath.Join(t.TempDir(), "spool.db")))
		r.send("ok")
		r.p.spoolTurn <- struct{}{}
		if err := r.p.spool.db.Close(); err != nil {
			t.Fatal(err)
		}
		<-r.p.spoolTurn
		for range 2 {
			if _, err := r.p.PublishAsync(t.Context(), Message{Topic: "t"}); !errors.Is(err, ErrSpoolFailed) {
				t.Errorf("publish: %v", err)
			}
		}
		r.close()
		if len(r.table.rows) != 1 {
			t.Errorf("%d rows, want 1", len(r.table.rows))
		}
	})
}
