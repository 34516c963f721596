package zerobusfake

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
)

// column collects values in Arrow's layout. Arrow's own builders cannot take back what was appended; here a message that turns out
// bad half way is cut off again (truncate), so that what came before it stays whole.
type column struct {
	name     string
	quoted   string // the name as JSON texts have it; empty if that may be written in several ways
	t        deltalog.DataType
	nullable bool
	arrow    arrow.DataType
	limit    *deltalog.TextLimit // nil: none
	measured int                 // values that are known to keep to it

	n       int
	nulls   int
	valid   []byte  // validity bits, once there has been a null
	fixed   []byte  // values of fixed width, little endian; bits for booleans
	width   int     // bytes of a fixed value; 0: none
	offsets []int32 // of strings, binaries, lists and maps: n+1
	data    []byte  // of strings and binaries
	kids    []*column
	index   map[string]int // struct fields by name
	seen    []uint64       // struct fields already set in the current object
	object  uint64         // as wide as it is so that it never comes round to a number in seen
}

// newColumn makes the column of a field.
func newColumn(f deltalog.Field, limit *deltalog.TextLimit) (*column, error) {
	at, err := deltalog.ArrowType(f.Type)
	if err == nil && (f.Type == deltalog.Variant || f.Type == deltalog.Void) {
		err = fmt.Errorf("%w: type %s", deltalog.ErrUnsupported, f.Type.SQL())
	}
	if err != nil {
		return nil, fmt.Errorf("column %s: %w", f.Name, err)
	}
	c := &column{name: f.Name, t: f.Type, nullable: f.Nullable, arrow: at, limit: limit}
	if plain(f.Name) == len(f.Name) {
		c.quoted = `"` + f.Name + `"`
	}
	var kids []deltalog.Field
	switch t := f.Type.(type) {
	case deltalog.Primitive:
		switch t {
		case deltalog.String, deltalog.Binary:
			c.offsets = []int32{0}
		case deltalog.Boolean:
		default:
			c.width = at.(arrow.FixedWidthDataType).BitWidth() / 8
		}
	case deltalog.Decimal:
		c.width = 16
	case deltalog.Array:
		c.offsets = []int32{0}
		kids = []deltalog.Field{{Name: "element", Type: t.Element, Nullable: t.ContainsNull}}
	case deltalog.Map:
		c.offsets = []int32{0}
		kids = []deltalog.Field{{Name: "key", Type: t.Key}, {Name: "value", Type: t.Value, Nullable: t.ValueContainsNull}}
	case deltalog.Struct:
		kids = t.Fields
		c.index = make(map[string]int, len(kids))
		c.seen = make([]uint64, len(kids))
	}
	for i, k := range kids {
		var limit *deltalog.TextLimit
		if c.limit != nil {
			limit = c.limit.Nested[i]
		}
		kid, err := newColumn(k, limit)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", f.Name, err)
		}
		c.kids = append(c.kids, kid)
		if c.index != nil {
			c.index[k.Name] = i
		}
	}
	return c, nil
}

// added counts one more value that is there.
func (c *column) added() {
	if c.valid != nil {
		c.setBit(&c.valid, c.n, true)
	}
	c.n++
}

func (c *column) setBit(bitmap *[]byte, i int, v bool) {
	if i/8 == len(*bitmap) {
		*bitmap = append(*bitmap, 0)
	}
	if v {
		(*bitmap)[i/8] |= 1 << (i % 8)
	} else {
		(*bitmap)[i/8] &^= 1 << (i % 8)
	}
}

func (c *column) appendNull() {
	if c.valid == nil {
		c.valid = make([]byte, 0, 64)
		for i := range c.n {
			c.setBit(&c.valid, i, true)
		}
	}
	c.setBit(&c.valid, c.n, false)
	c.nulls++
	switch {
	case c.width > 0:
		for range c.width {
			c.fixed = append(c.fixed, 0)
		}
	case c.t == deltalog.Boolean:
		c.setBit(&c.fixed, c.n, false)
	case c.offsets != nil:
		c.offsets = append(c.offsets, c.offsets[c.n])
	default:
		for _, kid := range c.kids {
			kid.appendNull()
		}
	}
	c.n++
}

func (c *column) appendBool(v bool) {
	c.setBit(&c.fixed, c.n, v)
	c.added()
}

// appendInt appends to an integer column of any width, a date, or a timestamp; false if v is out of range.
func (c *column) appendInt(v int64) bool {
	switch c.width {
	case 8:
		c.fixed = binary.LittleEndian.AppendUint64(c.fixed, uint64(v))
	case 4:
		if int64(int32(v)) != v {
			return false
		}
		c.fixed = binary.LittleEndian.AppendUint32(c.fixed, uint32(v))
	case 2:
		if int64(int16(v)) != v {
			return false
		}
		c.fixed = binary.LittleEndian.AppendUint16(c.fixed, uint16(v))
	default:
		if int64(int8(v)) != v {
			return false
		}
		c.fixed = append(c.fixed, byte(v))
	}
	c.added()
	return true
}

// appendBits appends a fixed-width value by its bits: floats and doubles.
func (c *column) appendBits(v uint64) {
	if c.width == 4 {
		c.fixed = binary.LittleEndian.AppendUint32(c.fixed, uint32(v))
	} else {
		c.fixed = binary.LittleEndian.AppendUint64(c.fixed, v)
	}
	c.added()
}

func (c *column) appendDecimal(lo uint64, hi int64) {
	c.fixed = binary.LittleEndian.AppendUint64(c.fixed, lo)
	c.fixed = binary.LittleEndian.AppendUint64(c.fixed, uint64(hi))
	c.added()
}

// room makes place for n more bytes. It doubles, where append adds a quarter to what is large and so copies what grows to megabytes many times.
func room(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	return append(make([]byte, 0, max(2*cap(b), len(b)+n, 1<<10)), b...)
}

// closeText ends a string or binary whose bytes were appended to data.
func (c *column) closeText() {
	c.offsets = append(c.offsets, int32(len(c.data)))
	c.added()
}

// closeList ends a list or map whose entries were appended to the kids.
func (c *column) closeList() {
	c.offsets = append(c.offsets, int32(c.kids[0].n))
	c.added()
}

// truncate takes back all values from n on, and what a value that failed half way left behind.
func (c *column) truncate(n int) {
	n = min(n, c.n)
	if c.valid != nil {
		c.valid = c.valid[:(n+7)/8]
		if r := n % 8; r != 0 {
			c.valid[n/8] &= 1<<r - 1
		}
		there := 0
		for _, b := range c.valid {
			there += bits.OnesCount8(b)
		}
		c.nulls = n - there
	}
	c.n, c.measured = n, min(n, c.measured)
	switch {
	case c.width > 0:
		c.fixed = c.fixed[:n*c.width]
	case c.t == deltalog.Boolean:
		c.fixed = c.fixed[:(n+7)/8]
	case c.offsets != nil:
		c.offsets = c.offsets[:n+1]
		if c.kids == nil {
			c.data = c.data[:c.offsets[n]]
		}
		for _, kid := range c.kids {
			kid.truncate(int(c.offsets[n]))
		}
	default:
		for _, kid := range c.kids {
			kid.truncate(n)
		}
	}
}

// reset empties the column and keeps its memory for the next rows.
func (c *column) reset() {
	c.n, c.nulls, c.valid, c.measured = 0, 0, nil, 0
	c.fixed, c.data = c.fixed[:0], c.data[:0]
	if c.offsets != nil {
		c.offsets = c.offsets[:1]
	}
	for _, kid := range c.kids {
		kid.reset()
	}
}

// repeats reports whether a value is there twice from start on: a map must not have a key twice.
func (c *column) repeats(start int) bool {
	if c.n-start < 2 {
		return false
	}
	if c.t == deltalog.Boolean {
		seen := [2]bool{}
		for i := start; i < c.n; i++ {
			v := c.fixed[i/8] >> (i % 8) & 1
			if seen[v] {
				return true
			}
			seen[v] = true
		}
		return false
	}
	if c.kids != nil {
		return false // a nested key, which only protobuf could not write either
	}
	value := func(i int) string {
		if c.width > 0 {
			return string(c.fixed[i*c.width : (i+1)*c.width])
		}
		return string(c.data[c.offsets[i]:c.offsets[i+1]])
	}
	seen := make(map[string]struct{}, c.n-start)
	for i := start; i < c.n; i++ {
		seen[value(i)] = struct{}{}
	}
	return len(seen) < c.n-start
}

// rowWidth is how many bytes a value takes even if it is null: fixed values and offsets.
func (c *column) rowWidth() int {
	if c.offsets != nil {
		return 4
	}
	width := c.width
	for _, kid := range c.kids {
		width += kid.rowWidth()
	}
	return width
}

// arrayData is the values as Arrow has them. It shares their memory: reset only when it is used no more.
func (c *column) arrayData() arrow.ArrayData {
	buffers := []*memory.Buffer{nil}
	if c.nulls > 0 {
		buffers[0] = memory.NewBufferBytes(c.valid)
	}
	var children []arrow.ArrayData
	switch {
	case c.width > 0 || c.t == deltalog.Boolean:
		buffers = append(buffers, memory.NewBufferBytes(c.fixed))
	case c.offsets != nil:
		buffers = append(buffers, memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(c.offsets)))
		if c.kids == nil {
			buffers = append(buffers, memory.NewBufferBytes(c.data))
		}
	}
	for _, kid := range c.kids {
		children = append(children, kid.arrayData())
	}
	if _, ok := c.t.(deltalog.Map); ok {
		entries := c.arrow.(*arrow.MapType).Elem()
		children = []arrow.ArrayData{array.NewData(entries, c.kids[0].n, []*memory.Buffer{nil}, children, 0, 0)}
	}
	return array.NewData(c.arrow, c.n, buffers, children, c.nulls, 0)
}

// rows is the columns of a table: a struct that is always there.
type rows struct {
	root   *column
	schema *arrow.Schema
	width  int // bytes that a row takes, whatever is in it

	limited []*column // texts of any depth that have a limit
}

func newRows(s deltalog.Struct) (*rows, error) {
	schema, err := deltalog.ArrowSchema(s)
	if err != nil {
		return nil, err
	}
	limits := make([]*deltalog.TextLimit, len(s.Fields))
	for i, f := range s.Fields {
		if limits[i], err = f.TextLimit(); err != nil {
			return nil, err
		}
	}
	root, err := newColumn(deltalog.Field{Type: s}, &deltalog.TextLimit{Nested: limits})
	if err != nil {
		return nil, err
	}
	return &rows{root: root, schema: schema, width: root.rowWidth(), limited: root.limitedTexts(nil)}, nil
}

// limitedTexts appends the columns of texts that have a limit.
func (c *column) limitedTexts(out []*column) []*column {
	if c.limit != nil && c.limit.Type != "" {
		out = append(out, c)
	}
	for _, kid := range c.kids {
		out = kid.limitedTexts(out)
	}
	return out
}

// measure checks the texts that came since the last time against VARCHAR(n) and CHAR(n).
func (r *rows) measure() error {
	for _, c := range r.limited {
		for ; c.measured < c.n; c.measured++ {
			if text := c.data[c.offsets[c.measured]:c.offsets[c.measured+1]]; !c.limit.Allows(text) {
				return badRecord("string of %d characters is too long for %s field '%s'", utf8.RuneCount(text), c.limit.Type, c.name)
			}
		}
	}
	return nil
}

// batch is the rows as a record batch that shares their memory.
func (r *rows) batch() arrow.RecordBatch {
	columns := make([]arrow.Array, len(r.root.kids))
	for i, c := range r.root.kids {
		columns[i] = array.MakeFromData(c.arrayData())
	}
	return array.NewRecordBatch(r.schema, columns, int64(r.root.n))
}
