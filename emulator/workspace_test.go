package emulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/internal/catalog"
)

func openDir(t *testing.T, dir string) *Workspace {
	t.Helper()
	w, err := OpenDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// files counts what is below a prefix of a store.
func files(t *testing.T, st store.Store, prefix string) int {
	t.Helper()
	n := 0
	for _, err := range st.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// A table that is dropped under a stream takes no more records, nothing of it stays, and its name is free for another.
func TestDropUnderAStream(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]Option{"memory": nil, "directory": {WithDataDir(t.TempDir())}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := Run(t, append(opts, WithoutListener())...)
			const table = "main.default.t"
			old, err := e.CreateTable(t.Context(), table, tableSpec(t, "id BIGINT"))
			if err != nil {
				t.Fatal(err)
			}
			id := old.Cached().Metadata().ID
			conn := dialGRPC(t, e)
			idle, busy := openStream(t, conn, table), openStream(t, conn, table)
			idle.acknowledged(0, `{"id":1}`)
			busy.acknowledged(0, `{"id":2}`)
			gone, ended := make(chan struct{}), make(chan error, 1)
			go func() { // sends until it is told that the table is gone, or finds out
				var err error
				for i := int64(1); err == nil; i++ {
					select {
					case <-gone:
						err = errors.Join(busy.send(i, `{"id":3}`), busy.rpc.CloseSend(), io.EOF)
					default:
						err = busy.send(i, `{"id":3}`)
					}
				}
				for err = nil; err == nil; {
					_, err = busy.rpc.Recv()
				}
				ended <- err
			}()
			if code, body := newAPI(t, e).call(http.MethodDelete, uc+"tables/"+table, ""); code != 200 {
				t.Fatalf("drop: %d %s", code, body)
			}
			close(gone)
			if err := <-ended; status.Code(err) != codes.NotFound {
				t.Errorf("the busy stream ends with %v", err)
			}
			if err := idle.send(1, `{"id":4}`); err != nil {
				t.Fatal(err)
			}
			if _, err := idle.rpc.Recv(); status.Code(err) != codes.NotFound {
				t.Errorf("the idle stream ends with %v", err)
			}
			if n := files(t, e.Store(), ""); n != 0 {
				t.Errorf("%d files are left", n)
			}
			if _, err := e.Table(t.Context(), table); !errors.Is(err, deltalog.ErrNotTable) {
				t.Errorf("the dropped table: %v", err)
			}
			again, err := e.CreateTable(t.Context(), table, tableSpec(t, "name STRING"))
			if err != nil {
				t.Fatal(err)
			}
			if again.Cached().Metadata().ID == id || again.Cached().Version() != 0 {
				t.Errorf("the new table is %+v", again.Cached().Metadata())
			}
			s := openStream(t, conn, table)
			s.acknowledged(0, `{"name":"x"}`)
			s.end()
			if n := rowCount(t, again); n != 1 {
				t.Errorf("%d rows", n)
			}
		})
	}
}

// A managed table whose directory somebody removes is gone for streams and callers; one that is made in its place is taken for what it is.
func TestRemovedUnderAStream(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := Run(t, WithDataDir(dir), WithoutListener())
	const table = "main.default.t"
	old, err := e.CreateTable(t.Context(), table, tableSpec(t, "id BIGINT"))
	if err != nil {
		t.Fatal(err)
	}
	conn := dialGRPC(t, e)
	live, idle := openStream(t, conn, table), openStream(t, conn, table)
	live.acknowledged(0, `{"id":1}`)
	if err := os.RemoveAll(filepath.Join(dir, "tables", "main", "default", "t")); err != nil {
		t.Fatal(err)
	}
	ended := func(s stream, offset int64) {
		t.Helper()
		if err := s.send(offset, `{"id":2}`); err != nil {
			t.Fatal(err)
		}
		if _, err := s.rpc.Recv(); status.Code(err) != codes.NotFound {
			t.Errorf("the stream ends with %v", err)
		}
	}
	ended(live, 1)
	if _, err := e.Table(t.Context(), table); !errors.Is(err, deltalog.ErrNotTable) {
		t.Errorf("the removed table: %v", err)
	}
	if n := files(t, e.Store(), ""); n != 0 {
		t.Errorf("%d files are left", n)
	}
	other, err := deltalog.Create(t.Context(), old.Store(), tableSpec(t, "name STRING"), deltalog.Options{}) // another engine
	if err != nil {
		t.Fatal(err)
	}
	s := openStream(t, conn, table)
	s.acknowledged(0, `{"name":"x"}`)
	s.end()
	ended(idle, 0)
	if n := rowCount(t, other); n != 1 {
		t.Errorf("%d rows", n)
	}
	if code, body := newAPI(t, e).call(http.MethodDelete, uc+"tables/"+table, ""); code != 200 {
		t.Fatalf("drop: %d %s", code, body)
	}
	if _, err := e.CreateTable(t.Context(), table, tableSpec(t, "id BIGINT")); err != nil {
		t.Fatal(err)
	}
	s = openStream(t, conn, table)
	s.acknowledged(0, `{"id":1}`)
	s.end()
}

func TestOneHandleATable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, other := openDir(t, dir), openDir(t, dir) // two processes
	made, err := one.CreateTable(t.Context(), "main.s.t", tableSpec(t, "id INT"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"main.s.t", "Main.S.T"} {
		if got, err := one.Table(t.Context(), name); err != nil || got != made {
			t.Errorf("%s: another handle, %v", name, err)
		}
	}
	if err := other.DropTable(t.Context(), "main.s.t"); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Table(t.Context(), "main.s.t"); !errors.Is(err, deltalog.ErrNotTable) {
		t.Errorf("dropped by another process: %v", err)
	}
	if _, err := other.CreateTable(t.Context(), "main.s.t", tableSpec(t, "name STRING")); err != nil {
		t.Fatal(err)
	}
	got, err := one.Table(t.Context(), "main.s.t")
	if err != nil || got == made || got.Cached().Schema().Fields[0].Name != "name" {
		t.Errorf("made anew by another process: %v", err)
	}
}

// Of many processes that make one table, one does, and the others are told.
func TestCreateAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const n = 4
	var errs [n]error
	var wg sync.WaitGroup
	for i := range n {
		w := openDir(t, dir)
		spec := tableSpec(t, fmt.Sprintf("c%d INT", i))
		wg.Go(func() { _, errs[i] = w.CreateTable(context.Background(), "main.s.t", spec) })
	}
	wg.Wait()
	got := must(openDir(t, dir).Table(t.Context(), "main.s.t")).Cached()
	made := 0
	for i, err := range errs {
		switch {
		case err == nil:
			made++
			if want := fmt.Sprintf("c%d", i); got.Schema().Fields[0].Name != want {
				t.Errorf("the table has %s, and %s was made", columns(got.Schema()), want)
			}
		case !errors.Is(err, deltalog.ErrTableExists):
			t.Error(err)
		}
	}
	if made != 1 || got.Version() != 0 {
		t.Errorf("%d were made, at version %d", made, got.Version())
	}
}

// What a crash leaves between the log and the catalog does not stand in the way of another try.
func TestCreateAfterACrash(t *testing.T) {
	t.Parallel()
	w := openDir(t, t.TempDir())
	at := store.Sub(w.Store(), "main/s/t")
	if _, err := deltalog.Create(t.Context(), at, tableSpec(t, "old INT"), deltalog.Options{}); err != nil {
		t.Fatal(err)
	}
	made, err := w.CreateTable(t.Context(), "main.s.t", tableSpec(t, "new INT"))
	if err != nil || made.Cached().Schema().Fields[0].Name != "new" {
		t.Fatalf("%v", err)
	}
}

// Data that the catalog does not name is not taken for a new table, and not thrown away.
func TestCreateOverForeignData(t *testing.T) {
	t.Parallel()
	w := openDir(t, t.TempDir())
	at := store.Sub(w.Store(), "main/s/t")
	foreign, err := deltalog.Create(t.Context(), at, tableSpec(t, "id INT"), deltalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := foreign.Commit(t.Context(), deltalog.Transaction{Base: foreign.Cached(), Operation: "WRITE", Adds: []deltalog.Add{{Path: "x.parquet", Size: 1, DataChange: true}}}); err != nil {
		t.Fatal(err)
	}
	before := files(t, w.Store(), "main/s/t/")
	if _, err := w.CreateTable(t.Context(), "main.s.t", tableSpec(t, "id INT")); !errors.Is(err, ErrLocation) || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("got %v", err)
	}
	if after := files(t, w.Store(), "main/s/t/"); after != before {
		t.Errorf("%d files, were %d", after, before)
	}
	if _, err := w.Table(t.Context(), "main.s.t"); !errors.Is(err, deltalog.ErrNotTable) {
		t.Errorf("got %v", err)
	}
}

// A table whose files somebody removed says so, and can be dropped.
func TestFilesGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := openDir(t, dir).CreateTable(t.Context(), "main.s.t", tableSpec(t, "id INT")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "tables", "main")); err != nil {
		t.Fatal(err)
	}
	w := openDir(t, dir)
	if _, err := w.Table(t.Context(), "main.s.t"); !errors.Is(err, deltalog.ErrNotTable) || !strings.Contains(err.Error(), "its log is gone") {
		t.Errorf("got %v", err)
	}
	if err := w.DropTable(t.Context(), "main.s.t"); err != nil {
		t.Error(err)
	}
	if _, err := w.CreateTable(t.Context(), "main.s.t", tableSpec(t, "id INT")); err != nil {
		t.Error(err)
	}
}

// A server that was killed while it dropped a table left its files aside; the next one removes them.
func TestTrashIsEmptied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	left := filepath.Join(dir, "tables", dropped+"x", "_delta_log")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	Run(t, WithDataDir(dir), WithoutListener())
	if _, err := os.Stat(filepath.Dir(left)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestSchemasOfTables(t *testing.T) {
	t.Parallel()
	w := openDir(t, t.TempDir())
	if _, err := w.CreateTable(t.Context(), "nowhere.s.t", tableSpec(t, "id INT")); !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("a table in no catalog: %v", err)
	}
	if err := w.CreateCatalog(t.Context(), "nowhere", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateTable(t.Context(), "nowhere.s.t", tableSpec(t, "id INT")); err != nil {
		t.Error(err)
	}
	if err := w.CreateSchema(t.Context(), "nowhere.s", ""); !errors.Is(err, catalog.ErrExists) {
		t.Errorf("the table made its schema: %v", err)
	}
}

// External tables: one that is there is registered, one that is not is made; its files outlive a drop.
func TestExternalTables(t *testing.T) {
	t.Parallel()
	outside, dir := t.TempDir(), t.TempDir()
	e := Run(t, WithDataDir(dir), WithoutListener())
	a := newAPI(t, e)
	post := func(name, location, more string) (int, string) {
		return a.call("POST", uc+"tables", fmt.Sprintf(`{"name":%q,"catalog_name":"main","schema_name":"default","table_type":"EXTERNAL","data_source_format":"DELTA","storage_location":%q%s}`, name, location, more))
	}
	const cols = `,"columns":[{"name":"id","type_text":"bigint"}]`
	there := filepath.Join(outside, "there")
	st, err := store.NewLocal(there, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deltalog.Create(t.Context(), st, tableSpec(t, "id BIGINT"), deltalog.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, location, more string
		code                 int
		want                 string
	}{
		{"none", filepath.Join(outside, "none"), "", 400, "there is no Delta table"},
		{"wrong", there, `,"columns":[{"name":"id","type_text":"int"}]`, 400, "other columns"},
		{"relative", "x/y", cols, 400, "absolute"},
		{"escape", "../../x", cols, 400, "absolute"},
		{"s3", "s3://bucket/x", cols, 400, "only file:"},
		{"inside", filepath.Join(dir, "tables", "main", "x"), cols, 400, "overlaps the data directory"},
		{"around", filepath.Dir(dir), cols, 400, "overlaps the data directory"},
		{"there", "file://" + filepath.ToSlash(there), "", 200, `"table_type":"EXTERNAL"`},
		{"twice", there + "/", "", 400, "overlaps table main.default.there"},
		{"below", filepath.Join(there, "x"), cols, 400, "overlaps table"},
		{"made", filepath.Join(outside, "made here"), cols, 200, "made%20here"},
	} {
		if code, body := post(tt.name, tt.location, tt.more); code != tt.code || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s; want %d %s", tt.name, code, body, tt.code, tt.want)
		}
	}
	for _, name := range []string{"there", "made"} {
		s := openStream(t, dialGRPC(t, e), "main.default."+name)
		s.acknowledged(0, `{"id":1}`)
		s.end()
		if code, body := a.call("DELETE", uc+"tables/main.default."+name, ""); code != 200 {
			t.Errorf("drop %s: %d %s", name, code, body)
		}
	}
	for _, path := range []string{there, filepath.Join(outside, "made here")} {
		st := must(store.NewLocal(path, true))
		if n := rowCount(t, must(deltalog.Open(t.Context(), st, deltalog.Options{}))); n != 1 {
			t.Errorf("%s has %d rows", path, n)
		}
	}
}

func TestLocations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path, dir string
		want      bool
	}{
		{"/a/b", "/a", true}, {"/a", "/a", true}, {"/ab", "/a", false}, {"/a/..b", "/a", true}, {"/", "/a", false}, {"/a/../b", "/a", false},
	} {
		if got := within(filepath.FromSlash(tt.path), filepath.FromSlash(tt.dir)); got != tt.want {
			t.Errorf("%s within %s: %v", tt.path, tt.dir, got)
		}
	}
	for _, bad := range []string{"s3://b/x", "file://host/x", "file:", "http://x", "%"} {
		if p, err := localPath(bad); !errors.Is(err, ErrLocation) {
			t.Errorf("%s: %q, %v", bad, p, err)
		}
	}
	for _, dir := range []string{"/a b/ü%20", "/x"} {
		if p, err := localPath(fileURL(dir)); err != nil || p != filepath.FromSlash(dir) {
			t.Errorf("%s: %q, %v", dir, p, err)
		}
	}
}
