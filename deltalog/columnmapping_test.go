package deltalog

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// mappedTable is a table whose columns are stored by other names: a as col-1, its field x as col-2, and the partition column p as col-3.
func mappedTable(t *testing.T, mode string) (*Table, error) {
	t.Helper()
	meta := func(id int) string {
		return fmt.Sprintf(`{"delta.columnMapping.id":%d,"delta.columnMapping.physicalName":"col-%d"}`, id, id)
	}
	schema := fmt.Sprintf(`{"type":"struct","fields":[{"name":"a","type":{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":%s}]},"nullable":true,"metadata":%s},{"name":"p","type":"string","nullable":true,"metadata":%s}]}`, meta(2), meta(1), meta(3))
	text := strings.ReplaceAll(schema, `"`, `\"`)
	st := store.NewMemory()
	put(t, st, logName(0), `{"protocol":{"minReaderVersion":2,"minWriterVersion":5}}`+"\n"+
		`{"metaData":{"id":"x","format":{"provider":"parquet"},"schemaString":"`+text+`","partitionColumns":["p"],"configuration":{"delta.columnMapping.mode":"`+mode+`"}}}`+"\n"+
		`{"add":{"path":"f.parquet","partitionValues":{"col-3":"one"},"size":1,"modificationTime":1,"dataChange":true}}`)
	return Open(t.Context(), st, quiet)
}

// TestColumnMapping reads by names or ids as the mode says, and by nothing else.
func TestColumnMapping(t *testing.T) {
	t.Parallel()
	long := func(id int) parquet.Node {
		return parquet.FieldID(parquet.Optional(parquet.Leaf(parquet.Int64Type)), id)
	}
	row := []parquet.Row{{parquet.Int64Value(7).Level(0, 2, 0)}}
	for _, c := range []struct {
		mode, name string
		node       parquet.Node
		want       string
	}{
		{"name", "stored names", parquet.Group{"col-1": parquet.Optional(parquet.Group{"col-2": long(0)})}, `{"a":{"x":7},"p":"one"}`},
		{"name", "ids count for nothing", parquet.Group{"other": parquet.FieldID(parquet.Optional(parquet.Group{"col-2": long(2)}), 1)}, `{"a":null,"p":"one"}`},
		{"name", "own names count for nothing", parquet.Group{"a": parquet.Optional(parquet.Group{"x": long(2)})}, `{"a":null,"p":"one"}`},
		{"id", "ids", parquet.Group{"other": parquet.FieldID(parquet.Optional(parquet.Group{"names": long(2)}), 1)}, `{"a":{"x":7},"p":"one"}`},
		{"id", "names count for nothing", parquet.Group{"col-1": parquet.FieldID(parquet.Optional(parquet.Group{"col-2": long(2)}), 5)}, `{"a":null,"p":"one"}`},
	} {
		tab, err := mappedTable(t, c.mode)
		if err != nil {
			t.Fatal(err)
		}
		putFile(t, tab, "f.parquet", writeForeign(t, c.node, row))
		if got := readAll(t, tab, tab.Cached()); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s, %s: %v, expected %s", c.mode, c.name, got, c.want)
		}
		n := 0
		for range tab.Cached().FilesIn(map[string]string{"p": "one"}) {
			n++
		}
		for range tab.Cached().FilesIn(map[string]string{"p": "two"}) {
			n += 10
		}
		if n != 1 {
			t.Errorf("%s: the partition is not found by its column's name", c.mode)
		}
	}
	if _, err := mappedTable(t, "future"); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "future") {
		t.Errorf("a mode of the future: %v", err)
	}
}
