package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltabus"
)

type consumeFlags struct {
	id, topic, from, exec string
	max, retries          int
	follow                bool
	changeFilter, reset   bool
}

func (a *app) consumeCommand() *cobra.Command {
	var f consumeFlags
	c := &cobra.Command{
		Use:   "consume",
		Short: "Print events as JSON lines, or give each to a command",
		Long: "Consume from the stored position of --id. Each event is printed as one JSON line; with --exec it goes to the command's stdin\n" +
			"instead, and the exit code is the answer: 0 done, 65 a dead letter at once, 99 stop before this event, anything else try again.\n" +
			"Without --follow it ends once all that was committed at its start is done. A new --id starts at --from.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options()
			if err != nil {
				return err
			}
			return a.withBus(cmd.Context(), writing, func(b *deltabus.Bus) error { return a.consume(cmd, b, f, opts) })
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.id, "id", "", "consumer id (required)")
	fl.StringVar(&f.topic, "topic", "", "topic filter: segments parted by dots, * for one, a last > for the rest, several by comma (required)")
	fl.StringVar(&f.from, "from", "earliest", "where a new id starts: earliest, latest or version:N")
	fl.IntVar(&f.max, "max", 0, "end after so many events (default: no limit)")
	fl.BoolVar(&f.follow, "follow", false, "go on with what is committed later, until a signal")
	fl.StringVar(&f.exec, "exec", "", "command that handles each event")
	fl.IntVar(&f.retries, "retries", 5, "attempts before an event is a dead letter")
	fl.BoolVar(&f.changeFilter, "change-filter", false, "accept that the stored position is for another --topic")
	fl.BoolVar(&f.reset, "reset", false, "forget the stored position and start at --from")
	return c
}

// options turns flags into options.
func (f consumeFlags) options() ([]deltabus.ConsumerOption, error) {
	if f.id == "" || f.topic == "" {
		return nil, usagef("--id and --topic are required")
	}
	from, err := deltabus.ParseFrom(f.from)
	if err != nil {
		return nil, usagef("--from: %w", err)
	}
	if f.retries < 1 || f.max < 0 {
		return nil, usagef("--retries must be at least 1, and --max not negative")
	}
	opts := []deltabus.ConsumerOption{deltabus.WithFrom(from), deltabus.WithMaxEvents(f.max), deltabus.WithRetry(deltabus.RetryPolicy{MaxAttempts: f.retries})}
	if !f.follow {
		opts = append(opts, deltabus.UntilCurrent())
	}
	if f.changeFilter {
		opts = append(opts, deltabus.WithChangedFilter())
	}
	if f.reset {
		opts = append(opts, deltabus.WithReset(from))
	}
	return opts, nil
}

func (a *app) consume(cmd *cobra.Command, b *deltabus.Bus, f consumeFlags, opts []deltabus.ConsumerOption) error {
	rows := &jsonRows{w: a.out, array: a.output == "json"}
	handler := func(_ context.Context, e deltabus.Event) error {
		line, err := json.Marshal(toEventJSON(e))
		if err != nil {
			return deltabus.Skip(err)
		}
		if err := rows.add(line); err != nil { // nobody reads any more: the event is not done
			return deltabus.Stop(err)
		}
		return nil
	}
	if f.exec != "" {
		handler = a.execHandler(f.exec)
	}
	var t tally
	c, err := b.Consumer(f.id, f.topic, handler, append(opts, deltabus.WithObserver(t.observer()))...)
	if err != nil {
		return &usageError{err}
	}
	ctx := cmd.Context()
	go a.secondSignal(ctx, c)
	err = c.Run(ctx)
	if f.exec != "" || t.dead > 0 {
		fmt.Fprintf(a.err, "deltabus-local: %s\n", t.summary(f.id))
	}
	if f.exec != "" {
		return err
	}
	return rows.end(err)
}
