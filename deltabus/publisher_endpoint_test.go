package deltabus_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/zerobusfake"
)

// endpoint is a Zerobus server on a port of its own, which can be killed and started again.
type endpoint struct {
	tb     testing.TB
	tables deltabus.Workspace
	addr   string
	srv    *zerobusfake.Server
	grpc   *grpc.Server
	served chan struct{}
}

func startEndpoint(tb testing.TB, tables deltabus.Workspace) *endpoint {
	tb.Helper()
	e := &endpoint{tb: tb, tables: tables, addr: "127.0.0.1:0"}
	e.start()
	tb.Cleanup(e.stop)
	return e
}

func (e *endpoint) start() {
	e.tb.Helper()
	lis, err := net.Listen("tcp", e.addr)
	if err != nil {
		e.tb.Fatal(err)
	}
	e.addr = lis.Addr().String()
	e.srv = zerobusfake.New(zerobusfake.Config{Tables: e.tables})
	e.grpc = grpc.NewServer(zerobusfake.ServerOptions()...)
	e.srv.Register(e.grpc)
	e.served = make(chan struct{})
	go func() { defer close(e.served); _ = e.grpc.Serve(lis) }()
}

// kill cuts every connection, as the death of the process would.
func (e *endpoint) kill() {
	e.grpc.Stop()
	<-e.served
	e.end()
}

// stop ends it gracefully.
func (e *endpoint) stop() {
	if e.grpc != nil {
		e.end()
		e.grpc.Stop()
		<-e.served
	}
}

func (e *endpoint) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := e.srv.Shutdown(ctx, 2*time.Second); err != nil {
		e.tb.Logf("shut down: %v", err)
	}
}

func openBus(tb testing.TB) (*deltabus.Bus, *endpoint) {
	tb.Helper()
	ws := deltabus.OnStore(store.NewMemory())
	e := startEndpoint(tb, ws)
	b, err := deltabus.Init(context.Background(), deltabus.Config{Workspace: ws, Zerobus: &deltabus.ZerobusConfig{Endpoint: "http://" + e.addr, Token: "t"}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.Messages().Close() })
	return b, e
}

// countRows counts the rows of each message_id.
func countRows(tb testing.TB, b *deltabus.Bus) map[string]int {
	tb.Helper()
	snap, err := b.Messages().Snapshot(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	count := map[string]int{}
	for rec, err := range b.Messages().Scan(context.Background(), snap, []string{"message_id"}, nil) {
		if err != nil {
			tb.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			count[rec.Column(0).ValueStr(i)]++
		}
	}
	return count
}

// TestPublisherOverEndpoint: against the real endpoint, killed and announced away while messages flow, each arrives once.
func TestPublisherOverEndpoint(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		away func(*endpoint)
	}{
		{"killed", (*endpoint).kill},
		{"shut down", (*endpoint).stop},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b, e := openBus(t)
			p, err := b.Publisher(deltabus.WithSettleDelay(100*time.Millisecond), deltabus.WithRecovery(500*time.Millisecond),
				deltabus.WithBatches(50*time.Millisecond, 1000, 1<<20), deltabus.WithProbe(50*time.Millisecond, 100*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			const n = 6000
			paths := map[deltabus.Path]int{}
			var sent []*deltabus.Delivery
			publish := func(upTo int) {
				for len(sent) < upTo {
					d, err := p.PublishAsync(t.Context(), deltabus.Message{Topic: "orders.new", ID: fmt.Sprint(len(sent)), Payload: []byte(`{"n":1}`)})
					if err != nil {
						t.Fatal(err)
					}
					sent = append(sent, d)
				}
			}
			wait := func(i int) deltabus.Receipt {
				rc, err := sent[i].Wait(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return rc
			}
			publish(1)
			if rc := wait(0); rc.Path != deltabus.PathZerobus {
				t.Errorf("the first message went by %s", rc.Path)
			}
			publish(n / 3)
			tc.away(e)
			publish(n/3 + 1)
			if rc := wait(n / 3); rc.Path != deltabus.PathBatch {
				t.Errorf("a message published while the endpoint was away went by %s", rc.Path)
			}
			e.start()
			for p.Path() != deltabus.PathZerobus { // messages keep it moving: each waits for the one before
				publish(len(sent) + 1)
				wait(len(sent) - 1)
			}
			publish(max(n, len(sent)+100))
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i := range sent {
				paths[wait(i).Path]++
			}
			rows := countRows(t, b)
			for i := range sent {
				if c := rows[fmt.Sprint(i)]; c != 1 {
					t.Errorf("message %d is there %d times", i, c)
				}
			}
			if len(rows) != len(sent) {
				t.Errorf("%d messages in the table, %d published", len(rows), len(sent))
			}
			t.Logf("%d messages, by path: %v", len(sent), paths)
		})
	}
}

func BenchmarkPublishAsync(b *testing.B) {
	payload := make([]byte, 1000)
	for i := range payload {
		payload[i] = 'a' + byte(i%26)
	}
	run := func(b *testing.B, bus *deltabus.Bus) {
		p, err := bus.Publisher(deltabus.WithBatches(time.Second, 20_000, 16<<20))
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(payload)))
		b.ReportAllocs()
		start := time.Now() // b's own clock stops before Close
		for b.Loop() {
			if _, err := p.PublishAsync(b.Context(), deltabus.Message{Topic: "bench", Payload: payload}); err != nil {
				b.Fatal(err)
			}
		}
		if err := p.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "messages/s")
	}
	b.Run("zerobus", func(b *testing.B) {
		bus, _ := openBus(b)
		run(b, bus)
	})
	b.Run("batch", func(b *testing.B) {
		bus, err := deltabus.Init(b.Context(), deltabus.Config{Workspace: deltabus.OnStore(store.NewMemory())})
		if err != nil {
			b.Fatal(err)
		}
		run(b, bus)
		_ = bus.Messages().Close()
	})
}
