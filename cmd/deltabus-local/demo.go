package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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

// demoJSON is the figures of a tour.
type demoJSON struct {
	Workspace       string   `json:"workspace"`
	DataDir         string   `json:"data_dir"`
	Tables          string   `json:"tables"`
	Bus             string   `json:"bus"`
	Published       int      `json:"published"`
	PublishSeconds  float64  `json:"publish_seconds"`
	Version         int64    `json:"version"`                // of messages, once all are published
	HandledTillKill int      `json:"handled_until_kill"`     // by the worker that is killed
	HandledAfter    int      `json:"handled_after_resuming"` // by the one that resumes
	HandledAgain    int      `json:"handled_again"`
	DeadLetters     int      `json:"dead_letters"`
	Replayed        int      `json:"replayed"`
	ReplayHandled   int      `json:"replayed_handled"`
	OutOfOrder      int      `json:"out_of_order"`
	Lost            int      `json:"lost"`
	Seconds         float64  `json:"seconds"`
	Wrong           []string `json:"wrong"` // figures that are not as they must be
}

// demoTour is one run of the tour.
type demoTour struct {
	*app
	demoJSON
	e       *emulator.Emulator
	bus     *deltabus.Bus
	handled map[string]int // by message id, over all workers
	order   []string       // first handled
}

func (a *app) demo(ctx context.Context, dir string) (err error) {
	start := time.Now()
	if err := a.refuse("the demo makes a workspace of its own, in --dir", "host", "token", "data-dir"); err != nil {
		return err
	}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "deltabus-demo-"); err != nil {
			return err
		}
	}
	d := &demoTour{app: a, demoJSON: demoJSON{DataDir: dir, Wrong: []string{}}, handled: map[string]int{}}
	d.e, err = emulator.Start(ctx, emulator.WithDataDir(dir), emulator.WithLogger(a.log), emulator.WithGrace(time.Second))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.e.Stop(context.WithoutCancel(ctx))) }()
	d.Workspace = d.e.URL()
	d.say("workspace  %s, data in %s", d.Workspace, dir)
	for _, step := range []func(context.Context) error{d.publish, d.killAndResume, d.deadLetters, d.replay, d.checkOrder, d.look} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.Seconds = time.Since(start).Seconds()
	if a.output != "table" {
		if err := a.printOne(d.demoJSON); err != nil {
			return err
		}
	}
	if len(d.Wrong) > 0 {
		return advise(fmt.Errorf("the demo found something wrong: %s", strings.Join(d.Wrong, "; ")),
			"run it on a new --dir, without a workspace in it; if it is wrong again, keep the directory: it shows what happened")
	}
	d.say("done       in %.1f s", d.Seconds)
	return nil
}

// say tells a person how the tour goes; who wants JSON has the figures at its end.
func (d *demoTour) say(format string, args ...any) {
	if d.output == "table" {
		fmt.Fprintf(d.out, format+"\n", args...)
	}
}

// expect notes a figure that is not as it must be.
func (d *demoTour) expect(what string, got, want int) {
	if got != want {
		d.Wrong = append(d.Wrong, fmt.Sprintf("%s: %d, expected %d", what, got, want))
	}
}
