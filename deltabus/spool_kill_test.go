package deltabus

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

func spoolBus(ctx context.Context, dir string) (*Bus, *Publisher, error) {
	st, err := store.NewLocal(filepath.Join(dir, "tables"), false)
	if err != nil {
		return nil, nil, err
	}
	b, err := Init(ctx, Config{Workspace: OnStore(st)})
	if err != nil {
		return nil, nil, err
	}
	p, err := b.Publisher(WithSpool(filepath.Join(dir, "spool.db")), WithBatches(20*time.Millisecond, 1000, 1<<20), WithSettleDelay(0))
	return b, p, err
}

// publishUntilKilled is the child process of TestSpoolSurvivesKill: it prints each message id once it is accepted.
func publishUntilKilled(dir string) {
	ctx := context.Background()
	_, p, err := spoolBus(ctx, dir)
	for err == nil {
		var d *Delivery
		if d, err = p.PublishAsync(ctx, Message{Topic: "t"}); err == nil {
			fmt.Fprintln(os.Stdout, d.Receipt().MessageID)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestSpoolSurvivesKill: a process that is killed while it publishes loses nothing that it accepted.
func TestSpoolSurvivesKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	accepted := map[string]bool{}
	for round := range 3 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "DELTABUS_TEST_SPOOL="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 40+30*round && lines.Scan(); n++ {
			accepted[lines.Text()] = true
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it had printed by then counts
			accepted[lines.Text()] = true
		}
		_ = cmd.Wait() // killed
	}
	b, p, err := spoolBus(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	next := int64(0)
	for _, e := range readMessages(t, b) {
		if seen[e.ID] {
			t.Errorf("message %s is there twice", e.ID)
		}
		seen[e.ID] = true
		if e.ProducerSeq != next {
			t.Errorf("producer_seq %d where %d belongs", e.ProducerSeq, next)
		}
		next = e.ProducerSeq + 1
	}
	for id := range accepted {
		if !seen[id] {
			t.Errorf("message %s was accepted and is lost", id)
		}
	}
	if len(accepted) < 150 {
		t.Errorf("only %d messages were accepted", len(accepted))
	}
	_ = b.Messages().Close()
}

// TestConcurrentCallers: callers that share a publisher and a spool each get their own numbers, and nothing is lost.
func TestConcurrentCallers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b, p, err := spoolBus(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var sent []*Delivery
	var callers sync.WaitGroup
	for c := range 8 {
		callers.Go(func() {
			for i := range 25 {
				d, err := p.PublishAsync(t.Context(), Message{Topic: "t", ID: fmt.Sprint(c, "-", i)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				sent = append(sent, d)
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := checkRows(eventRows(readMessages(t, b)), sent); err != nil {
		t.Error(err)
	}
	_ = b.Messages().Close()
}
