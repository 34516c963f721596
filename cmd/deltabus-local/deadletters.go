package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltabus"
)

type attemptJSON struct {
	At        time.Time `json:"at"`
	Error     string    `json:"error"`
	ErrorType string    `json:"error_type"`
}

type deadLetterJSON struct {
	ID              string        `json:"dead_letter_id"`
	Consumer        string        `json:"consumer_id"`
	Status          string        `json:"status"`
	Error           string        `json:"error"`
	ErrorType       string        `json:"error_type"`
	ErrorStack      string        `json:"error_stack,omitempty"`
	Attempts        int           `json:"attempts"`
	AttemptLog      []attemptJSON `json:"attempt_log"`
	FirstFailedAt   time.Time     `json:"first_failed_at"`
	DeadLetteredAt  time.Time     `json:"dead_lettered_at"`
	StatusAt        *time.Time    `json:"status_at"`
	ReplayMessageID string        `json:"replay_message_id,omitempty"`
	Origin          string        `json:"origin_dead_letter_id,omitempty"`
	Replay          int           `json:"replay_number"`
	Event           eventJSON     `json:"event"`
}

func toDeadLetterJSON(d deltabus.DeadLetter) deadLetterJSON {
	out := deadLetterJSON{
		ID: d.ID, Consumer: d.Consumer, Status: d.Status, Error: d.Error, ErrorType: d.ErrorType, ErrorStack: d.Stack,
		Attempts: d.Attempts, AttemptLog: []attemptJSON{}, FirstFailedAt: d.FirstFailedAt, DeadLetteredAt: d.DeadLetteredAt,
		ReplayMessageID: d.ReplayMessageID, Origin: d.Origin, Replay: d.Replay, Event: toEventJSON(d.Event),
	}
	if !d.StatusAt.IsZero() {
		out.StatusAt = &d.StatusAt
	}
	for _, l := range d.Log {
		out.AttemptLog = append(out.AttemptLog, attemptJSON(l))
	}
	return out
}

func (a *app) deadLettersCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "deadletters",
		Short: "Look at events that failed too often, replay or discard them",
		RunE: func(_ *cobra.Command, args []string) error {
			return usagef("deadletters needs a verb: list, show, replay or discard")
		},
		Args: cobra.ArbitraryArgs,
	}
	c.AddCommand(a.deadLettersList(), a.deadLettersShow(), a.deadLettersReplay(), a.deadLettersDiscard())
	return c
}

func (a *app) printDeadLetters(all []deltabus.DeadLetter) error {
	t := a.table("ID", "CONSUMER", "STATUS", "TOPIC", "ATTEMPTS", "REPLAY", "AT", "ERROR")
	for _, d := range all {
		text := d.Error
		if len(text) > 60 {
			text = text[:57] + "..."
		}
		t.row(toDeadLetterJSON(d), d.ID, d.Consumer, d.Status, d.Event.Topic, strconv.Itoa(d.Attempts), strconv.Itoa(d.Replay), stamp(d.DeadLetteredAt), strconv.Quote(text))
	}
	return t.flush()
}

func (a *app) deadLettersList() *cobra.Command {
	var f deltabus.DeadLetterFilter
	c := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, oldest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch f.Status {
			case "", deltabus.StatusOpen, deltabus.StatusReplayed, deltabus.StatusDiscarded:
			default:
				return usagef("--status %q: use open, replayed or discarded", f.Status)
			}
			return a.withBus(cmd.Context(), reading, func(b *deltabus.Bus) error {
				all, err := b.DeadLetters().List(cmd.Context(), f)
				if err != nil {
					return err
				}
				return a.printDeadLetters(all)
			})
		},
	}
	c.Flags().StringVar(&f.Consumer, "consumer", "", "only those of one consumer")
	c.Flags().StringVar(&f.Status, "status", "", "only those that are open, replayed or discarded")
	return c
}

func (a *app) deadLettersShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show one dead letter with its event and every attempt",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withBus(cmd.Context(), reading, func(b *deltabus.Bus) error {
				d, err := b.DeadLetters().Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				lines := [][2]string{
					{"id", d.ID},
					{"consumer", d.Consumer},
					{"status", d.Status},
					{"topic", d.Event.Topic},
					{"message", d.Event.ID},
					{"version", strconv.FormatInt(d.Event.Version, 10)},
					{"payload", string(d.Event.Payload)},
					{"error", d.Error},
					{"error type", d.ErrorType},
					{"attempts", strconv.Itoa(d.Attempts)},
					{"replay", strconv.Itoa(d.Replay)},
				}
				if d.Origin != "" {
					lines = append(lines, [2]string{"replayed from", d.Origin})
				}
				for _, l := range d.Log {
					lines = append(lines, [2]string{"attempt", fmt.Sprintf("%s  %s (%s)", stamp(l.At), l.Error, l.ErrorType)})
				}
				if d.Stack != "" {
					lines = append(lines, [2]string{"stack", "\n" + d.Stack})
				}
				return a.printOne(toDeadLetterJSON(d), lines...)
			})
		},
	}
}

// selection is which dead letters a change is for: ids, or all open ones of a consumer.
func selection(ids []string, consumer string) (deltabus.DeadLetterFilter, error) {
	switch {
	case len(ids) > 0 && consumer != "":
		return deltabus.DeadLetterFilter{}, usagef("give ids or --consumer, not both")
	case len(ids) > 0:
		return deltabus.DeadLetterFilter{IDs: ids}, nil
	case consumer != "":
		return deltabus.DeadLetterFilter{Consumer: consumer}, nil
	}
	return deltabus.DeadLetterFilter{}, usagef("which dead letters? give ids, or --consumer for all open ones of a consumer")
}

// printChanged prints the dead letters that a change was for. That there was none is no error: a repeat after a crash finds nothing to do.
func (a *app) printChanged(done []deltabus.DeadLetter, f deltabus.DeadLetterFilter) error {
	const look = "'deltabus-local deadletters list' shows all there are"
	switch before := len(f.IDs) - len(done); {
	case len(done) == 0 && f.Consumer != "":
		fmt.Fprintf(a.err, "deltabus-local: no open dead letter of consumer %s; %s\n", f.Consumer, look)
	case before > 0:
		fmt.Fprintf(a.err, "deltabus-local: %d of %d are not open any more; %s\n", before, len(f.IDs), look)
	}
	return a.printDeadLetters(done)
}

func (a *app) deadLettersReplay() *cobra.Command {
	var consumer, to string
	c := &cobra.Command{
		Use:   "replay (ID… | --consumer ID)",
		Short: "Publish dead letters again, to the consumer that failed or to the topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := selection(args, consumer)
			if err != nil {
				return err
			}
			if to != string(deltabus.ToConsumer) && to != string(deltabus.ToTopic) {
				return usagef("--to %q: use consumer or topic", to)
			}
			return a.withBus(cmd.Context(), writing, func(b *deltabus.Bus) error {
				done, err := b.DeadLetters().Replay(cmd.Context(), f, deltabus.ReplayTarget(to))
				if err != nil {
					return err
				}
				return a.printChanged(done, f)
			})
		},
	}
	c.Flags().StringVar(&consumer, "consumer", "", "all open dead letters of this consumer")
	c.Flags().StringVar(&to, "to", "consumer", "consumer: only to the one that failed; topic: to everybody")
	return c
}

func (a *app) deadLettersDiscard() *cobra.Command {
	var consumer string
	c := &cobra.Command{
		Use:   "discard (ID… | --consumer ID)",
		Short: "Mark dead letters as not to be replayed",
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := selection(args, consumer)
			if err != nil {
				return err
			}
			return a.withBus(cmd.Context(), writing, func(b *deltabus.Bus) error {
				done, err := b.DeadLetters().Discard(cmd.Context(), f)
				if err != nil {
					return err
				}
				return a.printChanged(done, f)
			})
		},
	}
	c.Flags().StringVar(&consumer, "consumer", "", "all open dead letters of this consumer")
	return c
}
