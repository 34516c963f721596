package deltalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
)

// cursor walks the values of one leaf column of a row group, page by page. Bytes of a value are valid until the page after its own is read.
type cursor struct {
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
	buf    []parquet.Value
	at, n  int
}

// newCursor starts at the first value of a column.
func newCursor(group parquet.RowGroup, col *parquet.Column) *cursor {
	// Small files are many: what is set aside for them is small too.
	return &cursor{pages: group.ColumnChunks()[col.Index()].Pages(), buf: make([]parquet.Value, max(16, min(512, group.NumRows())))}
}

// peek is the next value; io.ErrUnexpectedEOF behind the last.
func (c *cursor) peek() (*parquet.Value, error) {
	for c.at == c.n {
		if c.values == nil {
			page, err := c.pages.ReadPage()
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
			c.page, c.values = page, page.Values()
		}
		n, err := c.values.ReadValues(c.buf)
		c.at, c.n = 0, n
		if n == 0 && err == nil {
			err = io.ErrNoProgress
		}
		if n == 0 {
			parquet.Release(c.page)
			c.page, c.values = nil, nil
			if !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
		}
	}
	return &c.buf[c.at], nil
}

// maxExpected is the most that is set aside on a guess, in bytes.
const maxExpected = 16 << 20

// expect is about how many bytes the next rows of a column of strings have, going by the page that peek came to.
func (c *cursor) expect(rows int) int {
	if c.page == nil || c.page.NumValues() == 0 || c.page.Dictionary() != nil {
		return 0
	}
	return int(min(maxExpected, (c.page.Size()/c.page.NumValues()+1)*int64(rows)))
}

func (c *cursor) close() error {
	if c.page != nil {
		parquet.Release(c.page)
		c.page = nil
	}
	return c.pages.Close()
}

// node assembles the values of a column, or of a part of one, from the levels of its leaves.
type node struct {
	t DataType
	// def is the definition level from which the value itself is there.
	def      int
	repeated int // for lists and maps: the level of definition of an entry, which is also when there is one
	rep      int // for lists and maps: the repetition level of a further entry; for a witness, the struct's own
	kids     []*node
	lost     []bool // for structs: fields that the file does not have
	witness  bool   // for structs: first is a leaf that no field reads
	leaf     *cursor
	first    *cursor   // the first leaf below: its level tells whether the value is there
	leaves   []*cursor // all leaves below
	convert  func(array.Builder, *parquet.Value) error
	pad      int // for CHAR(n): how many characters a text has at least
}

// newNode plans the reading of col as t.
func newNode(col *parquet.Column, t DataType, group parquet.RowGroup, opened *[]*cursor) (*node, error) {
	n := &node{t: t, def: col.MaxDefinitionLevel()}
	switch t := t.(type) {
	case Struct:
		if col.Leaf() {
			return nil, fmt.Errorf("%w: a struct is stored as a plain column", ErrCorrupt)
		}
		for _, f := range t.Fields {
			child := childColumn(col, &f)
			n.lost = append(n.lost, child == nil)
			if child == nil {
				n.kids = append(n.kids, nil)
				continue
			}
			kid, err := newNode(child, f.Type, group, opened)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Name, err)
			}
			kid.padTo(&f)
			n.adopt(kid)
		}
		if n.first == nil {
			return n, n.openAny(col, group, opened)
		}
		return n, nil
	case Array:
		entry, element, err := listColumns(col)
		if err != nil {
			return nil, err
		}
		if entry == col { // a repeated column that is no LIST: the list itself cannot be null
			n.def = entry.MaxDefinitionLevel() - 1
		}
		n.repeated, n.rep = entry.MaxDefinitionLevel(), entry.MaxRepetitionLevel()
		kid, err := newNode(element, t.Element, group, opened)
		if err != nil {
			return nil, err
		}
		n.adopt(kid)
		return n, nil
	case Map:
		if len(col.Columns()) != 1 || len(col.Columns()[0].Columns()) != 2 || !col.Columns()[0].Repeated() {
			return nil, fmt.Errorf("%w: a map has an unknown layout", ErrUnsupported)
		}
		entry := col.Columns()[0]
		n.repeated, n.rep = entry.MaxDefinitionLevel(), entry.MaxRepetitionLevel()
		for i, kt := range []DataType{t.Key, t.Value} {
			kid, err := newNode(entry.Columns()[i], kt, group, opened)
			if err != nil {
				return nil, err
			}
			n.adopt(kid)
		}
		return n, nil
	}
	if t == Variant {
		return n, n.openVariant(col, group, opened)
	}
	if !col.Leaf() {
		return nil, fmt.Errorf("%w: a %s is stored as a group", ErrCorrupt, t.SQL())
	}
	convert, err := converter(col, t)
	if err != nil {
		return nil, err
	}
	c := newCursor(group, col)
	*opened = append(*opened, c)
	n.leaf, n.first, n.leaves, n.convert = c, c, []*cursor{c}, convert
	return n, nil
}

// openVariant plans the reading of a variant, a group of its dictionary and its value.
func (n *node) openVariant(col *parquet.Column, group parquet.RowGroup, opened *[]*cursor) error {
	metadata, value := col.Column("metadata"), col.Column("value")
	if col.Column("typed_value") != nil {
		return NewClassError("DELTA_UNSUPPORTED_FEATURES_FOR_READ", ErrUnsupported, "variantShredding")
	}
	if metadata == nil || value == nil || !metadata.Leaf() || !value.Leaf() {
		return fmt.Errorf("%w: a variant without metadata and value", ErrCorrupt)
	}
	for _, c := range []*parquet.Column{metadata, value} {
		kid, err := newNode(c, Binary, group, opened)
		if err != nil {
			return err
		}
		n.adopt(kid)
	}
	return nil
}

// appendVariant takes one variant that is there.
func (n *node) appendVariant(b *array.ExtensionBuilder) error {
	var parts [2][]byte
	for i, c := range n.leaves {
		v, err := c.peek()
		if err != nil {
			return err
		}
		parts[i] = v.ByteArray()
	}
	text, err := variantJSON(parts[0], parts[1])
	if err != nil {
		return err
	}
	b.Builder.(*array.StringBuilder).BinaryBuilder.Append(text)
	return n.skip()
}

// openAny makes a leaf below col tell whether a struct is there of whose fields the file has none.
func (n *node) openAny(col *parquet.Column, group parquet.RowGroup, opened *[]*cursor) error {
	n.rep = col.MaxRepetitionLevel()
	for !col.Leaf() {
		if len(col.Columns()) == 0 {
			return fmt.Errorf("%w: a struct has no columns", ErrCorrupt)
		}
		col = col.Columns()[0]
	}
	c := newCursor(group, col)
	*opened = append(*opened, c)
	n.first, n.leaves, n.witness = c, []*cursor{c}, true
	return nil
}

// padTo makes the text of a CHAR(n) column as long as it says, as Spark gives it; other engines give what is stored.
func (n *node) padTo(f *Field) {
	if n.leaf == nil || f.Type != String {
		return
	}
	limit, err := f.TextLimit()
	if err != nil || limit == nil || !strings.HasPrefix(limit.Type, "char(") {
		return
	}
	n.pad = limit.Max
	n.convert = func(b array.Builder, v *parquet.Value) error {
		text := v.ByteArray()
		if missing := n.pad - utf8.RuneCount(text); missing > 0 {
			text = append(slices.Clip(text), bytes.Repeat([]byte{' '}, missing)...)
		}
		b.(*array.StringBuilder).BinaryBuilder.Append(text)
		return nil
	}
}

func (n *node) adopt(kid *node) {
	n.kids = append(n.kids, kid)
	n.leaves = append(n.leaves, kid.leaves...)
	if n.first == nil {
		n.first = kid.first
	}
}

// listColumns finds the repeated column of a list and the column of its elements: three levels as the format wants, or two as
// old writers left them (parquet-format LogicalTypes, backward compatibility).
func listColumns(col *parquet.Column) (entry, element *parquet.Column, err error) {
	if col.Repeated() {
		return col, col, nil
	}
	if len(col.Columns()) != 1 || !col.Columns()[0].Repeated() {
		return nil, nil, fmt.Errorf("%w: a list has an unknown layout", ErrUnsupported)
	}
	entry = col.Columns()[0]
	if entry.Leaf() || len(entry.Columns()) != 1 || entry.Name() == "array" || entry.Name() == col.Name()+"_tuple" {
		return entry, entry, nil
	}
	return entry, entry.Columns()[0], nil
}

func (n *node) read(b array.Builder, rows int) error {
	b.Reserve(rows)
	if n.leaf != nil {
		return n.readFlat(b, rows)
	}
	for range rows {
		if err := n.append(b); err != nil {
			return err
		}
	}
	return nil
}

// readFlat is read for a column without nesting.
func (n *node) readFlat(b array.Builder, rows int) error {
	str, isString := b.(*array.StringBuilder)
	isString = isString && n.pad == 0
	for first := true; rows > 0; first = false {
		if _, err := n.leaf.peek(); err != nil {
			return err
		}
		if isString && first { // a builder that grows by doubling clears and copies several times what it holds in the end
			str.ReserveData(n.leaf.expect(rows))
		}
		batch := n.leaf.buf[n.leaf.at:min(n.leaf.n, n.leaf.at+rows)]
		for i := range batch {
			v := &batch[i]
			switch {
			case v.IsNull():
				b.AppendNull()
			case isString:
				str.BinaryBuilder.Append(v.ByteArray())
			default:
				if err := n.convert(b, v); err != nil {
					return err
				}
			}
		}
		n.leaf.at += len(batch)
		rows -= len(batch)
	}
	return nil
}

// append takes one value.
func (n *node) append(b array.Builder) error {
	v, err := n.first.peek()
	if err != nil {
		return err
	}
	def := v.DefinitionLevel()
	if n.leaf != nil {
		if v.IsNull() {
			b.AppendNull()
		} else if err := n.convert(b, v); err != nil {
			return err
		}
		n.leaf.at++
		return nil
	}
	if def < n.def {
		b.AppendNull()
		return n.skip()
	}
	switch b := b.(type) {
	case *array.StructBuilder:
		b.Append(true)
		for i, kid := range n.kids {
			if n.lost[i] {
				b.FieldBuilder(i).AppendNull()
			} else if err := kid.append(b.FieldBuilder(i)); err != nil {
				return err
			}
		}
		if n.witness {
			return n.passOver()
		}
		return nil
	case *array.ExtensionBuilder:
		return n.appendVariant(b)
	case *array.ListBuilder:
		b.Append(true)
		return n.entries(def, func() error { return n.kids[0].append(b.ValueBuilder()) })
	case *array.MapBuilder:
		b.Append(true)
		return n.entries(def, func() error {
			if err := n.kids[0].append(b.KeyBuilder()); err != nil {
				return err
			}
			return n.kids[1].append(b.ItemBuilder())
		})
	}
	return fmt.Errorf("%w: builder %T", ErrUnsupported, b)
}

// entries takes the entries of a list or map whose first value has level def.
func (n *node) entries(def int, one func() error) error {
	if def < n.repeated {
		return n.skip()
	}
	for {
		if err := one(); err != nil {
			return err
		}
		v, err := n.first.peek()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // the last value of the row group
		}
		if err != nil {
			return err
		}
		if v.RepetitionLevel() < n.rep {
			return nil
		}
	}
}

// passOver passes over what the witness has for one struct: its list may have several values.
func (n *node) passOver() error {
	for {
		n.first.at++
		v, err := n.first.peek()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil // the last value of the row group
		}
		if err != nil {
			return err
		}
		if v.RepetitionLevel() <= n.rep {
			return nil
		}
	}
}

// skip passes over the one value that each leaf has for what is null or empty.
func (n *node) skip() error {
	for _, c := range n.leaves {
		if _, err := c.peek(); err != nil {
			return err
		}
		c.at++
	}
	return nil
}

// converter gives the function that appends a stored value as t, from whatever physical form the writer chose.
func converter(col *parquet.Column, t DataType) (func(array.Builder, *parquet.Value) error, error) {
	kind := col.Type().Kind()
	wrong := func() error { return fmt.Errorf("%w: %s is stored as %s", ErrUnsupported, t.SQL(), col.Type()) }
	want := func(kinds ...parquet.Kind) error {
		if slices.Contains(kinds, kind) {
			return nil
		}
		return wrong()
	}
	if d, ok := t.(Decimal); ok {
		return decimalConverter(col, d)
	}
	switch t {
	case String, Binary:
		if kind == parquet.FixedLenByteArray || kind == parquet.ByteArray {
			return func(b array.Builder, v *parquet.Value) error {
				switch b := b.(type) {
				case *array.StringBuilder:
					b.BinaryBuilder.Append(v.ByteArray())
				case *array.BinaryBuilder:
					b.Append(v.ByteArray())
				}
				return nil
			}, nil
		}
		return nil, wrong()
	case Long:
		if kind == parquet.Int32 { // a widened column
			return func(b array.Builder, v *parquet.Value) error {
				b.(*array.Int64Builder).Append(int64(v.Int32()))
				return nil
			}, nil
		}
		return func(b array.Builder, v *parquet.Value) error {
			b.(*array.Int64Builder).Append(v.Int64())
			return nil
		}, want(parquet.Int64)
	case Integer:
		return func(b array.Builder, v *parquet.Value) error {
			b.(*array.Int32Builder).Append(v.Int32())
			return nil
		}, want(parquet.Int32)
	case Short:
		return func(b array.Builder, v *parquet.Value) error {
			b.(*array.Int16Builder).Append(int16(v.Int32()))
			return nil
		}, want(parquet.Int32)
	case Byte:
		return func(b array.Builder, v *parquet.Value) error {
			b.(*array.Int8Builder).Append(int8(v.Int32()))
			return nil
		}, want(parquet.Int32)
	case Float:
		return func(b array.Builder, v *parquet.Value) error {
			b.(*array.Float32Builder).Append(v.Float())
			return nil
		}, want(parquet.Float)
	case Double:
		switch kind { // widened columns
		case parquet.Float:
			return func(b array.Builder, v *parquet.Value) error {
				b.(*array.Float64Builder).Append(float64(v.Float()))
				return nil
			}, nil
		case parquet.Int32:
			return func(b array.Builder, v *parquet.Value) error {
				b.(*array.Float64Builder).Append(float64(v.Int32()))
				return nil
			}, nil
		}
		return func(b array.Builder, v *parquet.Value) error {
			b.(*array.Float64Builder).Append(v.Double())
			return nil
		}, want(parquet.Double)
	case Boolean:
		return func(b array.Builder, v *parquet.Value) error {
			b.(*array.BooleanBuilder).Append(v.Boolean())
			return nil
		}, want(parquet.Boolean)
	case Date:
		return func(b array.Builder, v *parquet.Value) error {
			b.(*array.Date32Builder).Append(arrow.Date32(v.Int32()))
			return nil
		}, want(parquet.Int32)
	case Timestamp, TimestampNTZ:
		if kind == parquet.Int96 {
			return func(b array.Builder, v *parquet.Value) error {
				b.(*array.TimestampBuilder).Append(arrow.Timestamp(int96Micros(v.Int96())))
				return nil
			}, nil
		}
		if kind == parquet.Int32 && t == TimestampNTZ { // a widened date
			return func(b array.Builder, v *parquet.Value) error {
				b.(*array.TimestampBuilder).Append(arrow.Timestamp(int64(v.Int32()) * 86400 * 1_000_000))
				return nil
			}, nil
		}
		multiply, divide := int64(1), int64(1)
		switch timestampUnit(col) {
		case "millis":
			multiply = 1000
		case "nanos":
			divide = 1000
		}
		return func(b array.Builder, v *parquet.Value) error {
			b.(*array.TimestampBuilder).Append(arrow.Timestamp(floorDiv(v.Int64()*multiply, divide)))
			return nil
		}, want(parquet.Int64)
	}
	return nil, wrong()
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// int96Micros reads a timestamp of old: nanoseconds of the day, then the Julian day.
func int96Micros(v deprecated.Int96) int64 {
	const julianEpoch, dayMicros = 2440588, 86400 * 1_000_000
	nanos := int64(v[0]) | int64(v[1])<<32
	return (int64(v[2])-julianEpoch)*dayMicros + floorDiv(nanos, 1000)
}

func decimalConverter(col *parquet.Column, d Decimal) (func(array.Builder, *parquet.Value) error, error) {
	scale, ok := decimalScale(col)
	kind, converted := col.Type().Kind(), col.Type().ConvertedType()
	widened := (kind == parquet.Int32 || kind == parquet.Int64) && (converted == nil || *converted != deprecated.Decimal) // an integer
	if !ok && !widened {
		scale = d.Scale
	}
	shift := d.Scale - scale
	if shift < 0 {
		return nil, fmt.Errorf("%w: %s is stored with a larger scale", ErrUnsupported, d.SQL())
	}
	put := func(b array.Builder, n decimal128.Num) error {
		if shift > 0 {
			n = n.IncreaseScaleBy(int32(shift))
		}
		b.(*array.Decimal128Builder).Append(n)
		return nil
	}
	switch col.Type().Kind() {
	case parquet.Int32:
		return func(b array.Builder, v *parquet.Value) error { return put(b, decimal128.FromI64(int64(v.Int32()))) }, nil
	case parquet.Int64:
		return func(b array.Builder, v *parquet.Value) error { return put(b, decimal128.FromI64(v.Int64())) }, nil
	case parquet.FixedLenByteArray, parquet.ByteArray:
		return func(b array.Builder, v *parquet.Value) error {
			n, err := bigEndianDecimal(v.ByteArray())
			if err != nil {
				return err
			}
			return put(b, n)
		}, nil
	}
	return nil, fmt.Errorf("%w: %s is stored as %s", ErrUnsupported, d.SQL(), col.Type())
}

func bigEndianDecimal(data []byte) (decimal128.Num, error) {
	if len(data) <= 16 {
		var hi int64
		var lo uint64
		if len(data) > 0 && data[0]&0x80 != 0 {
			hi, lo = -1, ^uint64(0)
		}
		for _, c := range data {
			hi = hi<<8 | int64(lo>>56)
			lo = lo<<8 | uint64(c)
		}
		return decimal128.New(hi, lo), nil
	}
	n := new(big.Int).SetBytes(data)
	if data[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(data))))
	}
	if n.BitLen() > 127 {
		return decimal128.Num{}, fmt.Errorf("%w: a decimal of %d bits", ErrCorrupt, n.BitLen())
	}
	return decimal128.FromBigInt(n), nil
}
