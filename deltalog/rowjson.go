package deltalog

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// AppendRowJSON appends row i of rec to dst as one canonical JSON object: columns in order, nulls included, ISO-8601
// times (Z for timestamp, none for timestamp_ntz, a fraction only where there is one), base64 binary, decimals as exact
// strings, variants as they are, int64 as numbers, NaN and infinities as strings, maps as objects if their keys are strings, else as lists of pairs.
func AppendRowJSON(dst []byte, rec arrow.RecordBatch, i int) ([]byte, error) {
	dst = append(dst, '{')
	for c := range int(rec.NumCols()) {
		if c > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONString(dst, rec.ColumnName(c))
		dst = append(dst, ':')
		var err error
		if dst, err = AppendValueJSON(dst, rec.Column(c), i); err != nil {
			return dst, fmt.Errorf("column %s: %w", rec.ColumnName(c), err)
		}
	}
	return append(dst, '}'), nil
}

// AppendValueJSON appends element i of arr as AppendRowJSON writes values.
func AppendValueJSON(dst []byte, arr arrow.Array, i int) ([]byte, error) {
	if arr.IsNull(i) {
		return append(dst, "null"...), nil
	}
	switch arr := arr.(type) {
	case *array.String:
		return appendJSONString(dst, arr.Value(i)), nil
	case *VariantArray:
		return append(dst, arr.JSON(i)...), nil
	case *array.Null:
		return append(dst, "null"...), nil
	case *array.Binary:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, arr.Value(i))
		return append(dst, '"'), nil
	case *array.Int64:
		return strconv.AppendInt(dst, arr.Value(i), 10), nil
	case *array.Int32:
		return strconv.AppendInt(dst, int64(arr.Value(i)), 10), nil
	case *array.Int16:
		return strconv.AppendInt(dst, int64(arr.Value(i)), 10), nil
	case *array.Int8:
		return strconv.AppendInt(dst, int64(arr.Value(i)), 10), nil
	case *array.Float32:
		return appendJSONFloat(dst, float64(arr.Value(i)), 32), nil
	case *array.Float64:
		return appendJSONFloat(dst, arr.Value(i), 64), nil
	case *array.Boolean:
		return strconv.AppendBool(dst, arr.Value(i)), nil
	case *array.Date32:
		return appendJSONString(dst, arr.Value(i).ToTime().Format(time.DateOnly)), nil
	case *array.Timestamp:
		layout := "2006-01-02T15:04:05.999999"
		if arr.DataType().(*arrow.TimestampType).TimeZone != "" {
			layout += "Z"
		}
		return appendJSONString(dst, time.UnixMicro(int64(arr.Value(i))).UTC().Format(layout)), nil
	case *array.Decimal128:
		return appendJSONString(dst, arr.Value(i).ToString(arr.DataType().(*arrow.Decimal128Type).Scale)), nil
	case *array.Struct:
		return appendStructJSON(dst, arr, i)
	case *array.Map: // before List: a map is one
		return appendMapJSON(dst, arr, i)
	case *array.List:
		from, to := arr.ValueOffsets(i)
		dst = append(dst, '[')
		for j := from; j < to; j++ {
			if j > from {
				dst = append(dst, ',')
			}
			var err error
			if dst, err = AppendValueJSON(dst, arr.ListValues(), int(j)); err != nil {
				return dst, err
			}
		}
		return append(dst, ']'), nil
	}
	return dst, fmt.Errorf("%w: type %s", ErrUnsupported, arr.DataType())
}

func appendStructJSON(dst []byte, arr *array.Struct, i int) ([]byte, error) {
	t := arr.DataType().(*arrow.StructType)
	dst = append(dst, '{')
	for f := range arr.NumField() {
		if f > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONString(dst, t.Field(f).Name)
		dst = append(dst, ':')
		var err error
		if dst, err = AppendValueJSON(dst, arr.Field(f), i); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func appendMapJSON(dst []byte, arr *array.Map, i int) ([]byte, error) {
	from, to := arr.ValueOffsets(i)
	keys, isText := arr.Keys().(*array.String)
	open, end := byte('['), byte(']')
	if isText {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	for j := from; j < to; j++ {
		if j > from {
			dst = append(dst, ',')
		}
		var err error
		if isText {
			dst = append(appendJSONString(dst, keys.Value(int(j))), ':')
		} else {
			dst = append(dst, '[')
			if dst, err = AppendValueJSON(dst, arr.Keys(), int(j)); err != nil {
				return dst, err
			}
			dst = append(dst, ',')
		}
		if dst, err = AppendValueJSON(dst, arr.Items(), int(j)); err != nil {
			return dst, err
		}
		if !isText {
			dst = append(dst, ']')
		}
	}
	return append(dst, end), nil
}

func appendJSONFloat(dst []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, bits)
}

const hexDigits = "0123456789abcdef"

// appendJSONString appends s quoted; bytes that are no UTF-8 become U+FFFD.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}
