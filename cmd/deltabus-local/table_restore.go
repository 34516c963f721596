package main

import (
	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltalog"
)

func (a *app) tableRestore() *cobra.Command {
	var o deltalog.RestoreOptions
	var version int64
	c := &cobra.Command{
		Use:   "restore TABLE",
		Short: "Make a table what it was at a version",
		Long:  "Make a table what it was at a version, in a new version: rows, schema and properties. The feed shows what that changes; consumers of a bus's messages stop there and ask for a decision.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if version < 0 {
				return usagef("--version is required")
			}
			return a.withTable(cmd.Context(), args[0], func(t *deltalog.Table) error {
				r, err := t.Restore(cmd.Context(), version, o)
				if err != nil {
					return err
				}
				return a.printRewrite(r, o.DryRun)
			})
		},
	}
	c.Flags().Int64Var(&version, "version", -1, "version to go back to (required; 'table history' shows them)")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	return c
}
