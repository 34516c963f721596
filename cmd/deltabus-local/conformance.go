package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/conformance"
	"github.com/deltabus/deltabus-local/deltabus"
)

func (a *app) conformanceCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "conformance",
		Short: "Check what the bus promises, by scenarios with real kills",
		RunE:  func(*cobra.Command, []string) error { return usagef("conformance needs a verb: list or run") },
		Args:  cobra.ArbitraryArgs,
	}
	list := &cobra.Command{
		Use: "list", Short: "List the scenarios", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			t := a.table("ID", "LEVEL", "TITLE")
			for _, s := range conformance.Scenarios() {
				t.row(map[string]string{"id": s.ID, "level": string(s.Level), "title": s.Title, "why": s.Why}, s.ID, string(s.Level), s.Title)
			}
			return t.flush()
		},
	}
	var target, history string
	run := &cobra.Command{
		Use: "run [ID…]", Short: "Run scenarios (default: all) and exit with 1 if a MUST fails",
		RunE: func(cmd *cobra.Command, args []string) error { return a.runConformance(cmd, target, history, args) },
	}
	run.Flags().StringVar(&target, "target", "served", "served: this binary, every part a process of its own; inprocess: all in one process")
	run.Flags().StringVar(&history, "history", "", "directory for the history of each scenario, as JSON lines (default: not kept)")
	worker := &cobra.Command{
		Use: "worker", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.conformanceWorker(cmd) },
	}
	c.AddCommand(list, run, worker)
	return c
}

func (a *app) runConformance(cmd *cobra.Command, targetName, history string, ids []string) error {
	if err := a.refuse("each scenario has a workspace of its own", "host", "token", "data-dir", "bus"); err != nil {
		return err
	}
	var target conformance.Target
	switch targetName {
	case "inprocess":
		target = conformance.InProcess()
	case "served":
		self, err := os.Executable()
		if err != nil {
			return err
		}
		target = conformance.Served(self)
	default:
		return usagef("--target %q: use served or inprocess", targetName)
	}
	scenarios, err := conformance.Select(ids)
	if err != nil {
		return advise(&usageError{err}, "'deltabus-local conformance list' shows the scenarios there are")
	}
	t := a.table("SCENARIO", "LEVEL", "RESULT", "TIME", "TITLE")
	var failed []string
	for _, s := range scenarios {
		r := conformance.Run(cmd.Context(), target, s)
		if history != "" {
			if err := r.WriteHistory(history); err != nil {
				return err
			}
		}
		result := "pass"
		if len(r.Breaches) > 0 {
			result = "FAIL"
			if s.Level == conformance.Must {
				failed = append(failed, s.ID)
			}
			for _, b := range r.Breaches {
				fmt.Fprintf(a.err, "%s: %s\n", s.ID, b)
			}
		}
		t.row(r, s.ID, string(s.Level), result, r.Duration.Round(time.Millisecond).String(), s.Title)
		if err := cmd.Context().Err(); err != nil {
			return err
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(failed) > 0 {
		return advise(fmt.Errorf("%d of %d scenarios failed: %s", len(failed), len(scenarios), strings.Join(failed, ", ")),
			"run the failed ones again with --history DIR, which keeps what happened")
	}
	return nil
}

// conformanceWorker is a producer or consumer of a scenario: its task comes on stdin, what happens goes to stdout.
func (a *app) conformanceWorker(cmd *cobra.Command) error {
	var spec conformance.WorkerSpec
	if err := json.NewDecoder(a.in).Decode(&spec); err != nil {
		return &usageError{err}
	}
	a.bus = spec.Schema
	t, err := a.target(cmd.Context(), writing)
	if err != nil {
		return err
	}
	if spec.Produce != nil && spec.Produce.Zerobus {
		t.zerobus = &deltabus.ZerobusConfig{Endpoint: spec.Host, Token: spec.Token}
	} else {
		t.zerobus = nil
	}
	b, err := a.openBus(cmd.Context(), t)
	if err != nil {
		return errors.Join(err, t.close())
	}
	enc := json.NewEncoder(a.out)
	err = conformance.RunWorker(cmd.Context(), spec, b, func(r conformance.Record) {
		_ = enc.Encode(r) // the harness is gone: nobody asks any more
	}, func() {
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
		select {} // until the signal comes
	})
	return errors.Join(err, t.close())
}
