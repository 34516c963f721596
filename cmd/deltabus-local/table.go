package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

func (a *app) tableCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "table",
		Short: "Look at Delta tables, and make them",
		Long:  "Each verb takes catalog.schema.table, or the path of any Delta table on disk; a server need not run.",
		RunE: func(_ *cobra.Command, _ []string) error {
			return usagef("table needs a verb: list, create, show, history, rows, changes, files or verify")
		},
		Args: cobra.ArbitraryArgs,
	}
	c.AddCommand(a.tableList(), a.tableCreate(), a.tableShow(), a.tableHistory(), a.tableRows(), a.tableChanges(), a.tableFiles(), a.tableVerify())
	return c
}

// isPath reports whether an argument is a path: it has a separator, or is a directory.
func isPath(arg string) bool {
	if strings.ContainsAny(arg, `/\`) || strings.HasPrefix(arg, "file:") {
		return true
	}
	st, err := os.Stat(arg)
	return err == nil && st.IsDir()
}

// storeOf finds where a table is, by name or path.
func (a *app) storeOf(ctx context.Context, arg string) (store.Store, error) {
	if isPath(arg) {
		if !strings.HasPrefix(arg, "file:") {
			if _, err := os.Stat(arg); err != nil { // opening a store would make the directory
				return nil, fmt.Errorf("%w: %w", deltalog.ErrNotTable, err)
			}
		}
		return deltabus.OpenLocation(arg)
	}
	if strings.Count(arg, ".") != 2 {
		return nil, usagef("table %q: write it as catalog.schema.table, or give a path", arg)
	}
	t, err := a.target(ctx, false)
	if err != nil {
		return nil, err
	}
	open, err := t.workspace.Table(ctx, arg)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return open.Store(), t.close()
}

// openTable opens a table by name or path.
func (a *app) openTable(ctx context.Context, arg string) (*deltalog.Table, error) {
	st, err := a.storeOf(ctx, arg)
	if err != nil {
		return nil, err
	}
	return deltalog.Open(ctx, st, deltalog.Options{CheckpointInterval: -1})
}
