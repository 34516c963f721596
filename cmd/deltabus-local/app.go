package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltabus"
)

// app is one invocation of the command.
type app struct {
	in       io.Reader
	out, err io.Writer
	started  startTime
	origins  map[string]string // of each setting: where its value came from

	configFile string // the one that was looked for

	// Settings of every verb.
	output, config, dataDir, host, token, bus, logLevel, logFormat string
	log                                                            *slog.Logger
	// patience is how long publish goes on after a signal without an event becoming durable.
	patience time.Duration
}

// usageError is a wrong invocation.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// seeSettings is what to do next about a wrong setting.
const seeSettings = "'deltabus-local help settings' says where settings come from; 'deltabus-local config' shows them"

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// run executes one command line and returns its exit code.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, out: out, err: errOut, started: processStart(), origins: map[string]string{}, patience: 5 * time.Second}
	// The first signal asks to end, the second ends: verbs that can end gracefully listen to ctx.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil || errors.Is(err, syscall.EPIPE) { // a reader that has seen enough is no failure
		return exitOK
	}
	fmt.Fprintf(errOut, "deltabus-local: %v\n", err)
	if hint := hint(cmd.CommandPath(), err); hint != "" {
		fmt.Fprintf(errOut, "  %s\n", hint)
	}
	return exitCode(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "deltabus-local",
		Short:         "A Databricks workspace and an event bus on a laptop",
		Long:          "A Databricks workspace for event-driven code on a laptop: Delta tables, a Zerobus endpoint, OAuth, Unity Catalog,\nand DeltaBus on top. 'deltabus-local demo' shows it all; 'deltabus-local serve' starts one.",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.prepare(cmd) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(cmd, args[0])
			}
			return cmd.Help()
		},
		Args:                       cobra.ArbitraryArgs,
		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	f := root.PersistentFlags()
	f.StringVarP(&a.output, "output", "o", "table", "how results are printed: table, json (one value) or jsonl (one object a line)")
	f.StringVar(&a.config, "config", "", "configuration file (default deltabus-local.yaml, if it is there)")
	f.StringVar(&a.dataDir, "data-dir", ".deltabus", "directory of the workspace")
	f.StringVar(&a.host, "host", "", "URL of a running workspace (default: the server of --data-dir, else the directory itself)")
	f.StringVar(&a.token, "token", "", "bearer token for --host")
	f.StringVar(&a.bus, "bus", deltabus.DefaultSchema, "the bus, as catalog.schema")
	f.StringVar(&a.logLevel, "log-level", "warn", "least level of logs on stderr: debug, info, warn or error")
	f.StringVar(&a.logFormat, "log-format", "text", "format of logs: text or json")
	root.AddCommand(a.serveCommand(), a.envCommand(), a.publishCommand(), a.consumeCommand(), a.consumersCommand(), a.deadLettersCommand(),
		a.tableCommand(), a.doctorCommand(), a.configCommand(), a.versionCommand(), a.demoCommand(), a.conformanceCommand())
	for _, c := range root.Commands() {
		asUsage(c)
	}
	root.AddCommand(topics()...)
	strictHelp(root)
	return root
}

func unknownVerb(root *cobra.Command, verb string) error {
	if near := root.SuggestionsFor(verb); len(near) > 0 {
		return usagef("unknown verb %q: did you mean %s?", verb, strings.Join(near, " or "))
	}
	return usagef("unknown verb %q", verb)
}

// strictHelp makes help of what is neither a verb nor a topic an error.
func strictHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Args = func(_ *cobra.Command, args []string) error {
			if found, _, err := root.Find(args); err != nil || found == root && len(args) > 0 {
				return unknownVerb(root, strings.Join(args, " "))
			}
			return nil
		}
	}
}

// asUsage makes wrong arguments usage errors.
func asUsage(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return &usageError{err}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		asUsage(sub)
	}
}

// prepare settles the settings and the log before a verb runs.
func (a *app) prepare(cmd *cobra.Command) error {
	if err := a.resolve(cmd); err != nil {
		return advise(&usageError{err}, seeSettings)
	}
	switch a.output {
	case "table", "json", "jsonl":
	default:
		return usagef("--output %q: use table, json or jsonl", a.output)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return usagef("--log-level %q: use debug, info, warn or error", a.logLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch a.logFormat {
	case "text":
		a.log = slog.New(slog.NewTextHandler(a.err, opts))
	case "json":
		a.log = slog.New(slog.NewJSONHandler(a.err, opts))
	default:
		return usagef("--log-format %q: use text or json", a.logFormat)
	}
	if strings.Count(a.bus, ".") != 1 {
		return usagef("--bus %q: write it as catalog.schema", a.bus)
	}
	return nil
}
