package emulator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/internal/catalog"
)

const catalogFile = "catalog.db"

// IsDataDir reports whether dir holds a workspace: a catalog, or tables whose catalog is lost.
func IsDataDir(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, catalogFile)); err == nil {
		return true
	}
	if known, err := readStorage(dir); err == nil && known != nil {
		return true
	}
	places, err := findLocalTables(dir)
	return err == nil && len(places) > 0
}

// findLocalTables finds the managed tables of a data directory by their place, catalog/schema/table.
func findLocalTables(dir string) ([]string, error) {
	places, err := fs.Glob(os.DirFS(filepath.Join(dir, "tables")), "*/*/*/_delta_log")
	for i := range places {
		places[i] = path.Dir(places[i])
	}
	return places, err
}

// Restored names the tables that were found in the data directory and recorded when this workspace was opened, since its catalog was not
// there: the files are the truth. Empty when nothing was lost. What only the catalog knew is lost with it: external tables, schemas without
// tables, comments of schemas, the ids and credentials of the workspace.
func (w *Workspace) Restored() []string { return slices.Clone(w.restored) }

// openCatalog opens the catalog in a file, "" for memory. A new one begins with the tables that are in the data directory already.
func (w *Workspace) openCatalog(ctx context.Context, file string, s settings) error {
	var found func() ([]catalog.Table, error)
	if w.dir != "" {
		found = func() ([]catalog.Table, error) { return w.findTables(ctx) }
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) && w.CheckWritable() != nil {
			file = "" // enough to read the tables by name
		}
	}
	var err error
	w.catalog, err = catalog.Open(ctx, file, s.clock, s.noSync, found)
	return err
}

// findTables looks for managed tables by their place: tables/catalog/schema/table with a Delta log.
func (w *Workspace) findTables(ctx context.Context) ([]catalog.Table, error) {
	w.restored = nil
	var places []string
	var err error
	if w.managed != "" {
		places, err = findLocalTables(w.dir)
	} else {
		places, err = findTablesIn(ctx, w.store)
	}
	if err != nil {
		return nil, fmt.Errorf("look for tables in %s: %w", w.store.URL(""), err)
	}
	var out []catalog.Table
	for _, location := range places {
		n, err := catalog.ParseName(strings.ReplaceAll(location, "/", "."), 3)
		if err != nil || strings.Join(n, "/") != location {
			continue // of a dropped table, or nothing of ours
		}
		e := catalog.Table{Catalog: n[0], Schema: n[1], Name: n[2], Location: location, Type: managed}
		switch snap, err := w.peek(ctx, e.Location); {
		case errors.Is(err, deltalog.ErrNotTable):
			continue
		case err == nil:
			e.Comment = snap.Metadata().Description
			if at := snap.Metadata().CreatedTime; at != nil {
				e.Created = time.UnixMilli(*at)
			}
		case ctx.Err() != nil:
			return nil, ctx.Err()
		default: // a table that cannot be read has its name all the same, by which to look at it
		}
		out = append(out, e)
		w.restored = append(w.restored, e.FullName())
	}
	return out, nil
}

// peek is the newest snapshot of a table that is not in the catalog.
func (w *Workspace) peek(ctx context.Context, location string) (*deltalog.Snapshot, error) {
	st, err := w.at(location)
	if err != nil {
		return nil, err
	}
	t, err := deltalog.Open(ctx, st, w.options)
	if err != nil {
		return nil, err
	}
	return t.Cached(), t.Close()
}

// CheckWritable tries whether this process may write in the data directory, by a file that it removes again. In memory it always may.
func (w *Workspace) CheckWritable() error {
	if w.dir == "" {
		return nil
	}
	dir := w.dir
	if w.managed != "" {
		dir = w.managed
	}
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return fmt.Errorf("data directory %s: %w", w.dir, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
