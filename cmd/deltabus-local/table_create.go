package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/internal/catalog"
)

func (a *app) tableCreate() *cobra.Command {
	var columns, partition, properties []string
	var cdfOn bool
	var comment string
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a managed table",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := deltalog.TableSpec{Description: comment, PartitionColumns: partition, Configuration: map[string]string{}}
			if _, err := catalog.ParseName(args[0], 3); err != nil {
				return usagef("write it as catalog.schema.table: %w", err)
			}
			if len(columns) == 0 {
				return usagef("a table needs --column, like --column \"id BIGINT NOT NULL\"")
			}
			for _, d := range columns {
				f, err := deltalog.ParseColumn(d)
				if err != nil {
					return usagef("--column: %w", err)
				}
				spec.Schema.Fields = append(spec.Schema.Fields, f)
			}
			for _, p := range properties {
				k, v, ok := strings.Cut(p, "=")
				if !ok {
					return usagef("--property %q: write it as key=value", p)
				}
				spec.Configuration[k] = v
			}
			if cdfOn {
				spec.Configuration["delta.enableChangeDataFeed"] = "true"
			}
			t, err := a.target(cmd.Context(), creating)
			if err != nil {
				return err
			}
			if _, err := t.workspace.CreateTable(cmd.Context(), args[0], spec); err != nil {
				return errors.Join(err, t.close())
			}
			return errors.Join(t.close(), a.showTable(cmd.Context(), args[0]))
		},
	}
	fl := c.Flags()
	fl.StringArrayVar(&columns, "column", nil, "column definition like \"id BIGINT NOT NULL\"; once for each column")
	fl.StringSliceVar(&partition, "partition-by", nil, "partition columns")
	fl.StringArrayVar(&properties, "property", nil, "table property as key=value")
	fl.BoolVar(&cdfOn, "cdf", false, "enable the change data feed")
	fl.StringVar(&comment, "comment", "", "what the table is for")
	return c
}
