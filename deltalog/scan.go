package deltalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// batchRows is how many rows a batch of a scan has at most.
const batchRows = 8192

// Scan yields the rows of snap's live files; partition as for FilesIn (nil: all). A batch is valid until the next one, unless
// retained. Files are read ahead, as ReadAhead says.
func (t *Table) Scan(ctx context.Context, snap *Snapshot, columns []string, partition map[string]string) iter.Seq2[arrow.RecordBatch, error] {
	sources := func(yield func(Source[struct{}]) bool) {
		for add := range snap.FilesIn(partition) {
			read := func(ctx context.Context) iter.Seq2[arrow.RecordBatch, error] {
				return t.ReadFile(ctx, snap, add.DataFile(), columns)
			}
			if !yield(Source[struct{}]{Batches: read}) {
				return
			}
		}
	}
	return func(yield func(arrow.RecordBatch, error) bool) {
		ReadAhead(ctx, sources, func(_ struct{}, rec arrow.RecordBatch, err error) bool { return yield(rec, err) })
	}
}

// DataFile is a file whose rows are to be read, and which of them.
type DataFile struct {
	// Path is as an action of the log gives it.
	Path            string
	PartitionValues map[string]*string
	// Deleted is the file's deletion vector: its rows are left out.
	Deleted *DeletionVector
	// Only, if set, is the rows to give, Deleted or not.
	Only *RowSet
	// WithChangeType marks a change file: its column _change_type comes as the last.
	WithChangeType bool
	// Unpadded gives CHAR(n) columns as they are stored.
	Unpadded bool
}

// changeType is the column that change files have and tables do not.
var changeType = Field{Name: "_change_type", Type: String, Nullable: true}

// DataFile is the file with the rows that are live.
func (a *Add) DataFile() DataFile {
	return DataFile{Path: a.Path, PartitionValues: a.PartitionValues, Deleted: a.DeletionVector}
}

// DataFile is the file with the rows that were live.
func (r *Remove) DataFile() DataFile {
	return DataFile{Path: r.Path, PartitionValues: r.PartitionValues, Deleted: r.DeletionVector}
}

// ReadFile yields the rows of one data file of the table, by the schema of snap, columns in the order asked for (nil: all).
// Columns that the file lacks are null. A batch is valid until the next one, unless retained.
func (t *Table) ReadFile(ctx context.Context, snap *Snapshot, f DataFile, columns []string) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		stopped := false
		err := t.readFile(ctx, snap, f, columns, func(rec arrow.RecordBatch) bool {
			stopped = !yield(rec, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(nil, fmt.Errorf("read file %s of %s: %w", f.Path, t.st.URL(""), err))
		}
	}
}

// absolutePath matches a path of the log that does not begin at the table: with a scheme, or a slash.
var absolutePath = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*:)?/`)

// DataName is the name in st, the table's store, of a path that an action of the log gives: decoded once, relative to the table. An
// absolute path outside the table is ErrUnsupported.
func DataName(st store.Store, p string) (string, error) {
	name, err := url.PathUnescape(p)
	if err != nil {
		return "", fmt.Errorf("%w: path %q: %w", ErrCorrupt, p, err)
	}
	if absolutePath.MatchString(p) {
		root, err := url.Parse(st.URL(""))
		if err != nil {
			return "", err
		}
		abs := "/" + strings.TrimLeft(strings.TrimPrefix(name, root.Scheme+":"), "/")
		inside, ok := strings.CutPrefix(abs, strings.TrimSuffix(root.Path, "/")+"/")
		if !ok {
			return "", fmt.Errorf("%w: data file outside the table: %s", ErrUnsupported, p)
		}
		name = inside
	}
	if name = path.Clean(name); !fs.ValidPath(name) || name == "." {
		return "", fmt.Errorf("%w: path %q leaves the table", ErrCorrupt, p)
	}
	return name, nil
}

func (t *Table) readFile(ctx context.Context, snap *Snapshot, data DataFile, columns []string, yield func(arrow.RecordBatch) bool) (err error) {
	name, err := DataName(t.st, data.Path)
	if err != nil {
		return err
	}
	var deleted *RowSet
	if data.Only == nil {
		if deleted, err = t.DeletedRows(ctx, data.Deleted); err != nil {
			return err
		}
	}
	rows := newSelection(data.Only, deleted)
	f, err := t.st.Open(ctx, name)
	if errors.Is(err, store.ErrNotExist) {
		return fmt.Errorf("FAILED_READ_FILE.FILE_NOT_EXIST (SQLSTATE KD001): %w", err)
	}
	if err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil { // parquet-go panics on some damage
			if e, ok := r.(consumerPanic); ok {
				panic(e.value)
			}
			err = fmt.Errorf("%w: %v", ErrCorrupt, r)
		}
		err = errors.Join(err, f.Close())
	}()
	tail, err := newTailReader(f)
	if err != nil {
		return err
	}
	defer func() {
		if failed := tail.failure(); failed != nil {
			err = failed
		}
	}()
	pf, err := tail.open()
	if err != nil {
		return err
	}
	fields, err := project(snap.schema, columns)
	if err != nil {
		return err
	}
	if data.Unpadded {
		fields = undeclared(fields)
	}
	if data.WithChangeType {
		fields = append(slices.Clip(fields), changeType)
	}
	schema, err := ArrowSchema(Struct{nullable(fields)})
	if err != nil {
		return err
	}
	out := batchBuilder{rows: rows, builder: array.NewRecordBuilder(memory.DefaultAllocator, schema)}
	defer out.release()
	for _, group := range pf.RowGroups() {
		more, err := out.readGroup(ctx, pf, group, snap, fields, data.PartitionValues, yield)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// nullable are the fields as a scan gives them: files of other writers may have nulls where today's schema allows none.
func nullable(fields []Field) []Field {
	out := slices.Clone(fields)
	for i := range out {
		out[i].Nullable = true
	}
	return out
}

// project is the fields of s with these names, in this order.
func project(s Struct, columns []string) ([]Field, error) {
	if columns == nil {
		return s.Fields, nil
	}
	fields := make([]Field, len(columns))
	for i, c := range columns {
		f, ok := s.field(c)
		if !ok {
			return nil, fmt.Errorf("no column %s", c)
		}
		fields[i] = f
	}
	return fields, nil
}

// undeclared are fields without what makes reading them more than reading what is stored.
func undeclared(fields []Field) []Field {
	out := slices.Clone(fields)
	for i := range out {
		out[i].Metadata = nil
		if s, ok := out[i].Type.(Struct); ok {
			out[i].Type = Struct{undeclared(s.Fields)}
		}
	}
	return out
}

// consumerPanic carries a panic of the code that consumes a scan past the recovery that is meant for broken files.
type consumerPanic struct{ value any }

// batchBuilder makes batches of the rows of a file that are selected.
type batchBuilder struct {
	rows    *selection
	at      int64 // the position in the file of the next row
	builder *array.RecordBuilder
	passed  *array.RecordBuilder // takes what is read and not given
}

func (o *batchBuilder) release() {
	o.builder.Release()
	if o.passed != nil {
		o.passed.Release()
	}
}

func (o *batchBuilder) readGroup(ctx context.Context, pf *parquet.File, group parquet.RowGroup, snap *Snapshot, fields []Field, values map[string]*string, yield func(arrow.RecordBatch) bool) (more bool, err error) {
	readers := make([]columnReader, len(fields))
	var opened []*cursor
	defer func() {
		for _, c := range opened {
			err = errors.Join(err, c.close())
		}
	}()
	for i, f := range fields {
		if slices.Contains(snap.metadata.PartitionColumns, f.Name) {
			readers[i] = &constantColumn{f.Type, values[f.StoredName()]}
			continue
		}
		col := childColumn(pf.Root(), &f)
		if col == nil {
			readers[i] = nullColumn{}
			continue
		}
		n, err := newNode(col, f.Type, group, &opened)
		if err != nil {
			return false, fmt.Errorf("column %s: %w", f.Name, err)
		}
		n.padTo(&f)
		readers[i] = n
	}
	kept := int64(0)
	for left := group.NumRows(); left > 0; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		given, n := o.rows.run(o.at, min(left, batchRows-kept))
		into := o.builder
		if !given {
			if o.passed == nil {
				o.passed = array.NewRecordBuilder(memory.DefaultAllocator, o.builder.Schema())
			}
			into = o.passed
		}
		for i, r := range readers {
			if err := r.read(into.Field(i), int(n)); err != nil {
				return false, fmt.Errorf("column %s: %w", fields[i].Name, err)
			}
		}
		o.at += n
		left -= n
		if !given {
			o.passed.NewRecordBatch().Release()
		} else {
			kept += n
		}
		if kept == 0 || kept < batchRows && left > 0 {
			continue
		}
		rec := o.builder.NewRecordBatch()
		if len(fields) == 0 { // how many there are is all that is asked
			rec = array.NewRecordBatch(o.builder.Schema(), nil, kept)
		}
		kept = 0
		more := yieldBatch(rec, yield)
		rec.Release()
		if !more {
			return false, nil
		}
	}
	return true, nil
}

func yieldBatch(rec arrow.RecordBatch, yield func(arrow.RecordBatch) bool) bool {
	defer func() {
		if r := recover(); r != nil {
			panic(consumerPanic{r})
		}
	}()
	return yield(rec)
}

// childColumn finds a child by the field's id if it has one, else by its stored name: exactly, else in any case.
func childColumn(c *parquet.Column, f *Field) *parquet.Column {
	if f.id != 0 {
		for _, x := range c.Columns() {
			if x.ID() == f.id {
				return x
			}
		}
		return nil
	}
	name := f.StoredName()
	if x := c.Column(name); x != nil {
		return x
	}
	for _, x := range c.Columns() {
		if strings.EqualFold(x.Name(), name) {
			return x
		}
	}
	return nil
}

// columnReader appends the next n rows of a column to a builder.
type columnReader interface {
	read(b array.Builder, n int) error
}

// constantColumn is a partition column: one value for the whole file.
type constantColumn struct {
	t     DataType
	value *string
}

func (c *constantColumn) read(b array.Builder, n int) error {
	for range n {
		if err := appendPartitionValue(b, c.t, c.value); err != nil {
			return err
		}
	}
	return nil
}

// nullColumn is a column that the file does not have.
type nullColumn struct{}

func (nullColumn) read(b array.Builder, n int) error {
	b.AppendNulls(n)
	return nil
}
