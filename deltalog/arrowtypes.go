package deltalog

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

var arrowPrimitives = map[Primitive]arrow.DataType{
	String: arrow.BinaryTypes.String, Long: arrow.PrimitiveTypes.Int64, Integer: arrow.PrimitiveTypes.Int32,
	Short: arrow.PrimitiveTypes.Int16, Byte: arrow.PrimitiveTypes.Int8, Float: arrow.PrimitiveTypes.Float32,
	Double: arrow.PrimitiveTypes.Float64, Boolean: arrow.FixedWidthTypes.Boolean, Binary: arrow.BinaryTypes.Binary,
	Date: arrow.FixedWidthTypes.Date32, Timestamp: &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"},
	TimestampNTZ: &arrow.TimestampType{Unit: arrow.Microsecond}, Variant: variantType, Void: arrow.Null,
}

// ArrowType is the Arrow type that holds values of t: Utf8 and Binary with 32-bit offsets, Decimal128,
// Timestamp(µs, "UTC") for timestamp, Timestamp(µs) for timestamp_ntz, Date32, List with element "element", Map, Struct, VariantType for
// variant, Null for void.
func ArrowType(t DataType) (arrow.DataType, error) {
	switch t := t.(type) {
	case Primitive:
		if a, ok := arrowPrimitives[t]; ok {
			return a, nil
		}
	case Decimal:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}, nil
	case Array:
		e, err := ArrowType(t.Element)
		if err != nil {
			return nil, err
		}
		return arrow.ListOfField(arrow.Field{Name: "element", Type: e, Nullable: t.ContainsNull}), nil
	case Map:
		k, err := ArrowType(t.Key)
		if err != nil {
			return nil, err
		}
		v, err := ArrowType(t.Value)
		if err != nil {
			return nil, err
		}
		m := arrow.MapOfFields(arrow.Field{Name: "key", Type: k}, arrow.Field{Name: "value", Type: v, Nullable: t.ValueContainsNull})
		return m, nil
	case Struct:
		fields, err := arrowFields(t)
		if err != nil {
			return nil, err
		}
		return arrow.StructOf(fields...), nil
	}
	return nil, fmt.Errorf("%w: type %s", ErrUnsupported, t.SQL())
}

// ArrowSchema is the Arrow schema of the columns of s, in order.
func ArrowSchema(s Struct) (*arrow.Schema, error) {
	fields, err := arrowFields(s)
	if err != nil {
		return nil, err
	}
	return arrow.NewSchema(fields, nil), nil
}

func arrowFields(s Struct) ([]arrow.Field, error) {
	fields := make([]arrow.Field, len(s.Fields))
	for i, f := range s.Fields {
		t, err := ArrowType(f.Type)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", f.Name, err)
		}
		fields[i] = arrow.Field{Name: f.Name, Type: t, Nullable: f.Nullable}
	}
	return fields, nil
}
