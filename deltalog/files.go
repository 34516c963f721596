package deltalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/uuid"
	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// maxRowGroup bounds the rows of a row group: readers and this writer hold one at a time.
const maxRowGroup = 1 << 20

// ErrNotNull says that a row has a null where the schema allows none. The text names the column.
var ErrNotNull = errors.New("DELTA_NOT_NULL_CONSTRAINT_VIOLATED")

// WriteFiles writes rows as data files (one per partition value combination), with statistics, durable when it returns. The batches have the
// columns of snap's schema in order (ArrowSchema); NOT NULL is enforced. The files are not part of the table before a Commit names them.
func (t *Table) WriteFiles(ctx context.Context, snap *Snapshot, batches []arrow.RecordBatch) ([]Add, error) {
	adds, err := t.writeFiles(ctx, snap, batches)
	if err != nil {
		return nil, fmt.Errorf("write files of %s: %w", t.st.URL(""), err)
	}
	return adds, nil
}

func (t *Table) writeFiles(ctx context.Context, snap *Snapshot, batches []arrow.RecordBatch) ([]Add, error) {
	for _, b := range batches {
		if err := checkBatch(snap.schema, b); err != nil {
			return nil, err
		}
	}
	parts, err := split(snap, batches)
	if err != nil {
		return nil, err
	}
	var adds []Add
	for _, p := range parts {
		add, err := t.writeFile(ctx, snap, p)
		if err != nil {
			return nil, err
		}
		adds = append(adds, add)
	}
	return adds, nil
}

// checkBatch checks that b has the columns of s, and no null where there may be none.
func checkBatch(s Struct, b arrow.RecordBatch) error {
	if int(b.NumCols()) != len(s.Fields) {
		return fmt.Errorf("a batch has %d columns, the table %d", b.NumCols(), len(s.Fields))
	}
	for i, f := range s.Fields {
		want, err := ArrowType(f.Type)
		if err != nil {
			return fmt.Errorf("column %s: %w", f.Name, err)
		}
		if got := b.Column(i).DataType(); got.ID() != want.ID() {
			return fmt.Errorf("column %s: a batch has %s, the table %s", f.Name, got, want)
		}
		if err := checkNotNull(f.Name, f.Type, f.Nullable, b.Column(i)); err != nil {
			return err
		}
	}
	return nil
}

func checkNotNull(name string, t DataType, nullable bool, arr arrow.Array) error {
	if !nullable && arr.NullN() > 0 {
		return fmt.Errorf("%w: column %s", ErrNotNull, name)
	}
	switch t := t.(type) {
	case Struct:
		st := arr.(*array.Struct)
		for i, f := range t.Fields {
			if f.Nullable && !nests(f.Type) {
				continue
			}
			child := st.Field(i)
			if st.NullN() == 0 {
				if err := checkNotNull(name+"."+f.Name, f.Type, f.Nullable, child); err != nil {
					return err
				}
				continue
			}
			for row := range st.Len() { // a null struct has null fields, which is no breach
				if !f.Nullable && !st.IsNull(row) && child.IsNull(row) {
					return fmt.Errorf("%w: column %s.%s", ErrNotNull, name, f.Name)
				}
			}
		}
	case Array:
		l := arr.(*array.List)
		return checkNotNull(name+".element", t.Element, t.ContainsNull, l.ListValues())
	case Map:
		m := arr.(*array.Map)
		if err := checkNotNull(name+".key", t.Key, false, m.Keys()); err != nil {
			return err
		}
		return checkNotNull(name+".value", t.Value, t.ValueContainsNull, m.Items())
	}
	return nil
}

func nests(t DataType) bool {
	switch t.(type) {
	case Struct, Array, Map:
		return true
	}
	return false
}

// part is the rows of one data file.
type part struct {
	values  map[string]*string
	batches []arrow.RecordBatch
	rows    int64
}

// split parts rows by their partition values; runs of equal values stay together.
func split(snap *Snapshot, batches []arrow.RecordBatch) ([]*part, error) {
	columns := snap.metadata.PartitionColumns
	if len(columns) == 0 {
		p := &part{values: map[string]*string{}, batches: batches}
		for _, b := range batches {
			p.rows += b.NumRows()
		}
		if p.rows == 0 {
			return nil, nil
		}
		return []*part{p}, nil
	}
	var order []*part
	byKey := map[string]*part{}
	for _, b := range batches {
		at := make([]int, len(columns))
		for i, c := range columns {
			at[i] = slices.IndexFunc(snap.schema.Fields, func(f Field) bool { return f.Name == c })
		}
		start, last := 0, ""
		var current map[string]*string
		cut := func(end int) {
			if end == start {
				return
			}
			p := byKey[last]
			if p == nil {
				p = &part{values: current}
				byKey[last] = p
				order = append(order, p)
			}
			p.batches = append(p.batches, b.NewSlice(int64(start), int64(end)))
			p.rows += int64(end - start)
			start = end
		}
		for row := range int(b.NumRows()) {
			values := map[string]*string{}
			for i, c := range columns {
				v, err := partitionValue(b.Column(at[i]), row)
				if err != nil {
					return nil, err
				}
				values[c] = v
			}
			if key := partitionKey(columns, func(c string) *string { return values[c] }); key != last || row == 0 {
				cut(row)
				last, current = key, values
			}
		}
		cut(int(b.NumRows()))
	}
	return order, nil
}

// fileWriter is a Parquet writer for one schema, kept to be used again: a new one costs a megabyte.
type fileWriter struct {
	schemaString string
	w            *parquet.GenericWriter[any]
	columns      []fileColumn
	out          bytes.Buffer
	shred        shredder
}

// fileColumn is a top-level column that is stored, with its leaves.
type fileColumn struct {
	index  int // in the table
	field  Field
	leaves []leafPath
}

func (t *Table) fileWriter(snap *Snapshot) (*fileWriter, error) {
	if f, ok := t.writers.Get().(*fileWriter); ok && f.schemaString == snap.metadata.SchemaString {
		f.out.Reset()
		// Reset of parquet-go 0.32 clears the row groups of the last file in place, and with them the column names that the writer
		// shares with them: the next file's footer would name none, which Spark refuses. What is taken away is not cleared.
		last := f.w.File().Metadata()
		for i := range last.RowGroups {
			last.RowGroups[i].Columns = nil
		}
		f.w.Reset(&f.out)
		return f, nil
	}
	f := &fileWriter{schemaString: snap.metadata.SchemaString}
	var stored Struct
	leaf := 0
	for i, field := range snap.schema.Fields {
		if slices.Contains(snap.metadata.PartitionColumns, field.Name) {
			continue
		}
		stored.Fields = append(stored.Fields, field)
		f.columns = append(f.columns, fileColumn{i, field, leafPaths(field.Type, nil, &leaf)})
	}
	group, err := parquetGroup(stored)
	if err != nil {
		return nil, err
	}
	f.w = parquet.NewGenericWriter[any](&f.out, parquet.NewSchema("spark_schema", group), parquet.Compression(&parquet.Snappy),
		parquet.DataPageVersion(1), parquet.CreatedBy("deltabus-local", "", ""), parquet.DataPageStatistics(false))
	columns := f.w.ColumnWriters()
	f.shred.sink = func(column int, values []parquet.Value) error {
		_, err := columns[column].WriteRowValues(values)
		return err
	}
	return f, nil
}

func (t *Table) writeFile(ctx context.Context, snap *Snapshot, p *part) (Add, error) {
	f, err := t.fileWriter(snap)
	if err != nil {
		return Add{}, err
	}
	rows := 0
	for _, b := range p.batches {
		for _, c := range f.columns {
			for _, leaf := range c.leaves {
				if err := f.shred.write(leaf, c.field.Type, b.Column(c.index)); err != nil {
					return Add{}, err
				}
			}
		}
		if rows += int(b.NumRows()); rows >= maxRowGroup {
			if err := f.w.Flush(); err != nil {
				return Add{}, err
			}
			rows = 0
		}
	}
	if err := f.w.Close(); err != nil {
		return Add{}, err
	}
	stats, err := statistics(snap, f.columns, p)
	if err != nil {
		return Add{}, err
	}
	path := partitionDir(snap.metadata.PartitionColumns, p.values) + "part-00000-" + uuid.NewString() + ".c000.snappy.parquet"
	if err := t.st.Put(ctx, path, f.out.Bytes(), store.PutOptions{}); err != nil {
		return Add{}, err
	}
	add := Add{
		Path: encodePath(path), PartitionValues: p.values, Size: int64(f.out.Len()),
		ModificationTime: t.opts.Clock().UnixMilli(), DataChange: true, Stats: stats,
	}
	t.writers.Put(f)
	return add, nil
}

// Append is WriteFiles and a blind-append Commit in one.
func (t *Table) Append(ctx context.Context, batches []arrow.RecordBatch, operation string) (*Commit, error) {
	snap, err := t.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	adds, err := t.WriteFiles(ctx, snap, batches)
	if err != nil {
		return nil, err
	}
	return t.Commit(ctx, Transaction{
		Base: snap, Operation: operation, Adds: adds, Parameters: map[string]any{"mode": "Append", "partitionBy": "[]"},
		Metrics: writeMetrics(adds),
	})
}

func writeMetrics(adds []Add) map[string]string {
	var size int64
	for _, a := range adds {
		size += a.Size
	}
	return map[string]string{"numFiles": fmt.Sprint(len(adds)), "numOutputBytes": fmt.Sprint(size)}
}
