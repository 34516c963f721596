package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

func TestCatalogNames(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", filepath.Join(t.TempDir(), "a b?c.db")} {
		ctx := context.Background()
		c, err := Open(ctx, path, nil, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.CreateSchema(ctx, "MAIN", "Sales", "x"); err != nil {
			t.Fatal(err)
		}
		if err := c.CreateSchema(ctx, "main", "sales", ""); !errors.Is(err, ErrExists) {
			t.Errorf("a schema made twice: %v", err)
		}
		if err := c.CreateSchema(ctx, "nowhere", "sales", ""); !errors.Is(err, ErrNotFound) {
			t.Errorf("a schema in no catalog: %v", err)
		}
		made, err := c.CreateTable(ctx, Table{Catalog: "main", Schema: "Sales", Name: "Orders", Location: "main/sales/orders", Type: "MANAGED"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.CreateTable(ctx, made, nil); !errors.Is(err, ErrExists) {
			t.Errorf("a table made twice: %v", err)
		}
		got, err := c.Table(ctx, "main.SALES.orders")
		if err != nil || got.ID != made.ID || got.FullName() != "main.sales.orders" {
			t.Errorf("got %+v, %v", got, err)
		}
		for _, bad := range []string{"a.b", "a.b.c.d", "main.sales.or-ders", "main..x", "main.sales."} {
			if _, err := c.Table(ctx, bad); !errors.Is(err, ErrName) {
				t.Errorf("name %q: %v", bad, err)
			}
		}
		if err := c.DeleteSchema(ctx, "main", "sales"); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("a schema with a table: %v", err)
		}
		if err := c.DeleteTable(ctx, "main.sales.orders", nil); err != nil {
			t.Error(err)
		}
		if err := c.DeleteTable(ctx, "main.sales.orders", nil); !errors.Is(err, ErrNotFound) {
			t.Errorf("a table deleted twice: %v", err)
		}
		if all, err := c.Tables(ctx, "", ""); err != nil || len(all) != 0 {
			t.Errorf("got %v, %v", all, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func open(t *testing.T, path string) *Catalog {
	t.Helper()
	c, err := Open(context.Background(), path, nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestSettingsAreMadeOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.db")
	for _, v := range []string{"first", "second"} {
		c := open(t, path)
		got, err := c.Settings(context.Background(), map[string]func() string{"id": func() string { return v }})
		if err != nil || got["id"] != "first" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	got, err := open(t, path).Settings(context.Background(), map[string]func() string{"id": nil, "new": func() string { return "x" }, "other": func() string { return "y" }})
	if err != nil || (got["new"] != "x" || got["other"] != "y" || got["id"] != "first") {
		t.Errorf("got %q, %v", got, err)
	}
}

// What makes a table's files fails, and the name is free again; what removes them fails, and the table is still there.
func TestTablesAndFilesGoTogether(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", filepath.Join(t.TempDir(), "c.db")} {
		ctx, c := context.Background(), open(t, path)
		no := errors.New("no")
		spec := Table{Catalog: "main", Schema: "default", Name: "t", Location: "main/default/t", Type: "MANAGED"}
		if _, err := c.CreateTable(ctx, spec, func() error { return no }); !errors.Is(err, no) {
			t.Fatalf("got %v", err)
		}
		if _, err := c.Table(ctx, "main.default.t"); !errors.Is(err, ErrNotFound) {
			t.Errorf("after a failed creation: %v", err)
		}
		if _, err := c.CreateTable(ctx, spec, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		called := false
		if _, err := c.CreateTable(ctx, spec, func() error { called = true; return nil }); !errors.Is(err, ErrExists) || called {
			t.Errorf("a taken name: %v, files made: %v", err, called)
		}
		if err := c.DeleteTable(ctx, "main.default.t", func() error { return no }); !errors.Is(err, no) {
			t.Errorf("got %v", err)
		}
		if _, err := c.Table(ctx, "main.default.t"); err != nil {
			t.Errorf("after a failed deletion: %v", err)
		}
	}
}

func TestMainIsAlwaysThere(t *testing.T) {
	t.Parallel()
	ctx, c := context.Background(), open(t, "")
	if err := c.DeleteSchema(ctx, "MAIN", "Default"); !errors.Is(err, ErrPermanent) {
		t.Errorf("got %v", err)
	}
	if err := c.DeleteCatalog(ctx, "Main"); !errors.Is(err, ErrPermanent) {
		t.Errorf("got %v", err)
	}
	if s, err := c.Schema(ctx, "MAIN", "default"); err != nil || s.Name != "default" || s.Catalog != "main" {
		t.Errorf("got %+v, %v", s, err)
	}
	if s, err := c.Catalog(ctx, "MAIN"); err != nil || s.Name != "main" {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := c.Catalog(ctx, "other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

// Several processes have the file at once: each handle here is one of them. Of all who make a table, one makes its files.
func TestSeveralProcesses(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.db")
	const n = 4
	var made atomic.Int32
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			ctx := context.Background()
			c, err := Open(ctx, path, nil, false, nil)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 5 {
				spec := Table{Catalog: "main", Schema: "default", Name: fmt.Sprint("t", i), Location: fmt.Sprint(i), Type: "MANAGED"}
				_, err := c.CreateTable(ctx, spec, func() error { made.Add(1); return nil })
				if err != nil && !errors.Is(err, ErrExists) {
					t.Error(err)
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 5 {
		t.Errorf("files were made %d times for 5 tables", made.Load())
	}
}

func TestSyncOnlyIfAsked(t *testing.T) {
	t.Parallel()
	for noSync, want := range map[bool]int{false: 2, true: 0} { // FULL, OFF
		c, err := Open(context.Background(), filepath.Join(t.TempDir(), "c.db"), nil, noSync, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got int
		if err := c.db.QueryRow(`PRAGMA synchronous`).Scan(&got); err != nil || got != want {
			t.Errorf("noSync %v: synchronous is %d, %v; want %d", noSync, got, err, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNewerLayoutIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.db")
	if _, err := open(t, path).db.Exec(`PRAGMA user_version = 99`); err != nil {
		t.Fatal(err)
	}
	if c, err := Open(context.Background(), path, nil, false, nil); err == nil || !strings.Contains(err.Error(), "99") {
		t.Errorf("got %v, %v", c, err)
	}
}

func BenchmarkOpenMemory(b *testing.B) {
	for b.Loop() {
		c, err := Open(context.Background(), "", nil, false, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// What SQLite says of the file is told by the errors that callers know: a damaged file, a full disk (here by a limit on the file's size).
func TestErrorsOfTheFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("no catalog ", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path, nil, false, nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("damaged: %v", err)
	}
	c, err := Open(t.Context(), path+"2", nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.db.Exec(`PRAGMA max_page_count = 1`); err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err = c.write(t.Context(), func(tx *sql.Tx) error {
			_, err := tx.Exec(`INSERT INTO settings VALUES (?, ?)`, strconv.Itoa(i), strings.Repeat("x", 1000))
			return err
		}); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || strings.Contains(err.Error(), "rollback") {
		t.Errorf("full: %v", err)
	}
}

// A new file begins with the tables that are found; a file that is there is not changed by them.
func TestOpenWithFoundTables(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.db")
	there := Table{Catalog: "lab", Schema: "s", Name: "t", Location: "lab/s/t", Type: "MANAGED", Comment: "x"}
	failed := errors.New("disk")
	if _, err := Open(t.Context(), path, nil, false, func() ([]Table, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Fatalf("got %v", err)
	}
	for _, found := range []func() ([]Table, error){
		func() ([]Table, error) { return []Table{there}, nil },
		func() ([]Table, error) { t.Error("asked again"); return nil, nil },
	} {
		c, err := Open(t.Context(), path, nil, false, found)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Table(t.Context(), "lab.s.t")
		if err != nil || got.ID == "" || got.Location != there.Location || got.Comment != "x" || got.Created.IsZero() {
			t.Errorf("got %+v, %v", got, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
