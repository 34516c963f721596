package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltalog"
)

func (a *app) tableRows() *cobra.Command {
	var version int64
	var timestamp string
	c := &cobra.Command{
		Use:   "rows TABLE",
		Short: "Print the rows of a table as JSON",
		Long:  "Print each row as one JSON line (an array with -o json): times as ISO 8601, binary as base64, decimals as exact strings.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var at time.Time
			if cmd.Flags().Changed("timestamp") {
				if cmd.Flags().Changed("version") {
					return usagef("--version and --timestamp exclude each other")
				}
				var err error
				if at, err = deltalog.ParseTimestamp(timestamp); err != nil {
					return usagef("--timestamp: %w", err)
				}
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			s := t.Cached()
			switch {
			case version >= 0:
				s, err = t.SnapshotAt(cmd.Context(), version)
			case !at.IsZero():
				s, err = t.SnapshotAtTime(cmd.Context(), at)
			}
			if err != nil {
				return err
			}
			rows := a.jsonRows()
			for rec, err := range t.Scan(cmd.Context(), s, nil, nil) {
				if err != nil {
					return rows.end(err)
				}
				err := rows.addAll(rec.NumRows(), func(dst []byte, i int) ([]byte, error) { return deltalog.AppendRowJSON(dst, rec, i) })
				if err != nil {
					return rows.end(err)
				}
			}
			return rows.end(nil)
		},
	}
	c.Flags().Int64Var(&version, "version", -1, "version to read (default: the newest)")
	c.Flags().StringVar(&timestamp, "timestamp", "", "read the version of this time: 2026-01-31, 2026-01-31 12:00:00.123 (UTC) or ISO 8601 with a zone")
	return c
}
