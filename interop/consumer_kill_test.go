package interop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/conformance"
	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Set in the processes that are consumers, which are this test binary run again: the tables' directory and the process's name.
const (
	consumerWorkerEnv = "INTEROP_CONSUMER_TABLES"
	consumerNameEnv   = "INTEROP_CONSUMER_NAME"
	consumerOnceEnv   = "INTEROP_CONSUMER_ONCE"
)

const (
	killedConsumer = "killed"
	killedFilter   = "orders.>"
	killedRetries  = 3
)

// consumerWorker consumes and prints what happens as conformance records, one a line, each before it goes on.
func consumerWorker() {
	if err := consume(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func consume() error {
	ctx := context.Background()
	bus, err := openBus(ctx, os.Getenv(consumerWorkerEnv), deltabus.Open)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	say := func(kind conformance.Kind, phase conformance.Phase, r conformance.Record) {
		r.Process, r.Kind, r.Phase, r.Consumer, r.Time = os.Getenv(consumerNameEnv), kind, phase, killedConsumer, time.Now()
		if err := out.Encode(r); err != nil {
			panic(err)
		}
	}
	place := func(c deltabus.Checkpoint) conformance.Record {
		return conformance.Record{Version: c.Version, Position: c.Position, Backfill: c.Backfill, Epoch: c.Epoch}
	}
	event := func(e deltabus.Event) conformance.Record {
		return conformance.Record{ID: e.ID, Topic: e.Topic, Version: e.Version, Attempt: e.Attempt}
	}
	options := []deltabus.ConsumerOption{
		deltabus.WithCheckpointEvery(10, 50*time.Millisecond), deltabus.WithPollInterval(10 * time.Millisecond),
		deltabus.WithRetry(deltabus.RetryPolicy{MaxAttempts: killedRetries, Backoff: time.Millisecond, MaxBackoff: 2 * time.Millisecond}),
		deltabus.WithObserver(deltabus.Observer{
			Start: func(c deltabus.Checkpoint, retries int) {
				r := place(c)
				r.Filter, r.Attempt = c.Filter, retries
				say(conformance.KindStart, "", r)
			},
			Deliver: func(e deltabus.Event) { say(conformance.KindDeliver, conformance.PhaseInvoke, event(e)) },
			Outcome: func(e deltabus.Event, err error) {
				r, phase := event(e), conformance.PhaseOK
				if err != nil {
					r.Error, phase = err.Error(), conformance.PhaseFail
				}
				say(conformance.KindDeliver, phase, r)
			},
			Checkpoint: func(c deltabus.Checkpoint) { say(conformance.KindCheckpoint, "", place(c)) },
			DeadLetter: func(d deltabus.DeadLetter) {
				r := event(d.Event)
				r.Attempt, r.Error = d.Attempts, d.Error
				say(conformance.KindDeadLetter, "", r)
			},
		}),
	}
	if os.Getenv(consumerOnceEnv) != "" {
		options = append(options, deltabus.UntilCurrent())
	}
	c, err := bus.Consumer(killedConsumer, killedFilter, func(_ context.Context, e deltabus.Event) error {
		time.Sleep(time.Millisecond) // the handler's work, so that kills meet it
		if e.Headers["poison"] != "" {
			return errors.New("poison")
		}
		return nil
	}, options...)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// openBus opens or makes the bus whose tables are in a directory.
func openBus(ctx context.Context, dir string, open func(context.Context, deltabus.Config) (*deltabus.Bus, error)) (*deltabus.Bus, error) {
	st, err := store.NewLocal(dir, false)
	if err != nil {
		return nil, err
	}
	return open(ctx, deltabus.Config{Workspace: deltabus.OnStore(st)})
}

// TestConsumerKilled: SIGKILL of a consumer process at random points, again and again, while events are published: all are
// handled or dead-lettered, in order, and again only what came after the last checkpoint. The conformance checkers decide.
func TestConsumerKilled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := t.TempDir()
	bus, err := openBus(ctx, dir, deltabus.Init)
	if err != nil {
		t.Fatal(err)
	}
	history := conformance.NewHistory(nil)

	stop, published := make(chan struct{}), make(chan error, 1)
	go func() { published <- publishForever(ctx, bus, history, stop) }()
	for k := range kills {
		w := startConsumer(t, dir, fmt.Sprintf("consumer-%d", k), false)
		w.until(2*time.Minute, func(lines [][]byte) bool { return len(lines) > 1 }) // machines are busy
		time.Sleep(time.Duration(rand.N(250)) * time.Millisecond)                   // a random point is what is tested
		_ = w.cmd.Process.Kill()
		<-w.done
		record(t, history, w.printed())
		history.Add(conformance.Record{Process: fmt.Sprintf("consumer-%d", k), Kind: conformance.KindCrash, Consumer: killedConsumer})
	}
	close(stop)
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	record(t, history, startConsumer(t, dir, "consumer-last", true).wait(2*time.Minute))
	rows := recordRows(t, bus, history)
	handled := history.Count(func(r conformance.Record) bool {
		return r.Kind == conformance.KindDeliver && r.Phase == conformance.PhaseOK
	})
	dead := history.Count(func(r conformance.Record) bool { return r.Kind == conformance.KindDeadLetter })
	t.Logf("%d rows, %d handled, %d dead-lettered", rows, handled, dead)
	if dead == 0 {
		t.Error("no event was dead-lettered: the history proves too little")
	}
	for _, c := range conformance.Checkers() {
		breaches := c.Check(history.Records())
		for _, b := range breaches[:min(5, len(breaches))] {
			t.Errorf("%s: %s (one of %d)", c.Name, b, len(breaches))
		}
	}
}

func startConsumer(t *testing.T, dir, name string, once bool) *worker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	words := []string{consumerWorkerEnv + "=" + dir, consumerNameEnv + "=" + name}
	if once {
		words = append(words, consumerOnceEnv+"=1")
	}
	return startWorker(t, "env", append(words, self)...)
}

// record adds what a worker printed; its last line may be cut off.
func record(t *testing.T, h *conformance.History, lines [][]byte) {
	t.Helper()
	for i, l := range lines {
		var r conformance.Record
		if err := json.Unmarshal(l, &r); err != nil {
			if i == len(lines)-1 {
				return
			}
			t.Fatalf("worker printed %q: %v", l, err)
		}
		h.Add(r)
	}
}

// publishForever publishes some hundred events a second until stop, some of them not for the consumer, some poison.
func publishForever(ctx context.Context, bus *deltabus.Bus, h *conformance.History, stop <-chan struct{}) error {
	p, err := bus.Publisher(deltabus.WithBatches(20*time.Millisecond, 1000, 1<<20))
	if err != nil {
		return err
	}
	ticks := time.NewTicker(15 * time.Millisecond)
	defer ticks.Stop()
	for i := 0; ; {
		select {
		case <-stop:
			return p.Close(ctx)
		case <-ticks.C:
		}
		var messages []deltabus.Message
		for range 1 + rand.N(6) {
			m := deltabus.Message{ID: fmt.Sprintf("event-%06d", i), Topic: []string{"orders.eu", "orders.us.west", "audit"}[i%3], Payload: []byte("x")}
			if i%101 == 3 {
				m.Headers = map[string]string{"poison": "yes"}
			}
			h.Add(conformance.Record{Process: "producer", Kind: conformance.KindPublish, Phase: conformance.PhaseInvoke, ID: m.ID, Topic: m.Topic})
			messages = append(messages, m)
			i++
		}
		receipts, err := p.Publish(ctx, messages...)
		if err != nil {
			return errors.Join(err, p.Close(ctx))
		}
		for _, r := range receipts {
			h.Add(conformance.Record{Process: "producer", Kind: conformance.KindPublish, Phase: conformance.PhaseOK, ID: r.MessageID, Producer: r.ProducerID, Seq: r.ProducerSeq})
		}
	}
}

// recordRows adds the rows of the messages table in the order of the log, as docs/design.md has it, and returns how many.
func recordRows(t *testing.T, bus *deltabus.Bus, h *conformance.History) int {
	t.Helper()
	type message struct {
		Version   int64
		Published time.Time `json:"published_at"`
		Producer  string    `json:"producer_id"`
		Seq       int64     `json:"producer_seq"`
		ID        string    `json:"message_id"`
		Topic     string
	}
	var all []message
	start := int64(0)
	for b, err := range cdf.Read(t.Context(), bus.Messages(), cdf.Range{StartVersion: &start}, []string{"published_at", "producer_id", "producer_seq", "message_id", "topic"}) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(b.Rows.NumRows()) {
			line, err := deltalog.AppendRowJSON(nil, b.Rows, i)
			if err != nil {
				t.Fatal(err)
			}
			m := message{Version: b.Version}
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b message) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), a.Published.Compare(b.Published), cmp.Compare(a.Producer, b.Producer), cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.ID, b.ID))
	})
	position, version := int64(0), int64(-1)
	for _, m := range all {
		if m.Version != version {
			position, version = 0, m.Version
		}
		h.Add(conformance.Record{
			Process: "harness", Kind: conformance.KindRow, ID: m.ID, Topic: m.Topic, Producer: m.Producer, Seq: m.Seq, Version: m.Version, Position: position,
		})
		position++
	}
	return len(all)
}

// messagesDir is where a bus's messages are.
func messagesDir(tables string) string {
	return filepath.Join(tables, "main", "deltabus", deltabus.MessagesTable)
}
