package emulator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/internal/catalog"
)

// Workspace is a catalog and its tables, without any server: what the command line works on when none runs. Safe for
// concurrent use, and by several processes at once when it is a directory.
type Workspace struct {
	catalog *catalog.Catalog
	store   store.Store
	dir     string // "" in memory
	managed string // the directory of the managed tables; "" if they are elsewhere
	noSync  bool
	options deltalog.Options
	// each changes the options of single tables.
	each []TableOptions

	// restored are the tables that a new catalog was made of.
	restored []string

	// ending, if set, is told of a table that is about to be dropped, and returns when nothing is written to it any more.
	ending func(*deltalog.Table)

	mu     sync.Mutex
	tables map[string]*handle // by full name
}

// handle is an open table and the catalog entry it was opened for.
type handle struct {
	id string
	t  *deltalog.Table
}

// OpenDir opens the workspace in a data directory, making it if it is not there. A directory that may only be read is opened for reading:
// CheckWritable tells. A catalog that is lost is made anew, see Restored. each is as for WithTableOptions.
func OpenDir(ctx context.Context, dir string, each ...TableOptions) (*Workspace, error) {
	return openWorkspace(ctx, settings{dataDir: dir, tableOptions: each})
}

func openWorkspace(ctx context.Context, s settings) (*Workspace, error) {
	w := &Workspace{
		dir: s.dataDir, noSync: s.noSync, tables: map[string]*handle{},
		options: deltalog.Options{Clock: s.clock, Logger: s.logger}, each: s.tableOptions,
	}
	file := ""
	if w.dir != "" {
		abs, err := filepath.Abs(w.dir)
		if err != nil {
			return nil, fmt.Errorf("open workspace %s: %w", w.dir, err)
		}
		w.dir, file = abs, filepath.Join(abs, catalogFile)
	}
	if err := w.openStore(ctx, s); err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	if err := w.openCatalog(ctx, file, s); err != nil {
		return nil, fmt.Errorf("open workspace: %w", err)
	}
	return w, nil
}

// Close closes the tables and the catalog.
func (w *Workspace) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, h := range w.tables {
		errs = append(errs, h.t.Close())
	}
	w.tables = map[string]*handle{}
	return errors.Join(append(errs, w.catalog.Close())...)
}

// Store is where the managed tables live: catalog.schema.table is at catalog/schema/table.
func (w *Workspace) Store() store.Store { return w.store }

// TableInfo is a table as the catalog has it.
type TableInfo struct {
	FullName, ID, Type, Comment string
	// Location is the URL of the table's directory.
	Location string
	Created  time.Time
}

// Info finds a table in the catalog. An absent one is an error that matches deltalog.ErrNotTable.
func (w *Workspace) Info(ctx context.Context, fullName string) (TableInfo, error) {
	entry, err := w.entry(ctx, fullName)
	if err != nil {
		return TableInfo{}, err
	}
	return w.info(entry), nil
}

func (w *Workspace) info(e catalog.Table) TableInfo {
	location := e.Location
	if !strings.Contains(location, "://") {
		location = strings.TrimSuffix(w.store.URL(location), "/")
	}
	return TableInfo{FullName: e.FullName(), ID: e.ID, Type: e.Type, Comment: e.Comment, Location: location, Created: e.Created}
}

// CreateCatalog makes a catalog. An existing one is an error that matches catalog.ErrExists.
func (w *Workspace) CreateCatalog(ctx context.Context, name, comment string) error {
	return w.catalog.CreateCatalog(ctx, name, comment)
}

// CreateSchema makes catalog.schema in a catalog that is there. An existing one is an error that matches catalog.ErrExists.
func (w *Workspace) CreateSchema(ctx context.Context, fullName, comment string) error {
	n, err := catalog.ParseName(fullName, 2)
	if err != nil {
		return err
	}
	return w.catalog.CreateSchema(ctx, n[0], n[1], comment)
}

// Catalogs lists the names of the catalogs, in order.
func (w *Workspace) Catalogs(ctx context.Context) ([]string, error) {
	return names(w.catalog.Catalogs(ctx))
}

// Schemas lists the names of a catalog's schemas, without the catalog, in order.
func (w *Workspace) Schemas(ctx context.Context, catalogName string) ([]string, error) {
	return names(w.catalog.Schemas(ctx, catalogName))
}

func names(all []catalog.Schema, err error) ([]string, error) {
	out := make([]string, len(all))
	for i, s := range all {
		out[i] = s.Name
	}
	return out, err
}

// List lists the tables of a catalog or schema by name; "" for all.
func (w *Workspace) List(ctx context.Context, catalogName, schema string) ([]TableInfo, error) {
	entries, err := w.catalog.Tables(ctx, catalogName, schema)
	if err != nil {
		return nil, err
	}
	out := make([]TableInfo, len(entries))
	for i, e := range entries {
		out[i] = w.info(e)
	}
	return out, nil
}

func (w *Workspace) entry(ctx context.Context, fullName string) (catalog.Table, error) {
	e, err := w.catalog.Table(ctx, fullName)
	if errors.Is(err, catalog.ErrNotFound) {
		err = fmt.Errorf("%w: %w", deltalog.ErrNotTable, err)
	}
	return e, err
}

// Table opens catalog.schema.table: the one shared handle of this process, for as long as the table is there. An absent table is an
// error that matches deltalog.ErrNotTable.
func (w *Workspace) Table(ctx context.Context, fullName string) (*deltalog.Table, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, err := w.entry(ctx, fullName)
	if err != nil {
		return nil, err
	}
	return w.open(ctx, e)
}

// open returns the handle of an entry; the caller holds mu.
func (w *Workspace) open(ctx context.Context, e catalog.Table) (*deltalog.Table, error) {
	name := e.FullName()
	if h := w.tables[name]; h != nil && h.id == e.ID {
		gone, err := h.t.Recreated(ctx, h.t.Cached().Version())
		if err == nil && !gone {
			return h.t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
		// Somebody removed its files, and perhaps made another table there.
		if w.ending != nil {
			w.ending(h.t)
		}
		delete(w.tables, name)
		if err := h.t.Close(); err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
	}
	st, err := w.at(e.Location)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	options := w.options
	for _, f := range w.each {
		f(name, w.openApart, &options)
	}
	t, err := deltalog.Open(ctx, st, options)
	if errors.Is(err, deltalog.ErrNotTable) {
		return nil, fmt.Errorf("table %s is in the catalog, and its log is gone: drop the table, or bring its files back: %w", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	if h := w.tables[name]; h != nil { // of a table of that name that another process dropped
		if err := h.t.Close(); err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
	}
	w.tables[name] = &handle{e.ID, t}
	return t, nil
}

// openApart opens a table for reading, without the shared handles and their lock.
func (w *Workspace) openApart(ctx context.Context, fullName string) (*deltalog.Table, error) {
	e, err := w.entry(ctx, fullName)
	if err != nil {
		return nil, err
	}
	st, err := w.at(e.Location)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", fullName, err)
	}
	options := w.options
	options.CheckpointInterval = -1
	return deltalog.Open(ctx, st, options)
}
