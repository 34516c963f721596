package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
)

func (d *demoTour) publish(ctx context.Context) error {
	var err error
	d.bus, err = deltabus.Init(ctx, deltabus.Config{
		Workspace: d.e, Schema: d.app.bus, Logger: d.log,
		Zerobus: &deltabus.ZerobusConfig{Endpoint: d.e.URL(), ClientID: d.e.ClientID(), ClientSecret: d.e.ClientSecret()},
	})
	if err != nil {
		return err
	}
	d.Bus = d.bus.Schema()
	d.Tables = filepath.Join(append([]string{d.DataDir, "tables"}, strings.Split(d.Bus, ".")...)...)
	d.say("bus        %s: messages, checkpoints, dead_letters", d.Bus)
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
	took := time.Since(start)
	d.Published, d.PublishSeconds, d.Version = paths[deltabus.PathZerobus], took.Seconds(), d.bus.Messages().Cached().Version()
	d.say("published  %d events through Zerobus in %s, durable in Delta versions 1 to %d", d.Published, took.Round(time.Millisecond), d.Version)
	return nil
}

func (d *demoTour) killAndResume(ctx context.Context) error {
	var err error
	d.HandledTillKill, err = d.worker(ctx, demoEvents/2)
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
	d.say("worker 1   handled %d events and was killed; its checkpoint is version %d row %d", d.HandledTillKill, status[0].Version, status[0].Position)
	again := len(d.handled)
	if d.HandledAfter, err = d.worker(ctx, 0); err != nil {
		return err
	}
	for _, n := range d.handled {
		if n > 1 {
			d.HandledAgain++
		}
	}
	d.Lost = demoEvents - demoPoison - len(d.handled)
	d.say("worker 2   resumed there: %d events, of which %d again (they came after the checkpoint)", d.HandledAfter, d.HandledAgain)
	d.expect("events handled by both workers", len(d.handled), demoEvents-demoPoison)
	d.expect("events handled again", d.HandledAgain, again+d.HandledAfter-len(d.handled))
	return nil
}

func (d *demoTour) deadLetters(ctx context.Context) error {
	open, err := d.bus.DeadLetters().List(ctx, deltabus.DeadLetterFilter{Status: deltabus.StatusOpen})
	if err != nil {
		return err
	}
	d.DeadLetters = len(open)
	d.expect("dead letters", d.DeadLetters, demoPoison)
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
	d.Replayed = len(done)
	if d.ReplayHandled, err = d.worker(ctx, 0); err != nil {
		return err
	}
	d.say("replayed   %d dead letters to %s, which handled %d", d.Replayed, demoConsumer, d.ReplayHandled)
	d.expect("replayed events handled", d.ReplayHandled, demoPoison)
	return nil
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
	last := -1
	for _, id := range d.order {
		n, ok := at[id]
		if !ok {
			// A replay for one consumer is not for this one; it gave up its place in the order.
			continue
		}
		if n < last {
			d.OutOfOrder++
		}
		last = n
	}
	d.expect("events out of order", d.OutOfOrder, 0)
	d.expect("events in the log", len(at), demoEvents)
	if len(d.Wrong) == 0 { // else the tour ends with what is wrong
		d.say("checked    nothing lost, nothing out of order")
	}
	return nil
}

func (d *demoTour) look(context.Context) error {
	self := "deltabus-local"
	d.say("look       %s table rows %s.messages --data-dir %s", self, d.Bus, d.DataDir)
	d.say("           %s consumers --data-dir %s", self, d.DataDir)
	d.say("           %s deadletters list --data-dir %s", self, d.DataDir)
	d.say("tables     %s", d.Tables)
	return nil
}
