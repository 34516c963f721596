package main

import (
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
			target, err := a.target(cmd.Context(), false)
			if err != nil {
				return err
			}
			t := a.table("NAME", "TYPE", "LOCATION")
			if target.dir != nil {
				all, err := target.dir.List(cmd.Context(), catalog, schema)
				if err != nil {
					return errors.Join(err, target.close())
				}
				for _, i := range all {
					t.row(tableJSON{i.FullName, i.Type, i.Location}, i.FullName, i.Type, i.Location)
				}
				return errors.Join(t.flush(), target.close())
			}
			client := databricks.Catalog{Host: target.host, Token: target.token}
			all, err := client.Tables(cmd.Context(), catalog, schema)
			if err != nil {
				return err
			}
			for _, i := range all {
				t.row(tableJSON{i.FullName, i.TableType, i.StorageLocation}, i.FullName, i.TableType, i.StorageLocation)
			}
			return t.flush()
		},
	}
}
