package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltabus"
)

// worker runs a worker process until it has handled so many events, and then kills it; 0 lets it end.
func (d *demoTour) worker(ctx context.Context, kill int) (handled int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self, "demo", "worker", "--host", d.e.URL(), "--token", d.e.Token(), "--bus", d.Bus)
	cmd.Stderr = d.err
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(out)
	killed := false
	for lines.Scan() {
		id := lines.Text()
		if d.handled[id] == 0 {
			d.order = append(d.order, id)
		}
		d.handled[id]++
		if handled++; kill > 0 && handled == kill {
			if err := cmd.Process.Kill(); err != nil {
				return handled, err
			}
			killed = true
		}
	}
	if err := cmd.Wait(); err != nil && !killed {
		return handled, fmt.Errorf("worker: %w", err)
	}
	return handled, lines.Err()
}

// demoWorker is the worker process: it handles events and says the id of each on stdout.
func (a *app) demoWorker(cmd *cobra.Command) error {
	return a.withBus(cmd.Context(), writing, func(b *deltabus.Bus) error {
		c, err := b.Consumer(demoConsumer, "orders.>", func(_ context.Context, e deltabus.Event) error {
			var order struct{ Amount json.RawMessage }
			if err := json.Unmarshal(e.Payload, &order); err != nil {
				return deltabus.Skip(err)
			}
			if order.Amount[0] == '"' && e.Replay == 0 { // mended by the time of the replay
				return fmt.Errorf("amount %s is no number", order.Amount)
			}
			_, err := io.WriteString(a.out, e.ID+"\n")
			return err
		}, deltabus.UntilCurrent(), deltabus.WithRetry(deltabus.RetryPolicy{MaxAttempts: 3, Backoff: 10 * time.Millisecond}))
		if err != nil {
			return err
		}
		return c.Run(cmd.Context())
	})
}
