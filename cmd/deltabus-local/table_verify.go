package main

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltalog/verify"
)

func (a *app) tableVerify() *cobra.Command {
	return &cobra.Command{
		Use:   "verify TABLE",
		Short: "Audit a table: its log, its files and their statistics",
		Long:  "Audit a table and exit with 1 if something is wrong. Files that no version names, as a crash leaves them, are reported, not failed.",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			st, err := a.storeOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			report, err := verify.Verify(cmd.Context(), st)
			if err != nil {
				return err
			}
			lines := [][2]string{
				{"versions", fmt.Sprintf("%d to %d", report.FirstVersion, report.Version)},
				{"files", strconv.Itoa(report.Files)},
				{"rows", strconv.FormatInt(report.Rows, 10)},
				{"inserted", strconv.FormatInt(report.Inserted, 10)},
				{"checkpoints", strconv.Itoa(report.Checkpoints)},
			}
			for _, n := range report.Notes {
				lines = append(lines, [2]string{"note", n})
			}
			for _, p := range report.Problems {
				lines = append(lines, [2]string{"PROBLEM", p})
			}
			if err := a.printOne(report, lines...); err != nil {
				return err
			}
			if len(report.Problems) > 0 {
				return advise(fmt.Errorf("table %s: %d problems", filepath.Base(args[0]), len(report.Problems)),
					"bring the files that the problems name back from a copy; what is still readable 'deltabus-local table rows --version N' shows")
			}
			return nil
		},
	}
}
