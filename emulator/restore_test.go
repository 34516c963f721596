package emulator

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// A workspace whose catalog is lost has its managed tables again: one that cannot be read by name too, a dropped one and what is not ours not.
func TestRestoreALostCatalog(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "odd [name]*")
	if IsDataDir(dir) {
		t.Error("a directory that is not there is a data directory")
	}
	w, err := OpenDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	spec := tableSpec(t, "id BIGINT")
	spec.Description = "orders"
	if len(w.Restored()) > 0 {
		t.Errorf("a new directory has %q", w.Restored())
	}
	if err := w.CreateCatalog(t.Context(), "lab", ""); err != nil {
		t.Fatal(err)
	}
	made := must(w.CreateTable(t.Context(), "lab.s.t", spec)).Cached().Metadata()
	must(w.CreateTable(t.Context(), "main.default.broken", spec))
	must(w.CreateTable(t.Context(), "main.default.dropped", spec))
	if err := w.DropTable(t.Context(), "main.default.dropped"); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"main/default/empty/_delta_log/x.txt", ".dropped-1/a/b/_delta_log/00000000000000000000.json", "Main/S/T/_delta_log/00000000000000000000.json"} {
		if err := w.Store().Put(t.Context(), other, []byte("{}"), store.PutOptions{}); err != nil && !strings.HasPrefix(other, ".") {
			t.Fatal(err)
		}
	}
	if err := w.Store().Put(t.Context(), "main/default/broken/_delta_log/00000000000000000000.json", []byte("{"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, catalogFile)); err != nil {
		t.Fatal(err)
	}
	if !IsDataDir(dir) {
		t.Error("a directory of tables is no data directory")
	}
	w = openDir(t, dir)
	if got, want := w.Restored(), []string{"lab.s.t", "main.default.broken"}; !slices.Equal(got, want) {
		t.Fatalf("found %q, want %q", got, want)
	}
	got := must(w.Table(t.Context(), "lab.s.t")).Cached().Metadata()
	info, err := w.Info(t.Context(), "lab.s.t")
	if err != nil || got.ID != made.ID || info.Type != managed || info.Comment != "orders" || info.Created.UnixMilli() != *made.CreatedTime {
		t.Errorf("got %+v %+v, %v", got, info, err)
	}
	if _, err := w.CreateTable(t.Context(), "lab.s.t", spec); err == nil || !strings.Contains(err.Error(), deltalog.ErrTableExists.Error()) {
		t.Errorf("made twice: %v", err)
	}
	if _, err := w.Info(t.Context(), "main.default.broken"); err != nil {
		t.Error(err)
	}
	if again := openDir(t, dir); len(again.Restored()) > 0 {
		t.Errorf("the next one found %q", again.Restored())
	}
}
