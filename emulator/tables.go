package emulator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/internal/catalog"
)

const (
	managed  = "MANAGED"
	external = "EXTERNAL"
)

// CreateTable makes catalog.schema.table as a managed table, with its schema if that is missing. An existing table is an error
// that matches deltalog.ErrTableExists.
//
// The Delta log is made while the catalog holds the name in an open transaction: no other process makes the same table meanwhile, and
// what a crash leaves is at most an empty log that nobody names, which the next try replaces.
func (w *Workspace) CreateTable(ctx context.Context, fullName string, spec deltalog.TableSpec) (*deltalog.Table, error) {
	n, err := catalog.ParseName(fullName, 3)
	if err == nil {
		err = w.catalog.CreateSchema(ctx, n[0], n[1], "")
	}
	if err != nil && !errors.Is(err, catalog.ErrExists) {
		return nil, fmt.Errorf("create table %s: %w", fullName, err)
	}
	return w.create(ctx, fullName, "", spec)
}

// create makes a table in a schema that is there: at location, "" for a managed one.
func (w *Workspace) create(ctx context.Context, fullName, location string, spec deltalog.TableSpec) (*deltalog.Table, error) {
	fail := func(err error) (*deltalog.Table, error) {
		if errors.Is(err, catalog.ErrExists) {
			err = deltalog.ErrTableExists
		}
		return nil, fmt.Errorf("create table %s: %w", fullName, err)
	}
	n, err := catalog.ParseName(fullName, 3)
	if err != nil {
		return fail(err)
	}
	e := catalog.Table{Catalog: n[0], Schema: n[1], Name: n[2], Location: strings.Join(n, "/"), Type: managed, Comment: spec.Description}
	w.mu.Lock()
	defer w.mu.Unlock()
	if location != "" {
		e.Type = external
		if e.Location, err = w.externalLocation(ctx, location); err != nil {
			return fail(err)
		}
	}
	st, err := w.at(e.Location)
	if err != nil {
		return fail(err)
	}
	e, err = w.catalog.CreateTable(ctx, e, func() error {
		if e.Type == managed {
			return w.createManaged(ctx, e, st, spec)
		}
		return w.createExternal(ctx, st, spec)
	})
	if err != nil {
		return fail(err)
	}
	return w.open(ctx, e)
}

func (w *Workspace) createManaged(ctx context.Context, e catalog.Table, st store.Store, spec deltalog.TableSpec) error {
	t, err := deltalog.Create(ctx, st, spec, w.options)
	if errors.Is(err, deltalog.ErrTableExists) {
		// The catalog does not name it, so this is what a crash left of a creation, or files of somebody else.
		var left *deltalog.Table
		if left, err = deltalog.Open(ctx, st, w.options); err != nil {
			return err
		}
		if snap := left.Cached(); snap.Version() > 0 || snap.NumFiles() > 0 {
			return fmt.Errorf("%w: %s holds a table with data that the catalog does not name: move it away, or choose another name", ErrLocation, st.URL(""))
		}
		if err := errors.Join(left.Close(), w.remove(ctx, e)); err != nil {
			return err
		}
		t, err = deltalog.Create(ctx, st, spec, w.options)
	}
	if err != nil {
		return err
	}
	return t.Close()
}

// createExternal registers the table that is at a location, or makes one there.
func (w *Workspace) createExternal(ctx context.Context, st store.Store, spec deltalog.TableSpec) error {
	t, err := deltalog.Open(ctx, st, w.options)
	switch {
	case errors.Is(err, deltalog.ErrNotTable) && len(spec.Schema.Fields) == 0:
		return fmt.Errorf("%w: there is no Delta table at %s: name the columns to make one", ErrLocation, st.URL(""))
	case errors.Is(err, deltalog.ErrNotTable):
		if t, err = deltalog.Create(ctx, st, spec, w.options); err != nil {
			return err
		}
	case err != nil:
		return err
	case len(spec.Schema.Fields) > 0:
		if err := agrees(t.Cached(), spec); err != nil {
			return fmt.Errorf("%w: the table at %s has %w", ErrLocation, st.URL(""), err)
		}
	}
	return t.Close()
}

// agrees checks that a table is what spec asks for. Properties that spec does not name may be anything.
func agrees(snap *deltalog.Snapshot, spec deltalog.TableSpec) error {
	if is, want := columns(snap.Schema()), columns(spec.Schema); is != want {
		return fmt.Errorf("other columns: %s; not %s", is, want)
	}
	if is, want := snap.Metadata().PartitionColumns, spec.PartitionColumns; !slices.Equal(is, want) {
		return fmt.Errorf("other partition columns: %q, not %q", is, want)
	}
	for _, k := range slices.Sorted(maps.Keys(spec.Configuration)) {
		if is, want := snap.Property(k), spec.Configuration[k]; is != want {
			return fmt.Errorf("another property %s: %q, not %q", k, is, want)
		}
	}
	return nil
}

// columns writes a schema as a CREATE TABLE would, types as the log has them where SQL's text says less: whether elements may be null.
func columns(s deltalog.Struct) string {
	var out []string
	for _, f := range s.Fields {
		text := f.Name + " " + f.Type.SQL()
		if _, primitive := f.Type.(deltalog.Primitive); !primitive {
			text = f.Name + " " + string(deltalog.TypeJSON(f.Type))
		}
		if !f.Nullable {
			text += " NOT NULL"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// DropTable removes a table: its catalog entry, and the files of a managed one. Zerobus streams to it end with NOT_FOUND.
//
// The files are moved away while the catalog removes the name, and deleted after: a crash leaves the table, or an entry that can be
// dropped again, or files in the trash, never a table with half of its files.
func (w *Workspace) DropTable(ctx context.Context, fullName string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, err := w.entry(ctx, fullName)
	if err != nil {
		return err
	}
	err = w.catalog.DeleteTable(ctx, fullName, func() error {
		if h := w.tables[e.FullName()]; h != nil {
			if w.ending != nil {
				w.ending(h.t)
			}
			delete(w.tables, e.FullName())
			if err := h.t.Close(); err != nil {
				return err
			}
		}
		if e.Type != managed {
			return nil
		}
		return w.remove(ctx, e)
	})
	if err != nil {
		return err
	}
	return w.emptyTrash()
}

// remove takes the files of a managed table out of the way.
func (w *Workspace) remove(ctx context.Context, e catalog.Table) error {
	if w.managed != "" {
		root := w.managed
		return ignoreNotExist(os.Rename(filepath.Join(root, filepath.FromSlash(e.Location)), filepath.Join(root, dropped+uuid.NewString())))
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

// dropped begins the names of directories with the files of dropped tables; no catalog has such a name.
const dropped = ".dropped-"

// emptyTrash deletes the files of dropped tables.
func (w *Workspace) emptyTrash() error {
	if w.managed == "" {
		return nil
	}
	all, err := os.ReadDir(w.managed)
	for _, d := range all {
		if strings.HasPrefix(d.Name(), dropped) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(w.managed, d.Name())))
		}
	}
	return err
}
