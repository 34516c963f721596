package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/emulator"
)

const (
	demoEvents   = 1000
	demoPoison   = 3
	demoConsumer = "billing"
)

func (a *app) demoCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "demo",
		Short: "A tour that ends by itself: publish, kill, resume, dead-letter, replay",
		Long: "A tour against a workspace of its own in a new directory: it makes a bus, publishes 1,000 events through Zerobus, handles them in a\n" +
			"worker process that is killed half way and resumes, dead-letters the poison ones and replays them. It checks its own figures.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demo(cmd.Context(), dir) },
	}
	c.Flags().StringVar(&dir, "dir", "", "directory to use (default: a new temporary one, which is kept)")
	worker := &cobra.Command{
		Use: "worker", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.demoWorker(cmd) },
	}
	c.AddCommand(worker)
	return c
}

// demoTour is one run of the tour.
type demoTour struct {
	*app
	dir     string
	e       *emulator.Emulator
	bus     *deltabus.Bus
	handled map[string]int // by message id, over all workers
	order   []string       // first handled
	wrong   []string
}

func (a *app) demo(ctx context.Context, dir string) (err error) {
	start := time.Now()
	if dir == "" {
		if dir, err = os.MkdirTemp("", "deltabus-demo-"); err != nil {
			return err
		}
	}
	d := &demoTour{app: a, dir: dir, handled: map[string]int{}}
	d.e, err = emulator.Start(ctx, emulator.WithDataDir(dir), emulator.WithLogger(a.log), emulator.WithGrace(time.Second))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.e.Stop(context.WithoutCancel(ctx))) }()
	d.say("workspace  %s, data in %s", d.e.URL(), dir)
	for _, step := range []func(context.Context) error{d.publish, d.killAndResume, d.deadLetters, d.replay, d.look} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if len(d.wrong) > 0 {
		return fmt.Errorf("the demo found something wrong: %s", strings.Join(d.wrong, "; "))
	}
	d.say("done       in %.1f s", time.Since(start).Seconds())
	return nil
}

func (d *demoTour) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// expect notes a figure that is not as it must be.
func (d *demoTour) expect(what string, got, want int) {
	if got != want {
		d.wrong = append(d.wrong, fmt.Sprintf("%s: %d, expected %d", what, got, want))
	}
}

func (d *demoTour) publish(ctx context.Context) error {
	var err error
	d.bus, err = deltabus.Init(ctx, deltabus.Config{
		Workspace: d.e, Logger: d.log,
		Zerobus: &deltabus.ZerobusConfig{Endpoint: d.e.URL(), ClientID: d.e.ClientID(), ClientSecret: d.e.ClientSecret()},
	})
	if err != nil {
		return err
	}
	d.say("bus        %s: messages, checkpoints, dead_letters", d.bus.Schema())
	start := time.Now()
	p, err := d.bus.Publisher(deltabus.WithSource("demo"))
	if err != nil {
		return err
	}
	paths := map[deltabus.Path]int{}
	deliveries := make([]*deltabus.Delivery, demoEvents)
	for i := range deliveries {
		order := map[string]any{"order": i, "amount": i * 7 % 100}
		if i%(demoEvents/demoPoison) == demoEvents/demoPoison/2 {
			order["amount"] = "not a number"
		}
		payload, err := json.Marshal(order)
		if err != nil {
			return err
		}
		m := deltabus.Message{Topic: "orders.new", Key: fmt.Sprint(i), ContentType: "application/json", Payload: payload}
		if deliveries[i], err = p.PublishAsync(ctx, m); err != nil {
			return errors.Join(err, p.Close(ctx))
		}
	}
	if err := p.Close(ctx); err != nil {
		return err
	}
	for _, x := range deliveries {
		r, err := x.Wait(ctx)
		if err != nil {
			return err
		}
		paths[r.Path]++
	}
	d.expect("events through Zerobus", paths[deltabus.PathZerobus], demoEvents)
	version := d.bus.Messages().Cached().Version()
	d.say("published  %d events through Zerobus in %s, durable in Delta versions 1 to %d", demoEvents, time.Since(start).Round(time.Millisecond), version)
	return nil
}

// worker runs a worker process until it has handled so many events, and then kills it; 0 lets it end.
func (d *demoTour) worker(ctx context.Context, kill int) (handled int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self, "demo", "worker", "--data-dir", d.dir, "--host", d.e.URL(), "--token", d.e.Token())
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
	return a.withBus(cmd.Context(), func(b *deltabus.Bus) error {
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

func (d *demoTour) killAndResume(ctx context.Context) error {
	first, err := d.worker(ctx, demoEvents/2)
	if err != nil {
		return err
	}
	status, err := d.bus.Consumers(ctx)
	if err != nil {
		return err
	}
	if len(status) != 1 {
		return fmt.Errorf("%d consumers", len(status))
	}
	d.say("worker 1   handled %d events and was killed; its checkpoint is version %d row %d", first, status[0].Version, status[0].Position)
	again := len(d.handled)
	second, err := d.worker(ctx, 0)
	if err != nil {
		return err
	}
	repeated := 0
	for _, n := range d.handled {
		if n > 1 {
			repeated++
		}
	}
	d.say("worker 2   resumed there: %d events, of which %d again (they came after the checkpoint)", second, repeated)
	d.expect("events handled by both workers", len(d.handled), demoEvents-demoPoison)
	d.expect("events handled again", repeated, again+second-len(d.handled))
	return nil
}

func (d *demoTour) deadLetters(ctx context.Context) error {
	open, err := d.bus.DeadLetters().List(ctx, deltabus.DeadLetterFilter{Status: deltabus.StatusOpen})
	if err != nil {
		return err
	}
	d.expect("dead letters", len(open), demoPoison)
	if len(open) > 0 {
		d.say("poison     %d events failed %d times each and are dead letters: %q", len(open), open[0].Attempts, open[0].Error)
	}
	return nil
}

func (d *demoTour) replay(ctx context.Context) error {
	done, err := d.bus.DeadLetters().Replay(ctx, deltabus.DeadLetterFilter{Consumer: demoConsumer}, deltabus.ToConsumer)
	if err != nil {
		return err
	}
	n, err := d.worker(ctx, 0)
	if err != nil {
		return err
	}
	d.say("replayed   %d dead letters to %s, which handled %d", len(done), demoConsumer, n)
	d.expect("replayed events handled", n, demoPoison)
	return d.checkOrder(ctx)
}

// checkOrder compares the order in which events were handled with that of the log.
func (d *demoTour) checkOrder(ctx context.Context) error {
	at := map[string]int{}
	c, err := d.bus.Consumer("demo-check", ">", func(_ context.Context, e deltabus.Event) error {
		at[e.ID] = len(at)
		return nil
	}, deltabus.UntilCurrent())
	if err != nil {
		return err
	}
	if err := c.Run(ctx); err != nil {
		return err
	}
	last, outOfOrder := -1, 0
	for _, id := range d.order {
		n, ok := at[id]
		if !ok {
			// A replay for one consumer is not for this one; it gave up its place in the order.
			continue
		}
		if n < last {
			outOfOrder++
		}
		last = n
	}
	d.expect("events out of order", outOfOrder, 0)
	d.expect("events in the log", len(at), demoEvents)
	if len(d.wrong) == 0 { // else the tour ends with what is wrong
		d.say("checked    nothing lost, nothing out of order")
	}
	return nil
}

func (d *demoTour) look(context.Context) error {
	self := "deltabus-local"
	d.say("look       %s table rows main.deltabus.messages --data-dir %s", self, d.dir)
	d.say("           %s consumers --data-dir %s", self, d.dir)
	d.say("           %s deadletters list --data-dir %s", self, d.dir)
	d.say("tables     %s", filepath.Join(d.dir, "tables", "main", "deltabus"))
	return nil
}
