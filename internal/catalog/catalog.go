// Package catalog is the emulator's names: catalogs, schemas and tables, in a SQLite file that several processes may use
// at once. What a table holds, its columns included, is in its Delta log; the catalog only says where that is.
package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"modernc.org/sqlite" // the driver too
	sqlite3 "modernc.org/sqlite/lib"
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
	// ErrDamaged: the file is no catalog, or not one any more.
	ErrDamaged = errors.New("damaged catalog")
	// ErrPermanent: catalog main and schema main.default are always there.
	ErrPermanent = errors.New("always exists and cannot be deleted")
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

// layout is the version of the file's tables, kept as its user_version.
const layout = 1

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
PRAGMA user_version = 1;
`

// Open opens the catalog in a file, or in memory if path is "". Catalog main with schema default always exists. now may
// be nil for time.Now. With noSync the file is never synced: what the machine forgets when it stops may be the whole of it.
//
// found, which may be nil, is asked for the tables that a new file begins with: those of a workspace that has lost its file. They are
// recorded with the file's first transaction, wholly or not at all, with their catalogs and schemas; each has a Location and a Type, and gets an
// ID. found must not call the catalog.
func Open(ctx context.Context, path string, now func() time.Time, noSync bool, found func() ([]Table, error)) (*Catalog, error) {
	if now == nil {
		now = time.Now
	}
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)&_txlock=immediate"
	if noSync {
		dsn += "&_pragma=synchronous(0)"
	}
	if path == "" {
		dsn = "file:" + uuid.NewString() + "?mode=memory&_pragma=foreign_keys(1)"
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, fmt.Errorf("open catalog %s: %w", path, err)
	}
	db.SetMaxOpenConns(1) // names are few; and a database in memory is its connection
	c := &Catalog{db: db, now: now}
	if err := c.prepare(ctx, found); err != nil {
		return nil, errors.Join(fmt.Errorf("open catalog %s: %w", path, explain(err)), db.Close())
	}
	return c, nil
}

// prepare makes the tables of a new file, in one transaction: that is one wait for the disk, and no half of it after a crash.
func (c *Catalog) prepare(ctx context.Context, found func() ([]Table, error)) error {
	is, err := version(ctx, c.db)
	if err != nil || is == layout {
		return err
	}
	if is > layout {
		return fmt.Errorf("its layout is version %d, this program knows %d: use a newer deltabus-local", is, layout)
	}
	return c.write(ctx, func(tx *sql.Tx) error {
		if is, err := version(ctx, tx); err != nil || is == layout { // another process was quicker
			return err
		}
		if _, err := tx.ExecContext(ctx, schemaSQL); err != nil || found == nil {
			return err
		}
		tables, err := found()
		if err != nil {
			return err
		}
		for _, t := range tables {
			if err := c.restore(ctx, tx, t); err != nil {
				return err
			}
		}
		return nil
	})
}

func version(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (v int, err error) {
	err = db.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&v)
	return v, err
}

// restore records a table that is there, with what is above it.
func (c *Catalog) restore(ctx context.Context, tx *sql.Tx, t Table) error {
	now := c.now().UnixMilli()
	if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO catalogs VALUES (?, '', ?)`, t.Catalog, now); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO schemas VALUES (?, ?, '', ?)`, t.Catalog, t.Schema, now); err != nil {
		return err
	}
	t.ID = uuid.NewString()
	if t.Created.IsZero() {
		t.Created = c.now()
	}
	return insert(ctx, tx, t)
}

func insert(ctx context.Context, tx *sql.Tx, t Table) error {
	return exec(ctx, tx, "create table "+t.FullName(), `INSERT INTO tables VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		t.Catalog, t.Schema, t.Name, t.ID, t.Location, t.Type, t.Comment, t.Created.UnixMilli())
}

// write runs f in a transaction that has the file's write lock from its beginning.
func (c *Catalog) write(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return explain(err)
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback() // after some errors SQLite has done so itself
		return explain(err)
	}
	return explain(tx.Commit())
}

// explain makes SQLite's errors about the file match what they mean: ErrDamaged, or the system's own.
func explain(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	case sqlite3.SQLITE_READONLY:
		return fmt.Errorf("%w: %w", fs.ErrPermission, err)
	}
	return err
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

// execer is the database or a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// exec runs a statement that has to change a row.
func exec(ctx context.Context, db execer, what, query string, args ...any) error {
	res, err := db.ExecContext(ctx, query, args...)
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
	return exec(ctx, c.db, "create catalog "+n[0], `INSERT INTO catalogs VALUES (?, ?, ?)`, n[0], comment, c.now().UnixMilli())
}

// DeleteCatalog removes an empty catalog. Catalog main is ErrPermanent.
func (c *Catalog) DeleteCatalog(ctx context.Context, catalog string) error {
	if strings.EqualFold(catalog, "main") {
		return fmt.Errorf("delete catalog %s: %w", catalog, ErrPermanent)
	}
	return exec(ctx, c.db, "delete catalog "+catalog, `DELETE FROM catalogs WHERE name = ?`, strings.ToLower(catalog))
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
	return exec(ctx, c.db, "create schema "+n[0]+"."+n[1], `INSERT INTO schemas VALUES (?, ?, ?, ?)`, n[0], n[1], comment, c.now().UnixMilli())
}

// DeleteSchema removes an empty schema. Schema main.default is ErrPermanent.
func (c *Catalog) DeleteSchema(ctx context.Context, catalog, schema string) error {
	if strings.EqualFold(catalog+"."+schema, "main.default") {
		return fmt.Errorf("delete schema %s.%s: %w", catalog, schema, ErrPermanent)
	}
	return exec(ctx, c.db, "delete schema "+catalog+"."+schema, `DELETE FROM schemas WHERE catalog = ? AND name = ?`, strings.ToLower(catalog), strings.ToLower(schema))
}

// Catalog finds a catalog; the field Catalog is empty.
func (c *Catalog) Catalog(ctx context.Context, catalog string) (Schema, error) {
	return one(c.schemas(ctx, `SELECT '', name, comment, created FROM catalogs WHERE name = ?`, strings.ToLower(catalog)))("catalog " + catalog)
}

// Schema finds a schema.
func (c *Catalog) Schema(ctx context.Context, catalog, schema string) (Schema, error) {
	return one(c.schemas(ctx, `SELECT catalog, name, comment, created FROM schemas WHERE catalog = ? AND name = ?`,
		strings.ToLower(catalog), strings.ToLower(schema)))("schema " + catalog + "." + schema)
}

// one is the single entry of a list, or ErrNotFound.
func one[T any](all []T, err error) func(what string) (T, error) {
	return func(what string) (T, error) {
		var none T
		if err != nil {
			return none, err
		}
		if len(all) == 0 {
			return none, fmt.Errorf("%s: %w", what, ErrNotFound)
		}
		return all[0], nil
	}
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

// CreateTable records a table and returns it with its ID and Created. Its schema must be there. files, which may be nil, makes the
// table's files; it runs while the name is reserved and before it is visible: no other process makes or deletes a table meanwhile, and
// its error takes the name back. It must not call the catalog.
func (c *Catalog) CreateTable(ctx context.Context, t Table, files func() error) (Table, error) {
	n, err := ParseName(t.FullName(), 3)
	if err != nil {
		return t, err
	}
	t.Catalog, t.Schema, t.Name = n[0], n[1], n[2]
	t.ID, t.Created = uuid.NewString(), c.now()
	return t, c.write(ctx, func(tx *sql.Tx) error {
		if err := insert(ctx, tx, t); err != nil || files == nil {
			return err
		}
		return files()
	})
}

// Table finds a table by catalog.schema.table.
func (c *Catalog) Table(ctx context.Context, fullName string) (Table, error) {
	n, err := ParseName(fullName, 3)
	if err != nil {
		return Table{}, err
	}
	return one(c.tables(ctx, ` WHERE catalog = ? AND schema = ? AND name = ?`, n[0], n[1], n[2]))("table " + fullName)
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

// DeleteTable removes a table's entry. files, which may be nil, removes its files; it runs before the entry is gone for others, as that of
// CreateTable does, and its error keeps the entry.
func (c *Catalog) DeleteTable(ctx context.Context, fullName string, files func() error) error {
	n, err := ParseName(fullName, 3)
	if err != nil {
		return err
	}
	return c.write(ctx, func(tx *sql.Tx) error {
		err := exec(ctx, tx, "delete table "+fullName, `DELETE FROM tables WHERE catalog = ? AND schema = ? AND name = ?`, n[0], n[1], n[2])
		if err != nil || files == nil {
			return err
		}
		return files()
	})
}

// Settings returns the value of each key, making those that are missing by its function: once for all time, whoever asks.
func (c *Catalog) Settings(ctx context.Context, make map[string]func() string) (map[string]string, error) {
	out, err := c.settings(ctx)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	missing := map[string]string{}
	for key, value := range make {
		if _, ok := out[key]; !ok {
			missing[key] = value()
		}
	}
	if len(missing) == 0 {
		return out, nil
	}
	err = c.write(ctx, func(tx *sql.Tx) error {
		for key, value := range missing {
			if _, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO settings VALUES (?, ?)`, key, value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	return c.settings(ctx)
}

func (c *Catalog) settings(ctx context.Context) (map[string]string, error) {
	rows, err := c.db.QueryContext(ctx, `SELECT key, value FROM settings`)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for rows.Next() {
		var k, v string
		if err := rows.Scan(&k, &v); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		out[k] = v
	}
	return out, rows.Err()
}
