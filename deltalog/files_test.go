package deltalog

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestEveryFileNamesItsColumns: writers are used again, and the footer of each file names the path of each column. Some readers do
// without; Spark refuses the file.
func TestEveryFileNamesItsColumns(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	st := store.NewMemory()
	field := Field{Name: "place", Nullable: true, Type: Struct{Fields: []Field{{Name: "x", Type: Long, Nullable: true}}}}
	table, err := Create(ctx, st, TableSpec{Name: "t", Schema: Struct{Fields: []Field{{Name: "id", Type: Long, Nullable: true}, field}}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	snap, err := table.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := ArrowSchema(snap.Schema())
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		if err := b.UnmarshalJSON([]byte(`{"id":1,"place":{"x":2}}`)); err != nil {
			t.Fatal(err)
		}
		adds, err := table.WriteFiles(ctx, snap, []arrow.RecordBatch{b.NewRecordBatch()})
		if err != nil {
			t.Fatal(err)
		}
		f, err := st.Open(ctx, adds[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(io.NewSectionReader(f, 0, adds[0].Size))
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		file, err := parquet.OpenFile(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, c := range file.Metadata().RowGroups[0].Columns {
			paths = append(paths, strings.Join(c.MetaData.PathInSchema, "."))
		}
		if got := strings.Join(paths, " "); got != "id place.x" {
			t.Errorf("file %d names its columns %q", n, got)
		}
	}
}

// TestPartitionValueOutlivesItsBatch: builders use their memory again, and the log keeps partition values.
func TestPartitionValueOutlivesItsBatch(t *testing.T) {
	t.Parallel()
	b := array.NewStringBuilder(memory.DefaultAllocator)
	b.Append("value")
	arr := b.NewStringArray()
	v, err := partitionValue(arr, 0)
	if err != nil {
		t.Fatal(err)
	}
	copy(arr.Data().Buffers()[2].Bytes(), "other")
	if *v != "value" {
		t.Errorf("the value changed to %q", *v)
	}
}
