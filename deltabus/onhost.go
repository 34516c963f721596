package deltabus

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/internal/databricks"
)

// OnHost is the workspace at a URL: its Unity Catalog says where tables are, and they are read and written there directly. The storage has
// to be reachable: a local directory, as a served emulator has it, or a bucket, with the environment's credentials and endpoint. Each table is opened once and shared.
func OnHost(host, token string) Workspace {
	return &onHost{catalog: &databricks.Catalog{Host: host, Token: token}, tables: map[string]*deltalog.Table{}}
}

type onHost struct {
	catalog *databricks.Catalog
	mu      sync.Mutex
	tables  map[string]*deltalog.Table // by table_id
}

func (w *onHost) Table(ctx context.Context, fullName string) (*deltalog.Table, error) {
	t, err := w.find(ctx, fullName)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if open := w.tables[t.TableID]; open != nil {
		return open, nil
	}
	var o deltalog.Options
	KeepForConsumers(fullName, w.openApart, &o)
	open, err := openFound(ctx, t, fullName, o)
	if err != nil {
		return nil, err
	}
	w.tables[t.TableID] = open
	return open, nil
}

// find asks the catalog.
func (w *onHost) find(ctx context.Context, fullName string) (databricks.Table, error) {
	t, err := w.catalog.Table(ctx, fullName)
	if databricks.IsNotFound(err) {
		err = fmt.Errorf("%w: %w", deltalog.ErrNotTable, err)
	}
	return t, err
}

// openApart opens a table for reading, without sharing it.
func (w *onHost) openApart(ctx context.Context, fullName string) (*deltalog.Table, error) {
	t, err := w.find(ctx, fullName)
	if err != nil {
		return nil, err
	}
	return openFound(ctx, t, fullName, deltalog.Options{CheckpointInterval: -1})
}

func openFound(ctx context.Context, t databricks.Table, fullName string, o deltalog.Options) (*deltalog.Table, error) {
	st, err := OpenLocation(t.StorageLocation)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", fullName, err)
	}
	open, err := deltalog.Open(ctx, st, o)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", fullName, err)
	}
	return open, nil
}

// OpenLocation opens where a table is: a path, a file:// URL, or s3://, with endpoint and credentials as S3 tools read them.
func OpenLocation(location string) (store.Store, error) {
	if !strings.Contains(location, "://") {
		return store.NewLocal(location, false)
	}
	if strings.HasPrefix(location, "s3://") {
		o, err := store.ParseS3URL(location)
		if err != nil {
			return nil, err
		}
		return store.NewS3(o)
	}
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "file" || u.Host != "" && u.Host != "localhost" {
		return nil, fmt.Errorf("location %s cannot be reached from here: only file:///… and s3://… can", location)
	}
	path := u.Path
	if filepath.Separator == '\\' && len(path) > 2 && path[2] == ':' { // file:///C:/x is C:\x
		path = path[1:]
	}
	return store.NewLocal(filepath.FromSlash(path), false)
}

func (w *onHost) CreateTable(ctx context.Context, fullName string, spec deltalog.TableSpec) (*deltalog.Table, error) {
	parts := strings.Split(fullName, ".")
	if len(parts) != 3 {
		return nil, fmt.Errorf("table %q: write it as catalog.schema.table", fullName)
	}
	t := databricks.Table{
		Name: parts[2], CatalogName: parts[0], SchemaName: parts[1], TableType: "MANAGED", DataSourceFormat: "DELTA",
		Properties: spec.Configuration, Comment: spec.Description,
	}
	for i, f := range spec.Schema.Fields {
		c := databricks.Column{Name: f.Name, TypeText: f.Type.SQL(), TypeJSON: string(deltalog.FieldJSON(f)), Position: i, Nullable: f.Nullable}
		for k, p := range spec.PartitionColumns {
			if p == f.Name {
				c.PartitionIndex = &k
			}
		}
		t.Columns = append(t.Columns, c)
	}
	err := w.catalog.CreateTable(ctx, t)
	if databricks.IsExists(err) {
		err = fmt.Errorf("%w: %w", deltalog.ErrTableExists, err)
	}
	if err != nil {
		return nil, err
	}
	return w.Table(ctx, fullName)
}
