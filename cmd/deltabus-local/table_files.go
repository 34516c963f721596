package main

import (
	"encoding/json"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltalog"
)

func (a *app) tableFiles() *cobra.Command {
	return &cobra.Command{
		Use:   "files TABLE",
		Short: "List the data files of the newest version",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.openTable(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			out := a.table("PATH", "ROWS", "BYTES")
			for f := range t.Cached().Files() {
				stats, err := deltalog.ParseStats(f.Stats)
				rows := "?"
				if err == nil && stats.NumRecords != nil {
					rows = strconv.FormatInt(*stats.NumRecords, 10)
				}
				var raw any
				if json.Unmarshal([]byte(f.Stats), &raw) != nil {
					raw = nil
				}
				out.row(map[string]any{
					"path": f.Path, "partition_values": f.PartitionValues, "size": f.Size, "num_records": stats.NumRecords, "stats": raw,
				}, f.Path, rows, strconv.FormatInt(f.Size, 10))
			}
			return out.flush()
		},
	}
}
