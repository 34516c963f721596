package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltalog"
)

func (a *app) tableVacuum() *cobra.Command {
	var o deltalog.VacuumOptions
	var force bool
	c := &cobra.Command{
		Use:   "vacuum TABLE",
		Short: "Delete files that no version within the retention needs",
		Long: "Delete files that the newest version does not have and no version within the retention had. Versions before that can no longer be read, nor their\n" +
			"changes. What a consumer of a bus still needs stays, if the table is given by its name.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(cmd.Context(), args[0], func(t *deltalog.Table) error {
				if least := t.Cached().Retention().Files; o.Retention < 0 || cmd.Flags().Changed("retain") && o.Retention < least && !force {
					return usagef("--retain %s is less than the table's own retention of %s: versions that may still be read would be lost; add --force if that is meant", o.Retention, least)
				}
				if o.Retention == 0 && cmd.Flags().Changed("retain") {
					o.Retention = time.Nanosecond // 0 stands for the table's own
				}
				gone, err := t.Vacuum(cmd.Context(), o)
				if err != nil {
					return err
				}
				out := a.table("FILE")
				for _, name := range gone {
					out.row(map[string]any{"file": name, "dry_run": o.DryRun}, name)
				}
				return out.flush()
			})
		},
	}
	c.Flags().DurationVar(&o.Retention, "retain", 0, "how long files stay after their removal (default: the table's delta.deletedFileRetentionDuration)")
	c.Flags().BoolVar(&force, "force", false, "take a --retain that is shorter than the table's own")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "only name the files")
	return c
}
