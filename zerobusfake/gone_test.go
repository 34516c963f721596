package zerobusfake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

const gone = `Table "main.default.t" cannot be found.`

func (f *fixture) refused(code codes.Code, text string) {
	f.t.Helper()
	c := f.open(f.t.Context())
	c.send(createRequest("main.default.t", zerobuspb.RecordType_JSON.Enum(), nil))
	if _, err := c.rpc.Recv(); status.Code(err) != code || !strings.Contains(err.Error(), text) {
		f.t.Errorf("a new stream: %v", err)
	}
}

// TestRemovedTableEndsItsStreams: rm -rf of a table under a live stream ends the stream at its next record, and makes nothing again; what is made in
// its place is another table.
func TestRemovedTableEndsItsStreams(t *testing.T) {
	t.Parallel()
	for _, recreated := range []bool{false, true} {
		dir := t.TempDir()
		root, err := store.NewLocal(dir, true)
		if err != nil {
			t.Fatal(err)
		}
		st := store.Sub(root, "main/t")
		f := newFixture(t, st)
		c, other := f.json(), f.json()
		c.send(jsonRecord(0, `{"id":1}`))
		c.until(0)
		if err := os.RemoveAll(filepath.Join(dir, "main")); err != nil {
			t.Fatal(err)
		}
		var anew *deltalog.Table
		if recreated {
			if anew, err = deltalog.Create(t.Context(), st, deltalog.TableSpec{Schema: columnsOf(t, "id INT NOT NULL", "name STRING")}, deltalog.Options{CheckpointInterval: -1}); err != nil {
				t.Fatal(err)
			}
		}
		for _, stream := range []struct {
			c      *client
			offset int64
		}{{c, 1}, {other, 0}} {
			stream.c.send(jsonRecord(stream.offset, `{"id":2}`))
			if _, err := stream.c.drain(); status.Code(err) != codes.NotFound || status.Convert(err).Message() != gone {
				t.Errorf("recreated %v: the stream ends with %v", recreated, err)
			}
		}
		f.refused(codes.NotFound, gone)
		if !recreated {
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
			continue
		}
		f.table = anew
		fresh := f.json()
		fresh.send(jsonRecord(0, `{"id":3}`))
		fresh.until(0)
		if rows := f.rows(); len(rows) != 1 || rows[0] != `{"id":3,"name":null}` || anew.Cached().Version() != 1 {
			t.Errorf("the new table has %v at version %d", rows, anew.Cached().Version())
		}
	}
}

// TestDamagedTable: what does not pass gets a code that clients do not retry, with the reason, on live streams and new ones.
func TestDamagedTable(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	f := newFixture(t, st)
	c := f.json()
	c.send(jsonRecord(0, `{"id":1}`))
	c.until(0)
	if err := st.Put(t.Context(), "_delta_log/00000000000000000002.json", []byte("{"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	c.send(jsonRecord(1, `{"id":2}`))
	const why = "table main.default.t is damaged, see table verify: "
	if _, err := c.drain(); status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(status.Convert(err).Message(), why) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("the stream ends with %v", err)
	}
	f.refused(codes.InvalidArgument, why)
	if err := st.Delete(t.Context(), "_delta_log/00000000000000000002.json"); err != nil { // mended
		t.Fatal(err)
	}
	again := f.json()
	again.send(jsonRecord(0, `{"id":3}`))
	again.until(0)
}
