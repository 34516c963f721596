package deltalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

const hiveNull = "__HIVE_DEFAULT_PARTITION__"

// partitionValue is element i of arr as the log writes it (delta.md 2.5); nil for null, and for the empty string, which the log
// cannot tell from it.
func partitionValue(arr arrow.Array, i int) (*string, error) {
	if arr.IsNull(i) {
		return nil, nil
	}
	var s string
	switch arr := arr.(type) {
	case *array.String:
		if s = strings.Clone(arr.Value(i)); !utf8.ValidString(s) { // it outlives the array, whose memory may be used again
			return nil, fmt.Errorf("%w: text that is no UTF-8: %.40q", ErrInvalidValue, s)
		}
	case *array.Binary:
		if s = string(arr.Value(i)); !utf8.ValidString(s) { // the log is JSON, and JSON is text
			return nil, fmt.Errorf("%w: binary partition values that are no UTF-8", ErrUnsupported)
		}
	case *array.Boolean:
		s = strconv.FormatBool(arr.Value(i))
	case *array.Date32:
		s = arr.Value(i).ToTime().Format(time.DateOnly)
	case *array.Timestamp:
		at := time.UnixMicro(int64(arr.Value(i))).UTC()
		if arr.DataType().(*arrow.TimestampType).TimeZone != "" {
			s = at.Format("2006-01-02T15:04:05.000000Z")
		} else {
			s = at.Format("2006-01-02 15:04:05.000000")
		}
	case *array.Decimal128:
		s = arr.Value(i).ToString(arr.DataType().(*arrow.Decimal128Type).Scale)
	case *array.Int64, *array.Int32, *array.Int16, *array.Int8:
		s = arr.ValueStr(i)
	case *array.Float32:
		s = partitionFloat(float64(arr.Value(i)), 32)
	case *array.Float64:
		s = partitionFloat(arr.Value(i), 64)
	default:
		return nil, fmt.Errorf("partition column of type %s: %w", arr.DataType(), ErrUnsupported)
	}
	if s == "" {
		return nil, nil
	}
	return &s, nil
}

func partitionFloat(v float64, bits int) string {
	if math.IsInf(v, 0) {
		return strings.Replace(strconv.FormatFloat(v, 'g', -1, bits)[:1]+"Infinity", "+", "", 1)
	}
	return strconv.FormatFloat(v, 'g', -1, bits)
}

// appendPartitionValue appends what the log wrote for a partition column.
func appendPartitionValue(b array.Builder, t DataType, value *string) error {
	if value == nil || *value == "" {
		b.AppendNull()
		return nil
	}
	bad := func(err error) error {
		return fmt.Errorf("%w: partition value %q is no %s: %w", ErrCorrupt, *value, t.SQL(), err)
	}
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(*value)
	case *array.BinaryBuilder:
		b.Append([]byte(*value))
	case *array.BooleanBuilder:
		v, err := strconv.ParseBool(*value)
		if err != nil {
			return bad(err)
		}
		b.Append(v)
	case *array.Int64Builder:
		v, err := strconv.ParseInt(*value, 10, 64)
		if err != nil {
			return bad(err)
		}
		b.Append(v)
	case *array.Int32Builder:
		v, err := strconv.ParseInt(*value, 10, 32)
		if err != nil {
			return bad(err)
		}
		b.Append(int32(v))
	case *array.Int16Builder:
		v, err := strconv.ParseInt(*value, 10, 16)
		if err != nil {
			return bad(err)
		}
		b.Append(int16(v))
	case *array.Int8Builder:
		v, err := strconv.ParseInt(*value, 10, 8)
		if err != nil {
			return bad(err)
		}
		b.Append(int8(v))
	case *array.Float32Builder:
		v, err := strconv.ParseFloat(*value, 32)
		if err != nil {
			return bad(err)
		}
		b.Append(float32(v))
	case *array.Float64Builder:
		v, err := strconv.ParseFloat(*value, 64)
		if err != nil {
			return bad(err)
		}
		b.Append(v)
	case *array.Date32Builder:
		v, err := time.Parse(time.DateOnly, *value)
		if err != nil {
			return bad(err)
		}
		b.Append(arrow.Date32FromTime(v))
	case *array.TimestampBuilder:
		v, err := parsePartitionTime(*value)
		if err != nil {
			return bad(err)
		}
		b.Append(arrow.Timestamp(v.UnixMicro()))
	case *array.Decimal128Builder:
		v, err := parseDecimal(*value, t.(Decimal))
		if err != nil {
			return bad(err)
		}
		b.Append(v)
	default:
		return fmt.Errorf("partition column of type %s: %w", t.SQL(), ErrUnsupported)
	}
	return nil
}

// parsePartitionTime reads both forms of a timestamp. Without a zone it is taken as UTC.
func parsePartitionTime(s string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02 15:04:05.999999", "2006-01-02T15:04:05.999999Z07:00", "2006-01-02T15:04:05.999999", time.DateOnly} {
		if at, err := time.Parse(layout, s); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("not a timestamp")
}

// parseDecimal reads an exact decimal that fits d.
func parseDecimal(s string, d Decimal) (decimal128.Num, error) {
	whole, frac, _ := strings.Cut(s, ".")
	frac = strings.TrimRight(frac, "0")
	if len(frac) > d.Scale {
		return decimal128.Num{}, fmt.Errorf("more than %d digits after the point", d.Scale)
	}
	n, ok := new(big.Int).SetString(whole+frac+strings.Repeat("0", d.Scale-len(frac)), 10)
	if !ok {
		return decimal128.Num{}, fmt.Errorf("not a decimal")
	}
	if digits := strings.TrimLeft(n.Text(10), "-"); len(digits) > d.Precision {
		return decimal128.Num{}, fmt.Errorf("more than %d digits", d.Precision)
	}
	return decimal128.FromBigInt(n), nil
}

// partitionDir is the directory of a data file by Hive's convention. Readers take the values from the action, never from it.
func partitionDir(columns []string, values map[string]*string) string {
	var b strings.Builder
	for _, c := range columns {
		dir := hiveEscape(c) + "=" + hiveNull
		if v := values[c]; v != nil {
			dir = hiveEscape(c) + "=" + hiveEscape(*v)
		}
		if len(dir) > maxDirName {
			sum := sha256.Sum256([]byte(dir))
			dir = strings.ToValidUTF8(dir[:maxDirName-2*len(sum)-1], "") + "-" + hex.EncodeToString(sum[:])
		}
		b.WriteString(dir)
		b.WriteByte('/')
	}
	return b.String()
}

// maxDirName is how many bytes of a partition's directory are used: file systems take 255. Longer ones end in a hash.
const maxDirName = 200

// hiveEscape makes a value a directory name.
func hiveEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == 0x7f || strings.IndexByte("\"#%'*/:=?\\{[]^<>|", c) >= 0 {
			b.WriteByte('%')
			b.WriteString(strings.ToUpper(hex.EncodeToString([]byte{c})))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// encodePath is the URI form of a relative path, as add.path has it: everything but unreserved characters, "/" and
// the sub-delimiters is percent-encoded.
func encodePath(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); {
		c := path[i]
		if c < utf8.RuneSelf {
			if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~/=!$&'()*+,;:@", c) >= 0 {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "%%%02X", c)
			}
			i++
			continue
		}
		_, n := utf8.DecodeRuneInString(path[i:])
		for _, x := range []byte(path[i : i+n]) {
			fmt.Fprintf(&b, "%%%02X", x)
		}
		i += n
	}
	return b.String()
}
