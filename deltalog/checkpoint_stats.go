package deltalog

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// structStats makes the JSON that add.stats would be from add.stats_parsed: a table with delta.checkpoint.writeStatsAsJson=false has only that in its
// checkpoints. Rows are gone through in order.
type structStats struct {
	root    *statsNode
	cursors []*cursor
}

// statsNode is a column below stats_parsed: a leaf with a way to write its values, or a struct.
type statsNode struct {
	key  []byte // as JSON, with its colon
	leaf *cursor
	text func(dst []byte, v *parquet.Value) ([]byte, bool)
	kids []*statsNode
}

// newStructStats is nil where the checkpoint has no such column.
func newStructStats(pf *parquet.File, group parquet.RowGroup) *structStats {
	add := pf.Root().Column("add")
	if add == nil || add.Leaf() {
		return nil
	}
	col := add.Column("stats_parsed")
	if col == nil || col.Leaf() {
		return nil
	}
	s := &structStats{}
	s.root = s.node(col, group)
	return s
}

// node is nil for a column that says nothing that statistics may say.
func (s *structStats) node(col *parquet.Column, group parquet.RowGroup) *statsNode {
	if col.MaxRepetitionLevel() > 0 {
		return nil
	}
	n := &statsNode{key: append(quoted(col.Name()), ':')}
	if col.Leaf() {
		if n.text = statsText(col); n.text == nil {
			return nil
		}
		n.leaf = newCursor(group, col)
		s.cursors = append(s.cursors, n.leaf)
		return n
	}
	for _, c := range col.Columns() {
		if kid := s.node(c, group); kid != nil {
			n.kids = append(n.kids, kid)
		}
	}
	return n
}

// next is the statistics of the next row, "" if there are none.
func (s *structStats) next() (string, error) {
	text, there, err := s.root.append(nil)
	if err != nil || !there {
		return "", err
	}
	return string(text), nil
}

// append writes the value in the next row, and reports whether there is one.
func (n *statsNode) append(dst []byte) ([]byte, bool, error) {
	if n.leaf != nil {
		v, err := n.leaf.peek()
		if err != nil {
			return dst, false, err
		}
		n.leaf.at++
		if v.IsNull() {
			return dst, false, nil
		}
		dst, there := n.text(dst, v)
		return dst, there, nil
	}
	dst, any := append(dst, '{'), false
	for _, kid := range n.kids {
		before := len(dst)
		if any {
			dst = append(dst, ',')
		}
		var there bool
		var err error
		if dst, there, err = kid.append(append(dst, kid.key...)); err != nil {
			return dst, false, err
		}
		if any = any || there; !there {
			dst = dst[:before]
		}
	}
	return append(dst, '}'), any, nil
}

func (s *structStats) close() {
	for _, c := range s.cursors {
		_ = c.close() // what was read was whole
	}
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // a string cannot fail
	return b
}

// statsText is how values of a column are written in statistics (delta.md 2.4); nil for what has none there.
func statsText(col *parquet.Column) func(dst []byte, v *parquet.Value) ([]byte, bool) {
	kind, converted := col.Type().Kind(), deprecated.ConvertedType(-1)
	if c := col.Type().ConvertedType(); c != nil {
		converted = *c
	}
	var logical any
	if l := col.Type().LogicalType(); l != nil {
		logical = l.Value
	}
	text := func(f func(v *parquet.Value) string) func(dst []byte, v *parquet.Value) ([]byte, bool) {
		return func(dst []byte, v *parquet.Value) ([]byte, bool) { return append(dst, quoted(f(v))...), true }
	}
	_, isDecimal := logical.(*format.DecimalType)
	if scale, ok := decimalScale(col); ok || isDecimal || converted == deprecated.Decimal {
		return func(dst []byte, v *parquet.Value) ([]byte, bool) {
			n, ok := storedDecimal(v)
			return append(dst, n.ToString(int32(scale))...), ok
		}
	}
	switch kind {
	case parquet.Boolean:
		return func(dst []byte, v *parquet.Value) ([]byte, bool) { return strconv.AppendBool(dst, v.Boolean()), true }
	case parquet.Int32:
		if _, ok := logical.(*format.DateType); ok || converted == deprecated.Date {
			return text(func(v *parquet.Value) string {
				return time.Unix(int64(v.Int32())*86400, 0).UTC().Format(time.DateOnly)
			})
		}
		return func(dst []byte, v *parquet.Value) ([]byte, bool) {
			return strconv.AppendInt(dst, int64(v.Int32()), 10), true
		}
	case parquet.Int64:
		ts, ok := logical.(*format.TimestampType)
		if !ok && converted != deprecated.TimestampMicros && converted != deprecated.TimestampMillis {
			return func(dst []byte, v *parquet.Value) ([]byte, bool) { return strconv.AppendInt(dst, v.Int64(), 10), true }
		}
		unit, utc := timestampUnit(col), ts == nil || ts.IsAdjustedToUTC
		return text(func(v *parquet.Value) string {
			n := v.Int64()
			switch unit {
			case "millis":
				return statsTime(time.UnixMilli(n), utc)
			case "nanos":
				return statsTime(time.Unix(0, n), utc)
			}
			return statsTime(time.UnixMicro(n), utc)
		})
	case parquet.Int96:
		return text(func(v *parquet.Value) string { return statsTime(time.UnixMicro(int96Micros(v.Int96())), true) })
	case parquet.Float:
		return func(dst []byte, v *parquet.Value) ([]byte, bool) {
			return appendFloat(dst, float64(v.Float()), 32), true
		}
	case parquet.Double:
		return func(dst []byte, v *parquet.Value) ([]byte, bool) { return appendFloat(dst, v.Double(), 64), true }
	case parquet.ByteArray:
		if _, ok := logical.(*format.StringType); ok || converted == deprecated.UTF8 {
			return text(func(v *parquet.Value) string { return string(v.ByteArray()) })
		}
	}
	return nil
}

// storedDecimal is the unscaled value of a decimal in any of its physical forms.
func storedDecimal(v *parquet.Value) (decimal128.Num, bool) {
	switch v.Kind() {
	case parquet.Int32:
		return decimal128.FromI64(int64(v.Int32())), true
	case parquet.Int64:
		return decimal128.FromI64(v.Int64()), true
	case parquet.ByteArray, parquet.FixedLenByteArray:
		n, err := bigEndianDecimal(v.ByteArray())
		return n, err == nil
	}
	return decimal128.Num{}, false
}

// statsTime writes a timestamp to the millisecond, as statistics do, or exactly where that would be less than it is.
func statsTime(at time.Time, utc bool) string {
	layout := "2006-01-02T15:04:05.000"
	if at.Nanosecond()%1_000_000 != 0 {
		layout = "2006-01-02T15:04:05.000000"
	}
	if utc {
		layout += "Z"
	}
	return at.UTC().Format(layout)
}

// appendFloat writes what is no JSON number as text.
func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, bits)
}
