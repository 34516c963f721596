package main

import (
	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/cdf"
)

func (a *app) tableChanges() *cobra.Command {
	var from, to int64
	c := &cobra.Command{
		Use:   "changes TABLE",
		Short: "Print the change data feed of a range of versions as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if from < 0 {
				return usagef("--from is required")
			}
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			r := cdf.Range{StartVersion: &from}
			if to >= 0 {
				r.EndVersion = &to
			}
			rows := a.jsonRows()
			for b, err := range cdf.Read(cmd.Context(), t, r, nil) {
				if err != nil {
					return rows.end(err)
				}
				if err := rows.addAll(b.Rows.NumRows(), b.AppendRowJSON); err != nil {
					return rows.end(err)
				}
			}
			return rows.end(nil)
		},
	}
	c.Flags().Int64Var(&from, "from", -1, "first version (required)")
	c.Flags().Int64Var(&to, "to", -1, "last version (default: the newest)")
	return c
}
