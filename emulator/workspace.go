package emulator

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
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
	noSync  bool
	options deltalog.Options

	mu     sync.Mutex
	tables map[string]*handle // by full name
}

// handle is an open table and the catalog entry it was opened for.
type handle struct {
	id string
	t  *deltalog.Table
}

// OpenDir opens the workspace in a data directory, making it if it is not there.
func OpenDir(ctx context.Context, dir string) (*Workspace, error) {
	return openWorkspace(ctx, settings{dataDir: dir})
}

func openWorkspace(ctx context.Context, s settings) (*Workspace, error) {
	w := &Workspace{
		dir: s.dataDir, noSync: s.noSync, tables: map[string]*handle{},
		options: deltalog.Options{Clock: s.clock, Logger: s.logger},
	}
	file := ""
	if w.dir == "" {
		w.store = store.NewMemory()
	} else {
		abs, err := filepath.Abs(w.dir)
		if err != nil {
			return nil, fmt.Errorf("open workspace %s: %w", w.dir, err)
		}
		w.dir, file = abs, filepath.Join(abs, "catalog.db")
		if w.store, err = store.NewLocal(filepath.Join(abs, "tables"), s.noSync); err != nil {
			return nil, fmt.Errorf("open workspace: %w", err)
		}
	}
	var err error
	if w.catalog, err = catalog.Open(ctx, file, s.clock); err != nil {
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

// Table opens catalog.schema.table: the one shared handle of this process. An absent table is an error that matches
// deltalog.ErrNotTable.
func (w *Workspace) Table(ctx context.Context, fullName string) (*deltalog.Table, error) {
	e, err := w.entry(ctx, fullName)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open(ctx, e)
}

// open returns the handle of an entry; the caller holds mu.
func (w *Workspace) open(ctx context.Context, e catalog.Table) (*deltalog.Table, error) {
	name := e.FullName()
	if h := w.tables[name]; h != nil && h.id == e.ID {
		return h.t, nil
	}
	st, err := w.at(e.Location)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	t, err := deltalog.Open(ctx, st, w.options)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	w.tables[name] = &handle{e.ID, t}
	return t, nil
}

// at is the store of a location.
func (w *Workspace) at(location string) (store.Store, error) {
	if !strings.Contains(location, "://") {
		return store.Sub(w.store, location), nil
	}
	dir, err := localPath(location)
	if err != nil {
		return nil, err
	}
	if w.dir == "" {
		return nil, errors.New("a workspace in memory has no external tables: start it with a data directory")
	}
	return store.NewLocal(dir, w.noSync)
}

// localPath is the path of a file:// URL.
func localPath(location string) (string, error) {
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "file" || u.Host != "" && u.Host != "localhost" {
		return "", fmt.Errorf("location %s: only file:///… is supported", location)
	}
	return filepath.FromSlash(u.Path), nil
}

// CreateTable makes catalog.schema.table as a managed table, with its schema if that is missing. An existing table is an error
// that matches deltalog.ErrTableExists.
//
// The Delta log is made first, then the catalog's entry: what a crash between the two leaves is a log that nobody names, which the next
// try takes up if it is the same table.
func (w *Workspace) CreateTable(ctx context.Context, fullName string, spec deltalog.TableSpec) (*deltalog.Table, error) {
	return w.create(ctx, fullName, "", spec)
}

// create makes a table at location, "" for a managed one.
func (w *Workspace) create(ctx context.Context, fullName, location string, spec deltalog.TableSpec) (*deltalog.Table, error) {
	fail := func(err error) (*deltalog.Table, error) {
		return nil, fmt.Errorf("create table %s: %w", fullName, err)
	}
	n, err := catalog.ParseName(fullName, 3)
	if err != nil {
		return fail(err)
	}
	e := catalog.Table{Catalog: n[0], Schema: n[1], Name: n[2], Location: location, Type: "EXTERNAL", Comment: spec.Description}
	if location == "" {
		e.Location, e.Type = strings.Join(n, "/"), "MANAGED"
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.catalog.Table(ctx, fullName); err == nil {
		return fail(deltalog.ErrTableExists)
	} else if !errors.Is(err, catalog.ErrNotFound) {
		return fail(err)
	}
	if err := w.catalog.CreateSchema(ctx, n[0], n[1], ""); err != nil && !errors.Is(err, catalog.ErrExists) {
		return fail(err)
	}
	st, err := w.at(e.Location)
	if err != nil {
		return fail(err)
	}
	if len(spec.Schema.Fields) == 0 && e.Type == "EXTERNAL" { // an existing table is registered
		if _, err := deltalog.Open(ctx, st, w.options); err != nil {
			return fail(err)
		}
	} else if _, err := deltalog.Create(ctx, st, spec, w.options); errors.Is(err, deltalog.ErrTableExists) {
		if err := w.sameTable(ctx, st, spec); err != nil {
			return fail(err)
		}
	} else if err != nil {
		return fail(err)
	}
	if e, err = w.catalog.CreateTable(ctx, e); errors.Is(err, catalog.ErrExists) {
		return fail(deltalog.ErrTableExists)
	}
	if err != nil {
		return fail(err)
	}
	return w.open(ctx, e)
}

// sameTable checks that the log that is there already is of the table that was asked for.
func (w *Workspace) sameTable(ctx context.Context, st store.Store, spec deltalog.TableSpec) error {
	t, err := deltalog.Open(ctx, st, w.options)
	if err != nil {
		return err
	}
	snap := t.Cached()
	if !reflect.DeepEqual(snap.Schema().SQL(), spec.Schema.SQL()) || strings.Join(snap.Metadata().PartitionColumns, ",") != strings.Join(spec.PartitionColumns, ",") {
		return fmt.Errorf("%w: at %s is another table that no catalog names: remove it or choose another name", deltalog.ErrTableExists, st.URL(""))
	}
	return nil
}

// DropTable removes a table: its catalog entry, and the files of a managed one.
func (w *Workspace) DropTable(ctx context.Context, fullName string) error {
	e, err := w.entry(ctx, fullName)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.catalog.DeleteTable(ctx, fullName); err != nil {
		return err
	}
	if h := w.tables[e.FullName()]; h != nil {
		delete(w.tables, e.FullName())
		if err := h.t.Close(); err != nil {
			return err
		}
	}
	if e.Type != "MANAGED" {
		return nil
	}
	if w.dir != "" {
		return os.RemoveAll(filepath.Join(w.dir, "tables", filepath.FromSlash(e.Location)))
	}
	st := store.Sub(w.store, e.Location)
	for f, err := range st.List(ctx, "", "") {
		if err != nil {
			return err
		}
		if err := st.Delete(ctx, f.Name); err != nil && !errors.Is(err, store.ErrNotExist) {
			return err
		}
	}
	return nil
}
