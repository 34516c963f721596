package deltalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/uuid"
	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// A row group ends at the first of these many rows or bytes: readers and this writer hold one at a time.
const (
	maxGroupRows  = 1 << 20
	maxGroupBytes = 128 << 20
)

// A batch is written in slices of at most so many rows, or about so many bytes, each column by column.
const (
	sliceRows  = 1 << 16
	sliceBytes = 16 << 20
)

// maxIdleBuffer is the largest file buffer that a writer keeps for its next file.
const maxIdleBuffer = 16 << 20

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
	return t.writeUnchecked(ctx, snap, batches)
}

// writeUnchecked writes rows that were checked, or that are in the table already.
func (t *Table) writeUnchecked(ctx context.Context, snap *Snapshot, batches []arrow.RecordBatch) ([]Add, error) {
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

// fileWriter is a Parquet writer for one schema, kept to be used again: a new one costs a megabyte.
type fileWriter struct {
	metadata *Metadata // of the table it was made for
	w        *parquet.GenericWriter[any]
	columns  []fileColumn
	out      bytes.Buffer
	shred    shredder
}

// fileColumn is a top-level column that is stored, with its leaves.
type fileColumn struct {
	index  int // in the table
	field  Field
	leaves []leafPath
}

// fileWriterFor takes a writer out of idle, or makes one. Each kind of file has a pool of its own.
func fileWriterFor(snap *Snapshot, idle *sync.Pool) (*fileWriter, error) {
	if f, ok := idle.Get().(*fileWriter); ok && f.metadata == snap.metadata {
		f.out.Reset()
		// Reset of parquet-go 0.32 clears the row groups of the last file in place, and with them the column names that the writer
		// shares with them: the next file's footer would name none, which Spark refuses. What is taken away is not cleared.
		last := f.w.File().Metadata()
		for i := range last.RowGroups {
			last.RowGroups[i].Columns = nil
		}
		f.w.Reset(&f.out)
		f.shred.bytes = 0
		return f, nil
	}
	f := &fileWriter{metadata: snap.metadata}
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
	f, err := fileWriterFor(snap, &t.writers)
	if err != nil {
		return Add{}, err
	}
	stats, err := statistics(snap, f.columns, p)
	if err != nil {
		return Add{}, err
	}
	path := partitionDir(snap.metadata.PartitionColumns, p.values) + "part-00000-" + uuid.NewString() + ".c000.snappy.parquet"
	size, err := t.storeFile(ctx, f, p.batches, path)
	if err != nil {
		return Add{}, err
	}
	t.writers.Put(f)
	return Add{
		Path: encodePath(path), PartitionValues: p.values, Size: size,
		ModificationTime: t.opts.Clock().UnixMilli(), DataChange: true, Stats: stats,
	}, nil
}

// storeFile writes rows with f and stores them under path. f may be used again after it.
func (t *Table) storeFile(ctx context.Context, f *fileWriter, rows []arrow.RecordBatch, path string) (size int64, err error) {
	if err := f.write(rows); err != nil {
		return 0, err
	}
	if err := f.w.Close(); err != nil {
		return 0, err
	}
	if err := trimFooter(&f.out, f.w.File().Metadata()); err != nil {
		return 0, err
	}
	if err := t.putFile(ctx, path, f.out.Bytes()); err != nil {
		return 0, err
	}
	size = int64(f.out.Len())
	if f.out.Cap() > maxIdleBuffer {
		f.out = bytes.Buffer{} // Reset points the writer at it again
	}
	return size, nil
}

// putFile writes a data file. Its directory is made only while the table is there.
func (t *Table) putFile(ctx context.Context, path string, data []byte) error {
	err := t.put(ctx, path, data, store.PutOptions{NoDirs: true})
	if errors.Is(err, store.ErrNotExist) {
		if err := t.sameLog(ctx); err != nil {
			return err
		}
		err = t.put(ctx, path, data, store.PutOptions{})
	}
	return err
}

// write writes the rows of batches, which fit the schema, and leaves the last row group open.
func (f *fileWriter) write(batches []arrow.RecordBatch) error {
	rows := 0
	for _, b := range batches {
		limit := rowsOfSlice(b)
		for from := int64(0); from < b.NumRows(); from += limit {
			part := b
			if b.NumRows() > limit {
				part = b.NewSlice(from, min(from+limit, b.NumRows()))
			}
			for _, c := range f.columns {
				for _, leaf := range c.leaves {
					if err := f.shred.write(leaf, c.field.Type, part.Column(c.index)); err != nil {
						return fmt.Errorf("column %s: %w", c.field.Name, err)
					}
				}
			}
			rows += int(part.NumRows())
			if rows >= maxGroupRows || f.shred.bytes >= maxGroupBytes {
				if err := f.w.Flush(); err != nil {
					return err
				}
				rows, f.shred.bytes = 0, 0
			}
		}
	}
	return nil
}

// rowsOfSlice is how many rows of b are written at once. A batch that is itself a slice counts as large as what it is from.
func rowsOfSlice(b arrow.RecordBatch) int64 {
	size := uint64(1)
	for _, c := range b.Columns() {
		size += c.Data().SizeInBytes()
	}
	return max(1, min(sliceRows, sliceBytes*b.NumRows()/int64(size)))
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
