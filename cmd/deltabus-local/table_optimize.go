package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltalog"
)

func (a *app) tableOptimize() *cobra.Command {
	var o deltalog.OptimizeOptions
	var target int64
	c := &cobra.Command{
		Use:   "optimize TABLE",
		Short: "Pack small files into larger ones",
		Long:  "Pack the small files of each partition into larger ones. No row changes: neither the feed nor a consumer sees anything of it.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if target < 1 {
				return usagef("--target-mb must be at least 1")
			}
			o.TargetSize = target << 20
			return a.withTable(cmd.Context(), args[0], func(t *deltalog.Table) error {
				r, err := t.Optimize(cmd.Context(), o)
				if err != nil {
					return err
				}
				return a.printRewrite(r, o.DryRun)
			})
		},
	}
	c.Flags().Int64Var(&target, "target-mb", 64, "size in MiB that files should have")
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "only say what would be done")
	return c
}

// printRewrite prints what an operation did to the files of a table.
func (a *app) printRewrite(r *deltalog.Rewrite, dry bool) error {
	version := "unchanged"
	switch {
	case dry:
		version = "unchanged (dry run)"
	case r.Version >= 0:
		version = strconv.FormatInt(r.Version, 10)
	}
	return a.printOne(map[string]any{
		"version": orNull(r.Version), "dry_run": dry, "files_added": r.FilesAdded, "files_removed": r.FilesRemoved, "bytes_added": r.BytesAdded, "bytes_removed": r.BytesRemoved,
	},
		[2]string{"version", version},
		[2]string{"files added", strconv.Itoa(r.FilesAdded)}, [2]string{"files removed", strconv.Itoa(r.FilesRemoved)},
		[2]string{"bytes added", strconv.FormatInt(r.BytesAdded, 10)}, [2]string{"bytes removed", strconv.FormatInt(r.BytesRemoved, 10)})
}

// orNull is a version, or null for none.
func orNull(version int64) *int64 {
	if version < 0 {
		return nil
	}
	return &version
}
