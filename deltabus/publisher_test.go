package deltabus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
)

// rig is a publisher over the fakes.
type rig struct {
	t        *testing.T
	table    *fakeTable
	endpoint *fakeEndpoint // nil: none
	p        *Publisher
	sent     []*Delivery
}

func newRig(t *testing.T, withEndpoint bool, options ...PublisherOption) *rig {
	t.Helper()
	r := &rig{t: t, table: &fakeTable{}}
	if withEndpoint {
		r.endpoint = startEndpoint(r.table)
	}
	r.p = r.publisher(options...)
	return r
}

func (r *rig) publisher(options ...PublisherOption) *Publisher {
	r.t.Helper()
	cfg := publisherConfig{bus: "main.deltabus", table: fakeJournal{r.table}, options: defaultPublisherOptions()}
	if r.endpoint != nil {
		cfg.endpoint = r.endpoint.opener()
	}
	for _, o := range options {
		if err := o(&cfg.options); err != nil {
			r.t.Fatal(err)
		}
	}
	p, err := newPublisher(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func (r *rig) send(ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		d, err := r.p.PublishAsync(r.t.Context(), Message{ID: id, Topic: "t", Payload: []byte("x")})
		if err != nil {
			r.t.Fatalf("publish %s: %v", id, err)
		}
		r.sent = append(r.sent, d)
	}
}

// close closes the publisher, stops the endpoint and runs the checker.
func (r *rig) close() {
	r.t.Helper()
	var refused *RefusedError
	if err := r.p.Close(r.t.Context()); err != nil && !errors.As(err, &refused) {
		r.t.Errorf("close: %v", err)
	}
	r.stop()
	checkTable(r.t, r.table, r.sent)
}

func (r *rig) flush() {
	r.t.Helper()
	if err := r.p.Flush(r.t.Context()); err != nil {
		r.t.Errorf("flush: %v", err)
	}
}

func (r *rig) stop() {
	if r.endpoint != nil {
		r.endpoint.stop()
	}
}

func ids(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}

func TestPublishThroughZerobus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		receipts, err := r.p.Publish(t.Context(), Message{Topic: "a.b"}, Message{Topic: "a.c", ID: "mine"})
		if err != nil {
			t.Fatal(err)
		}
		for i, rc := range receipts {
			if rc.ProducerID != r.p.ProducerID() || rc.ProducerSeq != int64(i) || rc.Path != PathZerobus || rc.MessageID == "" || rc.PublishedAt.IsZero() {
				t.Errorf("receipt %+v", rc)
			}
		}
		if receipts[1].MessageID != "mine" {
			t.Errorf("message id %s", receipts[1].MessageID)
		}
		r.send(ids("x", 2000)...)
		if err := r.p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := r.p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.stop()
		if got := len(r.table.rows); got != 2002 {
			t.Errorf("%d rows", got)
		}
		if r.table.appends != 0 {
			t.Errorf("%d batches written although the endpoint is there", r.table.appends)
		}
	})
}

// TestPublishInBatches: without an endpoint, one commit every interval, or at once when there is enough or a Flush.
func TestPublishInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false, WithBatches(5*time.Second, 10, 1<<20))
		start := time.Now()
		r.send("a", "b")
		if _, err := r.sent[1].Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("batch after %s, want 5 s", took)
		}
		if rc := r.sent[0].Receipt(); rc.Path != PathBatch {
			t.Errorf("receipt %+v", rc)
		}
		start = time.Now()
		r.send(ids("full", 10)...)
		<-r.sent[len(r.sent)-1].Done()
		r.send("flushed")
		if err := r.p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("a full batch and a flush took %s", took)
		}
		r.send("closed")
		r.close()
		if r.table.appends != 4 {
			t.Errorf("%d commits, want 4", r.table.appends)
		}
	})
}

// TestBatchOutcome: whatever a write reports, every message is there once.
func TestBatchOutcome(t *testing.T) {
	boom := errors.New("boom")
	firstTwo := func(n int) error {
		if n < 2 {
			return boom
		}
		return nil
	}
	for name, fault := range map[string]func(*fakeTable){
		"fails before each put": func(f *fakeTable) { f.before = firstTwo },
		"fails after each put":  func(f *fakeTable) { f.after = firstTwo },
		"both":                  func(f *fakeTable) { f.before, f.after = firstTwo, func(n int) error { return firstTwo(n - 2) } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, false)
				fault(r.table)
				for i := range 5 {
					r.send(ids(fmt.Sprintf("m%d-", i), 3)...)
					if err := r.p.Flush(t.Context()); err != nil {
						t.Error(err)
					}
				}
				r.close()
			})
		})
	}
}

// TestSwitch: the endpoint goes away in each way, messages go by batches, and go back when it returns.
func TestSwitch(t *testing.T) {
	for _, tc := range []struct {
		name string
		away func(*fakeEndpoint)
		back func(*fakeEndpoint)
	}{
		{"connections refused", func(e *fakeEndpoint) { e.set(func(e *fakeEndpoint) { e.gone = true }); e.cut() }, func(e *fakeEndpoint) { e.set(func(e *fakeEndpoint) { e.gone = false }) }},
		{"streams refused for good", func(e *fakeEndpoint) { e.set(func(e *fakeEndpoint) { e.refuse = codes.NotFound }); e.cut() }, func(e *fakeEndpoint) { e.set(func(e *fakeEndpoint) { e.refuse = codes.OK }) }},
		{"commits but does not acknowledge", func(e *fakeEndpoint) { e.set(func(e *fakeEndpoint) { e.noAck = true }) }, func(e *fakeEndpoint) { e.set(func(e *fakeEndpoint) { e.noAck = false }) }},
		{"takes messages and does nothing", func(e *fakeEndpoint) { e.set(func(e *fakeEndpoint) { e.stall = true }) }, func(e *fakeEndpoint) { e.set(func(e *fakeEndpoint) { e.stall = false }) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, true)
				r.send(ids("before", 5)...)
				if err := r.p.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.send(ids("inflight", 3)...)
				tc.away(r.endpoint)
				for i := range 40 {
					r.send(fmt.Sprintf("away%d", i))
					<-time.After(time.Second)
				}
				batched := 0
				for _, d := range r.sent {
					if d.Receipt().Path == PathBatch {
						batched++
					}
				}
				if batched < 10 && !strings.HasPrefix(tc.name, "commits") { // those are found in the table

					t.Errorf("%d messages went by batches while the endpoint was away", batched)
				}
				r.endpoint.mu.Lock()
				if r.endpoint.opens > 30 {
					t.Errorf("%d streams were opened in 40 s", r.endpoint.opens)
				}
				r.endpoint.mu.Unlock()
				tc.back(r.endpoint)
				for i := range 60 {
					r.send(fmt.Sprintf("back%d", i))
					<-time.After(time.Second)
				}
				if r.p.Path() != PathZerobus {
					t.Errorf("path %s although the endpoint is back", r.p.Path())
				}
				r.send(ids("after", 5)...)
				r.close()
			})
		})
	}
}

// TestQuickRecovery: a server that is back within the recovery time costs no switch and no duplicate.
func TestQuickRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		r.send(ids("a", 5)...)
		r.flush()
		r.endpoint.set(func(e *fakeEndpoint) { e.noAck = true })
		r.send(ids("b", 5)...) // committed, not acknowledged
		synctest.Wait()
		r.endpoint.set(func(e *fakeEndpoint) { e.noAck, e.gone = false, true })
		r.endpoint.cut()
		<-time.After(2 * time.Second)
		r.endpoint.set(func(e *fakeEndpoint) { e.gone = false })
		r.send("c")
		if rc, err := r.sent[10].Wait(t.Context()); err != nil || rc.Path != PathZerobus {
			t.Errorf("receipt %+v, %v", rc, err)
		}
		if r.table.appends != 0 {
			t.Error("a batch was written")
		}
		r.close()
	})
}

// TestLateWriter: a server that was cut off and writes a moment later makes no duplicate.
func TestLateWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		r.endpoint.set(func(e *fakeEndpoint) { e.dieAt["m3"], e.late = true, 700*time.Millisecond })
		r.send(ids("m", 6)...)
		r.close()
	})
}

// TestWriterAfterLookUp: what a server that was cut off writes between the look-up and the batch makes no duplicate.
func TestWriterAfterLookUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		r.send("first")
		r.flush()
		r.endpoint.set(func(e *fakeEndpoint) { e.stall = true })
		r.send("a", "b")
		<-time.After(time.Second)
		wrote := false
		r.table.mu.Lock()
		r.table.afterOwn = func(n int) { // the first look-up is the settling one, the next is the batch's
			if n == 1 && !wrote {
				wrote = true
				r.table.commit([]row{{producer: r.p.ProducerID(), seq: 1, id: "a"}, {producer: r.p.ProducerID(), seq: 2, id: "b"}})
			}
		}
		r.table.mu.Unlock()
		r.endpoint.set(func(e *fakeEndpoint) { e.gone = true })
		r.endpoint.cut()
		r.flush()
		r.endpoint.set(func(e *fakeEndpoint) { e.gone, e.stall = false, false })
		r.close()
		if !wrote {
			t.Error("the batch made no look-up of its own")
		}
	})
}

// TestBrokenEndpoint: an endpoint that accepts streams and fails them all is tried less and less often.
func TestBrokenEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		r.endpoint.set(func(e *fakeEndpoint) { e.broken = true })
		for i := range 300 {
			r.send(fmt.Sprint(i))
			<-time.After(time.Second)
		}
		r.endpoint.mu.Lock()
		if r.endpoint.opens > 25 {
			t.Errorf("%d streams were opened in 5 min", r.endpoint.opens)
		}
		r.endpoint.broken = false
		r.endpoint.mu.Unlock()
		r.close()
	})
}

func TestAnnouncedClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		start := time.Now()
		for i := range 5 {
			r.endpoint.set(func(e *fakeEndpoint) { e.closing = true })
			r.send(ids(fmt.Sprintf("m%d-", i), 3)...)
			if err := r.p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %s", took)
		}
		r.close()
	})
}

// TestRefusedAlone: a message that the server refuses fails alone, with its reason, wherever it stands.
func TestRefusedAlone(t *testing.T) {
	for _, bad := range [][]string{{"m0"}, {"m7"}, {"m9"}, {"m3", "m4"}, {"m0", "m5", "m9"}} {
		t.Run(strings.Join(bad, ","), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, true)
				r.endpoint.set(func(e *fakeEndpoint) {
					for _, id := range bad {
						e.failAt[id] = errors.New("bad " + id)
					}
				})
				msgs := make([]Message, 10)
				for i := range msgs {
					msgs[i] = Message{ID: fmt.Sprintf("m%d", i), Topic: "t"}
				}
				receipts, err := r.p.Publish(t.Context(), msgs...)
				var undelivered *UndeliveredError
				if !errors.As(err, &undelivered) || !errors.Is(err, ErrRefused) || len(undelivered.Messages) != len(bad) {
					t.Fatalf("publish: %v", err)
				}
				for i, u := range undelivered.Messages {
					if u.Message.ID != bad[i] || u.Unclear || !strings.Contains(u.Err.Error(), "bad "+bad[i]) {
						t.Errorf("undelivered %+v", u)
					}
				}
				for i, rc := range receipts {
					d := &Delivery{done: make(chan struct{}), receipt: Receipt{MessageID: msgs[i].ID}}
					if rc.MessageID == "" {
						d.err = ErrRefused
					}
					close(d.done)
					r.sent = append(r.sent, d)
					if (rc.MessageID == "") != strings.Contains(strings.Join(bad, " "), msgs[i].ID) {
						t.Errorf("receipt %d: %+v", i, rc)
					}
				}
				r.close()
				if got := len(r.table.rows); got != 10-len(bad) {
					t.Errorf("%d rows", got)
				}
			})
		})
	}
}

// TestTableAway: while neither the endpoint nor the table is there, nothing is lost, and nothing is called durable.
func TestTableAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		r.send(ids("a", 3)...)
		r.flush()
		r.endpoint.set(func(e *fakeEndpoint) { e.noAck = true })
		r.send(ids("b", 3)...)
		synctest.Wait()
		r.table.mu.Lock()
		r.table.down = true
		r.table.mu.Unlock()
		r.endpoint.set(func(e *fakeEndpoint) { e.noAck, e.gone = false, true })
		r.endpoint.cut()
		r.send(ids("c", 3)...)
		<-time.After(time.Minute)
		if r.p.Buffered() != 6 {
			t.Errorf("%d buffered, want 6", r.p.Buffered())
		}
		r.table.mu.Lock()
		r.table.down = false
		r.table.mu.Unlock()
		r.close()
	})
}

// TestCloseGivesUp: Close with an ended context reports what is not durable, and what may be.
func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		defer r.stop()
		r.send("ok")
		r.flush()
		r.endpoint.set(func(e *fakeEndpoint) { e.stall = true })
		r.send("stuck1", "stuck2")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := r.p.Close(ctx)
		var u *UndeliveredError
		if !errors.As(err, &u) || len(u.Messages) != 2 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("close: %v", err)
		}
		for i, m := range u.Messages {
			if m.Message.ID != fmt.Sprintf("stuck%d", i+1) || !m.Unclear || m.Spooled || m.ProducerSeq != int64(i+1) {
				t.Errorf("undelivered %+v", m)
			}
		}
		if _, err := r.p.PublishAsync(t.Context(), Message{Topic: "t"}); !errors.Is(err, ErrPublisherClosed) {
			t.Errorf("publish after close: %v", err)
		}
	})
}

func TestBufferBound(t *testing.T) {
	t.Run("block", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, true, WithBuffer(5, 1<<20), WithRecovery(time.Hour))
			r.endpoint.set(func(e *fakeEndpoint) { e.stall = true })
			r.send(ids("a", 5)...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := r.p.PublishAsync(ctx, Message{Topic: "t"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("publish into a full buffer: %v", err)
			}
			r.endpoint.set(func(e *fakeEndpoint) { e.stall = false })
			r.send(ids("b", 20)...)
			r.close()
		})
	})
	t.Run("fail", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, false, WithBuffer(5, 1<<20), FailWhenFull())
			r.send(ids("a", 3)...)
			if _, err := r.p.Publish(t.Context(), Message{Topic: "t"}, Message{Topic: "t"}, Message{Topic: "t"}); !errors.Is(err, ErrBufferFull) {
				t.Errorf("publish: %v", err)
			}
			r.send(ids("b", 2)...)
			r.close()
		})
	})
	t.Run("batches do not wait when the buffer is full", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, false, WithBuffer(5, 1<<20))
			start := time.Now()
			r.send(ids("a", 50)...)
			if took := time.Since(start); took != 0 {
				t.Errorf("took %s", took)
			}
			r.close()
		})
	})
}

func TestInvalidMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false)
		for name, m := range map[string]Message{
			"no topic":        {},
			"bad topic":       {Topic: "a..b"},
			"reserved header": {Topic: "t", Headers: map[string]string{HeaderReplayTo: "x"}},
			"bad UTF-8":       {Topic: "t", Key: "\xff"},
			"bad header":      {Topic: "t", Headers: map[string]string{"a": "\xff"}},
			"too large":       {Topic: "t", Payload: make([]byte, 11<<20)},
		} {
			if _, err := r.p.Publish(t.Context(), Message{Topic: "good"}, m); !errors.Is(err, ErrInvalidMessage) {
				t.Errorf("%s: %v", name, err)
			}
		}
		r.close()
		if len(r.table.rows) != 0 {
			t.Errorf("%d rows of refused calls", len(r.table.rows))
		}
	})
}

// TestPublishedAtNeverGoesBack: a clock that is set back does not turn the order of events around.
func TestPublishedAtNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := []int64{100, 50, 200}
		n := 0
		cfg := publisherConfig{table: fakeJournal{&fakeTable{}}, options: defaultPublisherOptions(), clock: func() time.Time {
			n++
			return time.UnixMicro(times[min(n, len(times))-1])
		}}
		p, err := newPublisher(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		var got []int64
		n = 0
		for range times {
			e := &entry{}
			p.number(e)
			got = append(got, e.receipt.PublishedAt.UnixMicro())
		}
		p.mu.Unlock()
		if fmt.Sprint(got) != "[100 100 200]" {
			t.Errorf("published_at %v", got)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestLookUpReadsLittle: the look-up after a loss begins at a version noted shortly before, not at the table's first.
func TestLookUpReadsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, true)
		for i := range 100 {
			r.send(fmt.Sprintf("m%d", i))
			<-time.After(time.Second)
		}
		r.endpoint.set(func(e *fakeEndpoint) { e.noAck = true })
		r.send("last")
		synctest.Wait()
		r.endpoint.cut()
		<-r.sent[100].Done()
		r.close()
		if q := r.table.ownReads[0]; r.table.version-q.after > 20 {
			t.Errorf("looked up from version %d of %d", q.after, r.table.version)
		}
	})
}

// TestChaos: faults of all kinds at random, messages all the time; at the end each is there once, in order.
func TestChaos(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				r := newRig(t, true, WithBatches(2*time.Second, 20, 1<<20), WithAckTimeout(3*time.Second), WithProbe(time.Second, 4*time.Second))
				boom := errors.New("boom")
				tableRnd := rand.New(rand.NewPCG(seed, 2)) // used below the table's lock
				flaky := func(int) error {
					if tableRnd.IntN(4) == 0 {
						return boom
					}
					return nil
				}
				r.table.before, r.table.after = flaky, flaky
				n := 0
				for range 60 {
					r.endpoint.set(func(e *fakeEndpoint) {
						e.gone = rnd.IntN(4) == 0
						e.noAck = rnd.IntN(5) == 0
						e.stall = rnd.IntN(8) == 0
						e.refuse = []codes.Code{codes.OK, codes.OK, codes.OK, codes.Unavailable, codes.PermissionDenied}[rnd.IntN(5)]
						e.closing = rnd.IntN(6) == 0
						if rnd.IntN(3) == 0 {
							e.dieAt[fmt.Sprintf("m%d", n+rnd.IntN(10))] = true
						}
						if rnd.IntN(6) == 0 {
							e.failAt[fmt.Sprintf("m%d", n+rnd.IntN(10))] = errors.New("bad record")
						}
					})
					if rnd.IntN(3) == 0 {
						r.endpoint.cut()
					}
					for range rnd.IntN(15) {
						r.send(fmt.Sprintf("m%d", n))
						n++
						if rnd.IntN(3) == 0 {
							<-time.After(time.Duration(rnd.IntN(500)) * time.Millisecond)
						}
					}
					<-time.After(time.Duration(rnd.IntN(4000)) * time.Millisecond)
				}
				r.endpoint.set(func(e *fakeEndpoint) { e.gone, e.noAck, e.stall, e.refuse = false, false, false, codes.OK })
				r.close()
			})
		})
	}
}
