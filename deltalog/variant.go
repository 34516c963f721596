package deltalog

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal"
	"github.com/apache/arrow-go/v18/parquet/variant"
)

// VariantType is the Arrow type of variant columns: their values as JSON text, in an extension type of its own so that they can be told from
// strings. Safe for concurrent use.
type VariantType struct{ arrow.ExtensionBase }

var variantType = &VariantType{arrow.ExtensionBase{Storage: arrow.BinaryTypes.String}}

// ArrayType is the type of arrays of variants.
func (*VariantType) ArrayType() reflect.Type { return reflect.TypeOf(VariantArray{}) }

// ExtensionName is the name of the type.
func (*VariantType) ExtensionName() string { return "deltabus.variant_json" }

// String names the type in errors.
func (*VariantType) String() string { return "variant" }

// ExtensionEquals reports whether other is this type.
func (*VariantType) ExtensionEquals(other arrow.ExtensionType) bool {
	_, ok := other.(*VariantType)
	return ok
}

// Serialize is empty: the type has no parameters.
func (*VariantType) Serialize() string { return "" }

// Deserialize makes the type from what IPC carries.
func (*VariantType) Deserialize(storage arrow.DataType, _ string) (arrow.ExtensionType, error) {
	if !arrow.TypeEqual(storage, arrow.BinaryTypes.String) {
		return nil, fmt.Errorf("variants are stored as text, not as %s", storage)
	}
	return variantType, nil
}

// VariantArray is an array of variants.
type VariantArray struct{ array.ExtensionArrayBase }

// JSON is the JSON text of element i.
func (a *VariantArray) JSON(i int) string { return a.Storage().(*array.String).Value(i) }

// ValueStr is the JSON text of element i.
func (a *VariantArray) ValueStr(i int) string { return a.JSON(i) }

// variantJSON decodes a variant's binary form to JSON: numbers exact, dates and times as text (those with a zone in UTC), binary as base64,
// fields in the order of their names, NaN and infinities as text.
func variantJSON(metadata, value []byte) (text []byte, err error) {
	defer func() {
		if r := recover(); r != nil { // the library panics on some damage
			text, err = nil, fmt.Errorf("%w: variant: %v", ErrCorrupt, r)
		}
	}()
	meta, err := variant.NewMetadata(slices.Clone(metadata)) // the value's strings point into it
	if err != nil {
		return nil, fmt.Errorf("%w: variant: %w", ErrCorrupt, err)
	}
	v, err := variant.NewWithMetadata(meta, value)
	if err == nil {
		text, err = appendVariant(nil, v, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: variant: %w", ErrCorrupt, err)
	}
	return text, nil
}

func appendVariant(dst []byte, v variant.Value, depth int) ([]byte, error) {
	if depth > maxTypeDepth {
		return nil, errors.New("nested too deeply")
	}
	if err := checkVariantText(v.Bytes()); err != nil {
		return nil, err
	}
	switch x := v.Value().(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, x), nil
	case int8:
		return strconv.AppendInt(dst, int64(x), 10), nil
	case int16:
		return strconv.AppendInt(dst, int64(x), 10), nil
	case int32:
		return strconv.AppendInt(dst, int64(x), 10), nil
	case int64:
		return strconv.AppendInt(dst, x, 10), nil
	case float32:
		return appendJSONFloat(dst, float64(x), 32), nil
	case float64:
		return appendJSONFloat(dst, x, 64), nil
	case variant.DecimalValue[decimal.Decimal32]:
		return append(dst, x.Value.ToString(int32(x.Scale))...), nil
	case variant.DecimalValue[decimal.Decimal64]:
		return append(dst, x.Value.ToString(int32(x.Scale))...), nil
	case variant.DecimalValue[decimal.Decimal128]:
		return append(dst, x.Value.ToString(int32(x.Scale))...), nil
	case string:
		if !utf8.ValidString(x) {
			return nil, errors.New("text that is no UTF-8")
		}
		return appendJSONString(dst, x), nil
	case []byte:
		return appendJSONString(dst, base64.StdEncoding.EncodeToString(x)), nil
	case arrow.Date32:
		return appendJSONString(dst, x.ToTime().Format(time.DateOnly)), nil
	case arrow.Timestamp:
		return appendJSONString(dst, variantTime(v, int64(x))), nil
	case arrow.Time64:
		return appendJSONString(dst, x.ToTime(arrow.Microsecond).Format("15:04:05.999999")), nil
	case fmt.Stringer: // a UUID
		return appendJSONString(dst, x.String()), nil
	case variant.ArrayValue:
		dst = append(dst, '[')
		for i := range x.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			e, err := x.Value(i)
			if err != nil {
				return nil, err
			}
			if dst, err = appendVariant(dst, e, depth+1); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case variant.ObjectValue:
		dst = append(dst, '{')
		for i := range x.NumElements() {
			if i > 0 {
				dst = append(dst, ',')
			}
			f, err := x.FieldAt(i)
			if err != nil {
				return nil, err
			}
			dst = append(appendJSONString(dst, f.Key), ':')
			if dst, err = appendVariant(dst, f.Value, depth+1); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	default:
		return nil, fmt.Errorf("a value of type %T", x)
	}
}

// checkVariantText checks the length of a long text or binary, which the library takes as it is.
func checkVariantText(b []byte) error {
	const header = 5
	if len(b) == 0 {
		return errors.New("no bytes")
	}
	basic, kind := b[0]&3, b[0]>>2
	switch {
	case basic == byte(variant.BasicShortString) && len(b) < 1+int(kind):
		return errors.New("a text is cut off")
	case basic == byte(variant.BasicPrimitive) && (kind == byte(variant.PrimitiveString) || kind == byte(variant.PrimitiveBinary)):
		if len(b) < header || uint64(binary.LittleEndian.Uint32(b[1:])) > uint64(len(b)-header) {
			return errors.New("a text is cut off")
		}
	}
	return nil
}

// variantTime is a timestamp as text, with the zone if it has one.
func variantTime(v variant.Value, n int64) string {
	switch v.Type() {
	case variant.TimestampMicros:
		return time.UnixMicro(n).UTC().Format("2006-01-02 15:04:05.999999-07:00")
	case variant.TimestampNanos:
		return time.Unix(0, n).UTC().Format("2006-01-02 15:04:05.999999999-07:00")
	case variant.TimestampNanosNTZ:
		return time.Unix(0, n).UTC().Format("2006-01-02 15:04:05.999999999")
	}
	return time.UnixMicro(n).UTC().Format("2006-01-02 15:04:05.999999")
}
