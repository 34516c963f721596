package main

import (
	"strconv"

	"github.com/spf13/cobra"
)

func (a *app) tableHistory() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:   "history TABLE",
		Short: "List the versions of a table, newest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			out := a.table("VERSION", "TIMESTAMP", "OPERATION", "ADDED", "REMOVED", "ENGINE")
			n := 0
			for c, err := range t.History(cmd.Context()) {
				if err != nil {
					return err
				}
				if n++; limit > 0 && n > limit {
					break
				}
				added, removed := c.Changed()
				info := c.Info()
				out.row(map[string]any{
					"version": c.Version, "timestamp": stamp(c.Timestamp), "operation": info.String("operation"),
					"files_added": added, "files_removed": removed, "engine": info.String("engineInfo"), "commit_info": info,
				}, strconv.FormatInt(c.Version, 10), stamp(c.Timestamp), orDash(info.String("operation")), strconv.Itoa(added), strconv.Itoa(removed), orDash(info.String("engineInfo")))
			}
			return out.flush()
		},
	}
	c.Flags().IntVar(&limit, "limit", 0, "most versions to list (default: all)")
	return c
}
