package main

import (
	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltalog"
)

func (a *app) tableRows() *cobra.Command {
	var version int64
	c := &cobra.Command{
		Use:   "rows TABLE",
		Short: "Print the rows of a table as JSON",
		Long:  "Print each row as one JSON line (an array with -o json): times as ISO 8601, binary as base64, decimals as exact strings.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			s := t.Cached()
			if version >= 0 {
				if s, err = t.SnapshotAt(cmd.Context(), version); err != nil {
					return err
				}
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
	return c
}
