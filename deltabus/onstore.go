package deltabus

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// OnStore is a workspace without a catalog: catalog.schema.table is the directory catalog/schema/table of st. Each table is
// opened once and shared.
func OnStore(st store.Store) Workspace {
	return &onStore{st: st, tables: map[string]*deltalog.Table{}}
}

type onStore struct {
	st     store.Store
	mu     sync.Mutex
	tables map[string]*deltalog.Table
}

func (w *onStore) Table(ctx context.Context, fullName string) (*deltalog.Table, error) {
	if err := w.forgetRecreated(ctx, fullName); err != nil {
		return nil, err
	}
	return w.get(fullName, func(st store.Store) (*deltalog.Table, error) {
		return deltalog.Open(ctx, st, w.options(fullName))
	})
}

func (w *onStore) CreateTable(ctx context.Context, fullName string, spec deltalog.TableSpec) (*deltalog.Table, error) {
	if err := w.forgetRecreated(ctx, fullName); err != nil {
		return nil, err
	}
	w.mu.Lock()
	_, open := w.tables[fullName]
	w.mu.Unlock()
	if open {
		return nil, fmt.Errorf("create table %s: %w", fullName, deltalog.ErrTableExists)
	}
	return w.get(fullName, func(st store.Store) (*deltalog.Table, error) {
		return deltalog.Create(ctx, st, spec, w.options(fullName))
	})
}

func (w *onStore) options(fullName string) (o deltalog.Options) {
	KeepForConsumers(fullName, func(ctx context.Context, name string) (*deltalog.Table, error) {
		return deltalog.Open(ctx, w.at(name), deltalog.Options{CheckpointInterval: -1})
	}, &o)
	return o
}

// at is the directory of a table.
func (w *onStore) at(fullName string) store.Store {
	return store.Sub(w.st, strings.ReplaceAll(fullName, ".", "/"))
}

// forgetRecreated forgets an open table that is no longer the one in the store.
func (w *onStore) forgetRecreated(ctx context.Context, fullName string) error {
	w.mu.Lock()
	t := w.tables[fullName]
	w.mu.Unlock()
	if t == nil {
		return nil
	}
	gone, err := t.Recreated(ctx, t.Cached().Version())
	if err != nil || !gone {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tables[fullName] == t {
		delete(w.tables, fullName)
	}
	return nil
}

func (w *onStore) get(fullName string, open func(store.Store) (*deltalog.Table, error)) (*deltalog.Table, error) {
	if strings.Count(fullName, ".") != 2 {
		return nil, fmt.Errorf("table %q: write it as catalog.schema.table", fullName)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.tables[fullName]; t != nil {
		return t, nil
	}
	t, err := open(w.at(fullName))
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", fullName, err)
	}
	w.tables[fullName] = t
	return t, nil
}
