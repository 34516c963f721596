// Package catalog is the emulator's names: catalogs, schemas and tables, in a SQLite file that several processes may use
// at once. What a table holds, its columns included, is in its Delta log; the catalog only says where that is.
package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	_ "modernc.org/sqlite" // the driver
)

// Sentinels; test with errors.Is.
var (
	// ErrNotFound: there is no such catalog, schema or table.
	ErrNotFound = errors.New("not found")
	// ErrExists: the name is taken.
	ErrExists = errors.New("already exists")
	// ErrName: the name is not one that tables can have.
	ErrName = errors.New("invalid name")
	// ErrNotEmpty: a catalog or schema that still holds something.
	ErrNotEmpty = errors.New("not empty")
)

// Table is one table of the catalog.
type Table struct {
	Catalog, Schema, Name string
	// ID is the table's UUID in the catalog (table_id); not the Delta table's metaData.id.
	ID string
	// Location is relative to the workspace's tables, or a file:// URL of an external table.
	Location string
	// Type is MANAGED or EXTERNAL.
	Type    string
	Comment string
	Created time.Time
}

// FullName is catalog.schema.table.
func (t Table) FullName() string { return t.Catalog + "." + t.Schema + "." + t.Name }

// Schema is one schema, or one catalog.
type Schema struct {
	Catalog, Name, Comment string
	Created                time.Time
}

// Catalog is an open catalog file. Safe for concurrent use.
type Catalog struct {
	db  *sql.DB
	now func() time.Time
}

const schemaSQL = `
CREATE TABLE IF NOT EXISTS catalogs (name TEXT PRIMARY KEY, comment TEXT NOT NULL, created INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS schemas (catalog TEXT NOT NULL REFERENCES catalogs(name), name TEXT NOT NULL,
  comment TEXT NOT NULL, created INTEGER NOT NULL, PRIMARY KEY (catalog, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tables (catalog TEXT NOT NULL, schema TEXT NOT NULL, name TEXT NOT NULL,
  id TEXT NOT NULL UNIQUE, location TEXT NOT NULL, type TEXT NOT NULL, comment TEXT NOT NULL, created INTEGER NOT NULL,
  PRIMARY KEY (catalog, schema, name), FOREIGN KEY (catalog, schema) REFERENCES schemas(catalog, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO catalogs VALUES ('main', '', unixepoch() * 1000);
INSERT OR IGNORE INTO schemas VALUES ('main', 'default', '', unixepoch() * 1000);
`

// Open opens the catalog in a file, or in memory if path is "". Catalog main with schema default always exists. now may
// be nil for time.Now.
func Open(ctx context.Context, path string, now func() time.Time) (*Catalog, error) {
	if now == nil {
		now = time.Now
	}
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate"
	if path == "" {
		dsn = "file:" + uuid.NewString() + "?mode=memory&_pragma=foreign_keys(1)"
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open catalog %s: %w", path, err)
	}
	db.SetMaxOpenConns(1) // names are few; and a database in memory is its connection
	if _, err := db.ExecContext(ctx, schemaSQL); err != nil {
		return nil, errors.Join(fmt.Errorf("open catalog %s: %w", path, err), db.Close())
	}
	return &Catalog{db: db, now: now}, nil
}

// Close closes the file.
func (c *Catalog) Close() error { return c.db.Close() }

var validName = regexp.MustCompile(`^[a-z0-9_]{1,255}$`)

// ParseName parts a full name into n parts, each valid, in lower case: Unity Catalog's names are case-insensitive.
func ParseName(full string, n int) ([]string, error) {
	parts := strings.Split(strings.ToLower(full), ".")
	if len(parts) != n {
		return nil, fmt.Errorf("name %q: %w: it has %d parts, not %d", full, ErrName, len(parts), n)
	}
	for _, p := range parts {
		if !validName.MatchString(p) {
			return nil, fmt.Errorf("name %q: %w: use letters, digits and underscores", full, ErrName)
		}
	}
	return parts, nil
}

func (c *Catalog) exec(ctx context.Context, what, query string, args ...any) error {
	res, err := c.db.ExecContext(ctx, query, args...)
	if err != nil {
		switch text := err.Error(); {
		case strings.Contains(text, "UNIQUE constraint"):
			err = ErrExists
		case strings.Contains(text, "FOREIGN KEY constraint") && strings.HasPrefix(query, "DELETE"):
			err = ErrNotEmpty
		case strings.Contains(text, "FOREIGN KEY constraint"):
			err = fmt.Errorf("its parent is %w", ErrNotFound)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	if n, err := res.RowsAffected(); err == nil && n == 0 {
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return nil
}

// CreateCatalog makes a catalog.
func (c *Catalog) CreateCatalog(ctx context.Context, catalog, comment string) error {
	n, err := ParseName(catalog, 1)
	if err != nil {
		return err
	}
	return c.exec(ctx, "create catalog "+n[0], `INSERT INTO catalogs VALUES (?, ?, ?)`, n[0], comment, c.now().UnixMilli())
}

// DeleteCatalog removes an empty catalog.
func (c *Catalog) DeleteCatalog(ctx context.Context, catalog string) error {
	return c.exec(ctx, "delete catalog "+catalog, `DELETE FROM catalogs WHERE name = ?`, strings.ToLower(catalog))
}

// Catalogs lists the catalogs by name; the field Catalog is empty.
func (c *Catalog) Catalogs(ctx context.Context) ([]Schema, error) {
	return c.schemas(ctx, `SELECT '', name, comment, created FROM catalogs ORDER BY name`)
}

// CreateSchema makes a schema in a catalog that is there.
func (c *Catalog) CreateSchema(ctx context.Context, catalog, schema, comment string) error {
	n, err := ParseName(catalog+"."+schema, 2)
	if err != nil {
		return err
	}
	return c.exec(ctx, "create schema "+n[0]+"."+n[1], `INSERT INTO schemas VALUES (?, ?, ?, ?)`, n[0], n[1], comment, c.now().UnixMilli())
}

// DeleteSchema removes an empty schema.
func (c *Catalog) DeleteSchema(ctx context.Context, catalog, schema string) error {
	return c.exec(ctx, "delete schema "+catalog+"."+schema, `DELETE FROM schemas WHERE catalog = ? AND name = ?`, strings.ToLower(catalog), strings.ToLower(schema))
}

// Schemas lists the schemas of a catalog by name.
func (c *Catalog) Schemas(ctx context.Context, catalog string) ([]Schema, error) {
	return c.schemas(ctx, `SELECT catalog, name, comment, created FROM schemas WHERE catalog = ? ORDER BY name`, strings.ToLower(catalog))
}

func (c *Catalog) schemas(ctx context.Context, query string, args ...any) ([]Schema, error) {
	rows, err := c.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read catalog: %w", err)
	}
	var out []Schema
	for rows.Next() {
		var s Schema
		var created int64
		if err := rows.Scan(&s.Catalog, &s.Name, &s.Comment, &created); err != nil {
			return nil, errors.Join(fmt.Errorf("read catalog: %w", err), rows.Close())
		}
		s.Created = time.UnixMilli(created)
		out = append(out, s)
	}
	return out, rows.Err()
}

// CreateTable records a table and returns it with its ID and Created. Its schema must be there.
func (c *Catalog) CreateTable(ctx context.Context, t Table) (Table, error) {
	n, err := ParseName(t.FullName(), 3)
	if err != nil {
		return t, err
	}
	t.Catalog, t.Schema, t.Name = n[0], n[1], n[2]
	t.ID, t.Created = uuid.NewString(), c.now()
	return t, c.exec(ctx, "create table "+t.FullName(), `INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		t.Catalog, t.Schema, t.Name, t.ID, t.Location, t.Type, t.Comment, t.Created.UnixMilli())
}

// Table finds a table by catalog.schema.table.
func (c *Catalog) Table(ctx context.Context, fullName string) (Table, error) {
	n, err := ParseName(fullName, 3)
	if err != nil {
		return Table{}, err
	}
	tables, err := c.tables(ctx, ` WHERE catalog = ? AND schema = ? AND name = ?`, n[0], n[1], n[2])
	if err != nil {
		return Table{}, err
	}
	if len(tables) == 0 {
		return Table{}, fmt.Errorf("table %s: %w", fullName, ErrNotFound)
	}
	return tables[0], nil
}

// Tables lists the tables of a schema by name; "" for schema or catalog lists all.
func (c *Catalog) Tables(ctx context.Context, catalog, schema string) ([]Table, error) {
	return c.tables(ctx, ` WHERE (?1 = '' OR catalog = ?1) AND (?2 = '' OR schema = ?2) ORDER BY catalog, schema, name`, strings.ToLower(catalog), strings.ToLower(schema))
}

func (c *Catalog) tables(ctx context.Context, where string, args ...any) ([]Table, error) {
	rows, err := c.db.QueryContext(ctx, `SELECT catalog, schema, name, id, location, type, comment, created FROM tables`+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read catalog: %w", err)
	}
	var out []Table
	for rows.Next() {
		var t Table
		var created int64
		if err := rows.Scan(&t.Catalog, &t.Schema, &t.Name, &t.ID, &t.Location, &t.Type, &t.Comment, &created); err != nil {
			return nil, errors.Join(fmt.Errorf("read catalog: %w", err), rows.Close())
		}
		t.Created = time.UnixMilli(created)
		out = append(out, t)
	}
	return out, rows.Err()
}

// DeleteTable removes a table's entry.
func (c *Catalog) DeleteTable(ctx context.Context, fullName string) error {
	n, err := ParseName(fullName, 3)
	if err != nil {
		return err
	}
	return c.exec(ctx, "delete table "+fullName, `DELETE FROM tables WHERE catalog = ? AND schema = ? AND name = ?`, n[0], n[1], n[2])
}

// Setting returns the value of key, making it by value at the first time.
func (c *Catalog) Setting(ctx context.Context, key string, value func() string) (string, error) {
	if _, err := c.db.ExecContext(ctx, `INSERT OR IGNORE INTO settings VALUES (?, ?)`, key, value()); err != nil {
		return "", fmt.Errorf("write setting %s: %w", key, err)
	}
	var v string
	if err := c.db.QueryRowContext(ctx, `SELECT value FROM settings WHERE key = ?`, key).Scan(&v); err != nil {
		return "", fmt.Errorf("read setting %s: %w", key, err)
	}
	return v, nil
}
