package emulator

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestTablesAreFoundInAStore: by their place, whatever lies beside.
func TestTablesAreFoundInAStore(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	for _, name := range []string{
		"README", "main/x", "main/a/t/_delta_log/0.json", "main/a/t/part-1", "main/a/t-2/_delta_log/0.json", "main/a/t0/p=1/x", "main/b/t/_delta_log/0.json", "z/z/z/_delta_log/0.json",
	} {
		if err := st.Put(t.Context(), name, nil, store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := findTablesIn(t.Context(), st)
	slices.Sort(got)
	if want := []string{"main/a/t", "main/a/t-2", "main/b/t", "z/z/z"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

// TestWhereTablesAreIsRemembered: a data directory belongs to one store, and says so.
func TestWhereTablesAreIsRemembered(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s3 := func(bucket string) *store.S3Options {
		return &store.S3Options{Bucket: bucket, Prefix: "p", Endpoint: "http://127.0.0.1:1", AccessKey: "a", SecretKey: "b"}
	}
	dir := t.TempDir()
	w := &Workspace{dir: dir}
	if o, err := w.agree(ctx, s3("first"), nil); err != nil || o.Bucket != "first" {
		t.Errorf("a new one: %+v, %v", o, err)
	}
	if err := writeStorage(ctx, dir, storage{"s3://first/p", "http://127.0.0.1:1", "r"}); err != nil {
		t.Fatal(err)
	}
	known, err := readStorage(dir)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := w.agree(ctx, nil, known); err != nil || o.Bucket != "first" || o.Prefix != "p" || o.Endpoint != "http://127.0.0.1:1" || o.Region != "r" {
		t.Errorf("without being told: %+v, %v", o, err)
	}
	if _, err := w.agree(ctx, s3("second"), known); !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), "s3://first/p") {
		t.Errorf("another bucket: %v", err)
	}
	local := t.TempDir()
	st, err := store.NewLocal(filepath.Join(local, "tables"), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Put(ctx, "main/a/t/_delta_log/00000000000000000000.json", nil, store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(ctx, WithoutListener(), WithDataDir(local), WithS3(*s3("first"))); !errors.Is(err, ErrStorage) {
		t.Errorf("tables on disk: %v", err)
	}
}
