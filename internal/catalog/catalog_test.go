package catalog

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

func TestCatalogNames(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", filepath.Join(t.TempDir(), "a b?c.db")} {
		ctx := context.Background()
		c, err := Open(ctx, path, nil)
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
		made, err := c.CreateTable(ctx, Table{Catalog: "main", Schema: "Sales", Name: "Orders", Location: "main/sales/orders", Type: "MANAGED"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.CreateTable(ctx, made); !errors.Is(err, ErrExists) {
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
		if err := c.DeleteTable(ctx, "main.sales.orders"); err != nil {
			t.Error(err)
		}
		if err := c.DeleteTable(ctx, "main.sales.orders"); !errors.Is(err, ErrNotFound) {
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

func TestSettingIsMadeOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "c.db")
	for _, v := range []string{"first", "second"} {
		c, err := Open(ctx, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Setting(ctx, "id", func() string { return v })
		if err != nil || got != "first" {
			t.Errorf("got %q, %v", got, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkOpenMemory(b *testing.B) {
	for b.Loop() {
		c, err := Open(context.Background(), "", nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
