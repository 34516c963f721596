package deltalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// statistics is add.stats of the rows of p (delta.md 2.4): the number of rows, and of the first columns the least and greatest
// value and the number of nulls. What cannot be bounded safely is left out, which only costs skipping.
func statistics(snap *Snapshot, columns []fileColumn, p *part) (string, error) {
	left := 32
	if n, err := strconv.Atoi(snap.metadata.Configuration[propIndexedCols]); err == nil {
		left = n
		if n < 0 {
			left = math.MaxInt
		}
	}
	var lows, highs, nulls object
	for _, c := range columns {
		if left <= 0 {
			break
		}
		spans := make([]span, len(p.batches))
		for i, b := range p.batches {
			spans[i] = span{b.Column(c.index), 0, int(b.NumRows())}
		}
		columnStatistics(c.field, spans, 0, &left, &lows, &highs, &nulls)
	}
	var out object
	out.put("numRecords", []byte(strconv.FormatInt(p.rows, 10)))
	out.put("minValues", lows.bytes())
	out.put("maxValues", highs.bytes())
	out.put("nullCount", nulls.bytes())
	return string(out.bytes()), nil
}

// object is a JSON object in the making, its keys in order.
type object struct{ buf bytes.Buffer }

func (o *object) put(key string, value []byte) {
	if o.buf.Len() > 0 {
		o.buf.WriteByte(',')
	}
	o.buf.Write(mustJSON(key))
	o.buf.WriteByte(':')
	o.buf.Write(value)
}

func (o *object) bytes() []byte {
	return append(append([]byte{'{'}, o.buf.Bytes()...), '}')
}

// span is elements from to to of an array: rows whose parents are all there.
type span struct {
	arr      arrow.Array
	from, to int
}

func (s span) nulls() int {
	if s.arr.NullN() == 0 || s.to-s.from == s.arr.Len() {
		return s.arr.NullN()
	}
	n := 0
	for i := s.from; i < s.to; i++ {
		if s.arr.IsNull(i) {
			n++
		}
	}
	return n
}

// columnStatistics adds the statistics of a column or field. absent is the number of rows that have no parent: null, whatever the array has.
func columnStatistics(f Field, spans []span, absent int, left *int, lows, highs, nulls *object) {
	if *left <= 0 {
		return
	}
	count := absent
	for _, s := range spans {
		count += s.nulls()
	}
	if t, ok := f.Type.(Struct); ok {
		var low, high, null object
		for i, child := range t.Fields {
			var children []span
			for _, s := range spans {
				field := s.arr.(*array.Struct).Field(i)
				notNullRuns(s.arr, s.from, s.to, func(from, to int) bool {
					children = append(children, span{field, from, to})
					return true
				})
			}
			columnStatistics(child, children, count, left, &low, &high, &null)
		}
		for _, o := range []struct{ from, to *object }{{&low, lows}, {&high, highs}, {&null, nulls}} {
			if o.from.buf.Len() > 0 {
				o.to.put(f.Name, o.from.bytes())
			}
		}
		return
	}
	*left--
	nulls.put(f.Name, []byte(strconv.Itoa(count)))
	low, high := bounds(f.Type, spans)
	if low != nil {
		lows.put(f.Name, low)
	}
	if high != nil {
		highs.put(f.Name, high)
	}
}

// bounds are the least and greatest value as JSON; nil for a type without order, for nulls only, and where NaN makes order moot.
func bounds(t DataType, spans []span) (low, high []byte) {
	switch t := t.(type) {
	case Decimal:
		lo, hi, ok := extremes(spans, func(a arrow.Array, i int) decimal128.Num { return a.(*array.Decimal128).Value(i) }, decimal128.Num.Less)
		if !ok {
			return nil, nil
		}
		return []byte(lo.ToString(int32(t.Scale))), []byte(hi.ToString(int32(t.Scale)))
	case Primitive:
		switch t {
		case Long:
			return integerBounds(spans, func(a arrow.Array, i int) int64 { return a.(*array.Int64).Value(i) })
		case Integer:
			return integerBounds(spans, func(a arrow.Array, i int) int64 { return int64(a.(*array.Int32).Value(i)) })
		case Short:
			return integerBounds(spans, func(a arrow.Array, i int) int64 { return int64(a.(*array.Int16).Value(i)) })
		case Byte:
			return integerBounds(spans, func(a arrow.Array, i int) int64 { return int64(a.(*array.Int8).Value(i)) })
		case Float:
			return floatBounds(spans, 32, func(a arrow.Array, i int) float64 { return float64(a.(*array.Float32).Value(i)) })
		case Double:
			return floatBounds(spans, 64, func(a arrow.Array, i int) float64 { return a.(*array.Float64).Value(i) })
		case String:
			return stringBounds(spans)
		case Date:
			lo, hi, ok := extremes(spans, func(a arrow.Array, i int) int32 { return int32(a.(*array.Date32).Value(i)) }, less)
			return timeBounds(time.Unix(int64(lo)*86400, 0), time.Unix(int64(hi)*86400, 0), ok, time.DateOnly)
		case Timestamp, TimestampNTZ:
			lo, hi, ok := extremes(spans, func(a arrow.Array, i int) int64 { return int64(a.(*array.Timestamp).Value(i)) }, less)
			layout := "2006-01-02T15:04:05.000"
			if t == Timestamp {
				layout += "Z"
			}
			// Statistics have milliseconds: round outwards, so that no row lies beyond them.
			const ms = 1000
			return timeBounds(time.UnixMicro(floorTo(lo, ms)), time.UnixMicro(-floorTo(-hi, ms)), ok, layout)
		}
	}
	return nil, nil
}

func less[T int32 | int64 | float64 | string](a, b T) bool { return a < b }

func floorTo(v, unit int64) int64 {
	r := v % unit
	if r < 0 {
		r += unit
	}
	if v-r > v { // below the least int64
		return v
	}
	return v - r
}

func extremes[T any](spans []span, value func(arrow.Array, int) T, less func(a, b T) bool) (lo, hi T, ok bool) {
	for _, s := range spans {
		nulls := s.arr.NullN() > 0
		for i := s.from; i < s.to; i++ {
			if nulls && s.arr.IsNull(i) {
				continue
			}
			v := value(s.arr, i)
			if !ok {
				lo, hi, ok = v, v, true
			} else if less(v, lo) {
				lo = v
			} else if less(hi, v) {
				hi = v
			}
		}
	}
	return lo, hi, ok
}

func integerBounds(spans []span, value func(arrow.Array, int) int64) (low, high []byte) {
	lo, hi, ok := extremes(spans, value, less)
	if !ok {
		return nil, nil
	}
	return strconv.AppendInt(nil, lo, 10), strconv.AppendInt(nil, hi, 10)
}

func floatBounds(spans []span, bits int, value func(arrow.Array, int) float64) (low, high []byte) {
	nan := false
	lo, hi, ok := extremes(spans, func(a arrow.Array, i int) float64 {
		v := value(a, i)
		nan = nan || math.IsNaN(v)
		return v
	}, less)
	if !ok || nan {
		return nil, nil
	}
	one := func(v float64) []byte {
		if math.IsInf(v, 0) {
			return nil // no number to JSON
		}
		return strconv.AppendFloat(nil, v, 'g', -1, bits)
	}
	if low, high = one(lo), one(hi); lo == 0 {
		low = []byte("-0.0") // -0.0 and 0.0 are equal to us, not to every reader
	}
	if hi == 0 {
		high = []byte("0.0")
	}
	return low, high
}

func timeBounds(lo, hi time.Time, ok bool, layout string) (low, high []byte) {
	if !ok {
		return nil, nil
	}
	one := func(at time.Time) []byte {
		// Readers disagree about the calendar before 1582, and about years of more digits.
		if at = at.UTC(); at.Year() > 9999 || at.Year() < 1583 {
			return nil
		}
		return mustJSON(at.Format(layout))
	}
	return one(lo), one(hi)
}

// maxStatsString is how many UTF-16 units of a string statistics keep.
const maxStatsString = 32

func stringBounds(spans []span) (low, high []byte) {
	lo, hi, ok := extremes(spans, func(a arrow.Array, i int) string { return a.(*array.String).Value(i) }, less)
	if !ok || !utf8.ValidString(lo) || !utf8.ValidString(hi) {
		return nil, nil
	}
	low = mustJSON(cutString(lo))
	cut := cutString(hi)
	if len(cut) == len(hi) {
		return low, mustJSON(hi)
	}
	// The cut is a prefix, so below hi: a greatest character behind it makes it an upper bound again, unless what
	// follows begins with that character itself.
	rest, _ := utf8.DecodeRuneInString(hi[len(cut):])
	switch {
	case rest < 0x7f:
		return low, mustJSON(cut + "\x7f")
	case rest < utf8.MaxRune:
		return low, mustJSON(cut + string(utf8.MaxRune))
	}
	return low, nil
}

// cutString is the longest prefix of s within the limit that cuts no character.
func cutString(s string) string {
	units := 0
	for i, r := range s {
		if units += utf16.RuneLen(r); units > maxStatsString {
			return s[:i]
		}
	}
	return s
}

// Stats is what add.stats says, as far as it says it.
type Stats struct {
	NumRecords *int64                     `json:"numRecords"`
	MinValues  map[string]json.RawMessage `json:"minValues"`
	MaxValues  map[string]json.RawMessage `json:"maxValues"`
	NullCount  map[string]json.RawMessage `json:"nullCount"`
}

// ParseStats reads add.stats. Absent statistics give the zero Stats. Statistics are a help: whoever cannot read them reads the file.
func ParseStats(s string) (Stats, error) {
	var out Stats
	if s == "" {
		return out, nil
	}
	if err := json.Unmarshal([]byte(s), &out); err != nil {
		return Stats{}, fmt.Errorf("parse statistics: %w", err)
	}
	return out, nil
}
