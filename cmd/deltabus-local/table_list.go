package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/internal/databricks"
)

type tableJSON struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Location string `json:"location"`
}

func (a *app) tableList() *cobra.Command {
	return &cobra.Command{
		Use:   "list [CATALOG[.SCHEMA]]",
		Short: "List the tables of the workspace",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			catalog, schema := "", ""
			if len(args) == 1 {
				catalog, schema, _ = strings.Cut(args[0], ".")
			}
			target, err := a.target(cmd.Context(), reading)
			if err != nil {
				return err
			}
			all, err := target.tables(cmd.Context(), catalog, schema)
			if err := errors.Join(err, target.close()); err != nil {
				return err
			}
			t := a.table("NAME", "TYPE", "LOCATION")
			for _, i := range all {
				t.row(i, i.Name, i.Type, i.Location)
			}
			return t.flush()
		},
	}
}

// tables lists the tables of a catalog or schema as the catalog has them; "" for all.
func (t *target) tables(ctx context.Context, catalog, schema string) ([]tableJSON, error) {
	var out []tableJSON
	if t.dir != nil {
		all, err := t.dir.List(ctx, catalog, schema)
		for _, i := range all {
			out = append(out, tableJSON{i.FullName, i.Type, i.Location})
		}
		return out, err
	}
	client := databricks.Catalog{Host: t.host, Token: t.token}
	all, err := client.Tables(ctx, catalog, schema)
	for _, i := range all {
		out = append(out, tableJSON{i.FullName, i.TableType, i.StorageLocation})
	}
	return out, err
}
