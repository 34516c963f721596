package deltalog

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/parquet-go/parquet-go"
)

// shredder turns Arrow arrays into the values of Parquet leaf columns, with their repetition and definition levels.
type shredder struct {
	buf  []parquet.Value
	sink func(column int, values []parquet.Value) error
	// arena holds the bytes of fixed-length decimals until the buffer is flushed.
	arena []byte
	// pending is the size of the values in buf, bytes that of all values so far; both leave out what little nulls and levels take.
	pending, bytes int
	// err is the first value that its column's type does not have.
	err error
}

// Values are handed over when there are so many, or so many bytes of them: a page ends between two hand-overs, and may not become too large.
const (
	shredBatch = 1024
	shredBytes = 1 << 20
)

// leafPath is the way from a top-level column to one of its leaves: which child to take at each struct or map.
type leafPath struct {
	column int // of the file
	steps  []int
}

// leafPaths lists the leaves below t, numbering their columns from *next.
func leafPaths(t DataType, steps []int, next *int) []leafPath {
	switch t := t.(type) {
	case Array:
		return leafPaths(t.Element, append(steps[:len(steps):len(steps)], 0), next)
	case Map:
		k := leafPaths(t.Key, append(steps[:len(steps):len(steps)], 0), next)
		return append(k, leafPaths(t.Value, append(steps[:len(steps):len(steps)], 1), next)...)
	case Struct:
		var out []leafPath
		for i, f := range t.Fields {
			out = append(out, leafPaths(f.Type, append(steps[:len(steps):len(steps)], i), next)...)
		}
		return out
	}
	*next++
	return []leafPath{{*next - 1, steps}}
}

// write hands over the values of one leaf of a top-level column. Errors of values match ErrInvalidValue.
func (s *shredder) write(p leafPath, t DataType, arr arrow.Array) error {
	s.buf, s.arena, s.pending, s.err = s.buf[:0], s.arena[:0], 0, nil
	if len(p.steps) == 0 {
		return s.flat(p.column, t, arr)
	}
	for i := range arr.Len() {
		if err := s.nested(p.column, t, arr, i, p.steps, 0, 0, 0); err != nil {
			return err
		}
	}
	return s.flush(p.column)
}

func (s *shredder) flush(column int) error {
	if s.err != nil {
		return s.err
	}
	if len(s.buf) == 0 {
		return nil
	}
	err := s.sink(column, s.buf)
	s.bytes += s.pending
	s.buf, s.arena, s.pending = s.buf[:0], s.arena[:0], 0
	return err
}

func (s *shredder) put(column int, v parquet.Value) error {
	s.buf = append(s.buf, v)
	s.pending += 8
	if len(s.buf) < shredBatch && s.pending < shredBytes {
		return nil
	}
	return s.flush(column)
}

// flat writes a column without nesting: a value that is there has definition level 1.
func (s *shredder) flat(column int, t DataType, arr arrow.Array) error {
	null := parquet.NullValue().Level(0, 0, column)
	nulls := arr.NullN() > 0
	str, isString := arr.(*array.String) // most of the bytes of most tables
	for i := range arr.Len() {
		v := null
		switch {
		case nulls && arr.IsNull(i):
		case isString:
			v = s.text(str.Value(i)).Level(0, 1, column)
		default:
			v = s.value(t, arr, i).Level(0, 1, column)
		}
		if err := s.put(column, v); err != nil {
			return err
		}
	}
	return s.flush(column)
}

// text is a string, which must be UTF-8: other readers refuse a whole file for one that is not.
func (s *shredder) text(v string) parquet.Value {
	if !utf8.ValidString(v) && s.err == nil {
		s.err = fmt.Errorf("%w: text that is no UTF-8: %.40q", ErrInvalidValue, v)
	}
	s.pending += len(v)
	return parquet.ByteArrayValue(stringBytes(v))
}

// nested writes the values of one leaf for element i of arr: rep is the level at which this element repeats, depth the
// number of repeated ancestors, def the level of its parent.
func (s *shredder) nested(column int, t DataType, arr arrow.Array, i int, steps []int, rep, depth, def int) error {
	if arr.IsNull(i) {
		return s.put(column, parquet.NullValue().Level(rep, def, column))
	}
	def++ // every node that may be null is optional; a map's key is not, see below
	switch t := t.(type) {
	case Struct:
		st := arr.(*array.Struct)
		return s.nested(column, t.Fields[steps[0]].Type, st.Field(steps[0]), i, steps[1:], rep, depth, def)
	case Array:
		l := arr.(*array.List)
		from, to := l.ValueOffsets(i)
		if from == to {
			return s.put(column, parquet.NullValue().Level(rep, def, column))
		}
		for j := from; j < to; j++ {
			if err := s.nested(column, t.Element, l.ListValues(), int(j), steps[1:], rep, depth+1, def+1); err != nil {
				return err
			}
			rep = depth + 1
		}
		return nil
	case Map:
		m := arr.(*array.Map)
		from, to := m.ValueOffsets(i)
		if from == to {
			return s.put(column, parquet.NullValue().Level(rep, def, column))
		}
		for j := from; j < to; j++ {
			var err error
			if steps[0] == 0 {
				// A key is required: it has no level of its own.
				err = s.nested(column, t.Key, m.Keys(), int(j), steps[1:], rep, depth+1, def)
			} else {
				err = s.nested(column, t.Value, m.Items(), int(j), steps[1:], rep, depth+1, def+1)
			}
			if err != nil {
				return err
			}
			rep = depth + 1
		}
		return nil
	}
	return s.put(column, s.value(t, arr, i).Level(rep, def, column))
}

// value is element i of arr, which is not null.
func (s *shredder) value(t DataType, arr arrow.Array, i int) parquet.Value {
	switch arr := arr.(type) {
	case *array.String:
		return s.text(arr.Value(i))
	case *array.Binary:
		s.pending += len(arr.Value(i))
		return parquet.ByteArrayValue(arr.Value(i))
	case *array.Int64:
		return parquet.Int64Value(arr.Value(i))
	case *array.Int32:
		return parquet.Int32Value(arr.Value(i))
	case *array.Int16:
		return parquet.Int32Value(int32(arr.Value(i)))
	case *array.Int8:
		return parquet.Int32Value(int32(arr.Value(i)))
	case *array.Float32:
		return parquet.FloatValue(arr.Value(i))
	case *array.Float64:
		return parquet.DoubleValue(arr.Value(i))
	case *array.Boolean:
		return parquet.BooleanValue(arr.Value(i))
	case *array.Date32:
		return parquet.Int32Value(int32(arr.Value(i)))
	case *array.Timestamp:
		return parquet.Int64Value(int64(arr.Value(i)))
	case *array.Decimal128:
		n, p := arr.Value(i), t.(Decimal).Precision
		if !n.FitsInPrecision(int32(p)) && s.err == nil {
			s.err = fmt.Errorf("%w: a number of more than %d digits for %s", ErrInvalidValue, p, t.SQL())
		}
		switch {
		case p <= 9:
			return parquet.Int32Value(int32(n.LowBits()))
		case p <= 18:
			return parquet.Int64Value(int64(n.LowBits()))
		default:
			var full [16]byte
			binary.BigEndian.PutUint64(full[:8], uint64(n.HighBits()))
			binary.BigEndian.PutUint64(full[8:], n.LowBits())
			if cap(s.arena)-len(s.arena) < 16 {
				s.arena = make([]byte, 0, 16*shredBatch) // what the buffer points to stays where it is
			}
			at := len(s.arena)
			s.arena = append(s.arena, full[16-decimalBytes(p):]...)
			return parquet.FixedLenByteArrayValue(s.arena[at:len(s.arena):len(s.arena)])
		}
	}
	// The schema was checked before: there is no other array type.
	panic(fmt.Sprintf("deltalog: array of type %s", arr.DataType()))
}
