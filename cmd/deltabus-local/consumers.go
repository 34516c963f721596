package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltabus"
)

type consumerJSON struct {
	Consumer        string   `json:"consumer_id"`
	Filter          string   `json:"topic_filter"`
	State           string   `json:"status"`
	Version         int64    `json:"version"`
	Position        int64    `json:"position"`
	BackfillVersion *int64   `json:"backfill_version"`
	LagVersions     *int64   `json:"lag_versions"`
	LagEvents       *int64   `json:"lag_events"`
	LagSeconds      *float64 `json:"lag_seconds"`
	// KeptUntil is null where nothing is left to read, too.
	KeptUntil     *time.Time `json:"kept_until"`
	Epoch         int64      `json:"epoch"`
	StalledStarts int        `json:"stalled_starts"`
	Owner         string     `json:"owner"`
	UpdatedAt     time.Time  `json:"updated_at"`
}

func (a *app) consumersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "consumers",
		Short: "Show where each consumer is and how far behind",
		Long: "Show each consumer's position and lag. A lag that is not known is shown as ?, and null in JSON; it is not zero. KEPT UNTIL is until\n" +
			"when, at least, the history stays that the consumer has yet to read, if it does not move: its retention and 90 days.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withBus(cmd.Context(), reading, func(b *deltabus.Bus) error {
				all, err := b.Consumers(cmd.Context())
				if err != nil {
					return err
				}
				t := a.table("CONSUMER", "FILTER", "STATUS", "POSITION", "LAG VERSIONS", "LAG EVENTS", "LAG TIME", "KEPT UNTIL", "UPDATED")
				for _, s := range all {
					j := consumerJSON{
						Consumer: s.Consumer, Filter: s.Filter, State: s.State, Version: s.Version, Position: s.Position,
						BackfillVersion: s.Backfill, LagVersions: s.LagVersions, LagEvents: s.LagEvents, Epoch: s.Epoch,
						StalledStarts: s.StalledStarts, Owner: s.Owner, UpdatedAt: s.UpdatedAt, KeptUntil: s.KeptUntil,
					}
					lag := "?"
					if s.LagTime != nil {
						seconds := s.LagTime.Seconds()
						j.LagSeconds = &seconds
						lag = s.LagTime.Round(time.Millisecond).String()
					}
					position := strconv.FormatInt(s.Version, 10)
					if s.Position > 0 {
						position += "+" + strconv.FormatInt(s.Position, 10)
					}
					t.row(j, s.Consumer, s.Filter, s.State, position, known(s.LagVersions), known(s.LagEvents), lag, kept(s), stamp(s.UpdatedAt))
				}
				return t.flush()
			})
		},
	}
}

// kept is until when the history is kept that a consumer has yet to read.
func kept(s deltabus.ConsumerStatus) string {
	switch {
	case s.KeptUntil != nil:
		return s.KeptUntil.UTC().Format("2006-01-02T15:04Z")
	case s.State == deltabus.StateCurrent:
		return "-"
	}
	return "?"
}

func known(n *int64) string {
	if n == nil {
		return "?"
	}
	return strconv.FormatInt(*n, 10)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}
