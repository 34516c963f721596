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
			return usagef("table needs a verb: list, create, show, history, rows, changes, files, verify, optimize, vacuum or restore")
		},
		Args: cobra.ArbitraryArgs,
	}
	c.AddCommand(a.tableList(), a.tableCreate(), a.tableShow(), a.tableHistory(), a.tableRows(), a.tableChanges(), a.tableFiles(), a.tableVerify(),
		a.tableOptimize(), a.tableVacuum(), a.tableRestore())
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

// openTable opens a table by name or path.
func (a *app) openTable(ctx context.Context, arg string) (*deltalog.Table, error) {
	st, err := a.storeOf(ctx, arg)
	if err != nil {
		return nil, err
	}
	return deltalog.Open(ctx, st, deltalog.Options{CheckpointInterval: -1})
}

// storeOf finds where a table is, by name or path.
func (a *app) storeOf(ctx context.Context, arg string) (store.Store, error) {
	if isPath(arg) {
		return a.storeAt(arg)
	}
	return a.storeNamed(ctx, arg)
}

// storeAt is the store of a table at a path.
func (a *app) storeAt(path string) (store.Store, error) {
	if err := a.refuse("the table is given by its path", "host", "token", "data-dir"); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(path, "file:") {
		if _, err := os.Stat(path); err != nil { // opening a store would make the directory
			return nil, fmt.Errorf("%w: %w", deltalog.ErrNotTable, err)
		}
	}
	return deltabus.OpenLocation(path)
}

// storeNamed is the store of catalog.schema.table. A table that cannot be opened is found by the catalog alone: the verb says what is wrong.
func (a *app) storeNamed(ctx context.Context, name string) (st store.Store, err error) {
	if strings.Count(name, ".") != 2 {
		return nil, usagef("table %q: write it as catalog.schema.table, or give a path", name)
	}
	t, err := a.target(ctx, reading)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	open, err := t.workspace.Table(ctx, name)
	if err == nil {
		return open.Store(), nil
	}
	if errors.Is(err, deltalog.ErrNotTable) {
		return nil, err
	}
	all, listErr := t.tables(ctx, strings.Split(name, ".")[0], strings.Split(name, ".")[1])
	for _, i := range all {
		if strings.EqualFold(i.Name, name) {
			return deltabus.OpenLocation(i.Location)
		}
	}
	return nil, errors.Join(err, listErr)
}

// withTable runs f with a table that may be written, by name or path. By name it has the options of its workspace: what others still need of it
// is kept.
func (a *app) withTable(ctx context.Context, arg string, f func(*deltalog.Table) error) error {
	if isPath(arg) {
		t, err := a.openTable(ctx, arg)
		if err != nil {
			return err
		}
		return errors.Join(f(t), t.Close())
	}
	if strings.Count(arg, ".") != 2 {
		return usagef("table %q: write it as catalog.schema.table, or give a path", arg)
	}
	w, err := a.target(ctx, writing)
	if err != nil {
		return err
	}
	t, err := w.workspace.Table(ctx, arg)
	if err == nil {
		err = errors.Join(f(t), t.Close())
	}
	return errors.Join(err, w.close())
}
