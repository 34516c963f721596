package deltalog

import (
	"fmt"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// orderedGroup is a group whose fields keep their order: parquet.Group, a map, sorts them.
type orderedGroup struct {
	parquet.Group
	order []string
}

// Fields returns the group's fields in the table's order.
func (g orderedGroup) Fields() []parquet.Field {
	fields := g.Group.Fields()
	slices.SortFunc(fields, func(a, b parquet.Field) int {
		return slices.Index(g.order, a.Name()) - slices.Index(g.order, b.Name())
	})
	return fields
}

// parquetGroup is the Parquet form of a struct. Every field is optional, also those that may not be null: so does Spark.
func parquetGroup(s Struct) (parquet.Node, error) {
	g := orderedGroup{parquet.Group{}, make([]string, len(s.Fields))}
	for i, f := range s.Fields {
		n, err := parquetNode(f.Type)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", f.Name, err)
		}
		g.Group[f.Name], g.order[i] = parquet.Optional(n), f.Name
	}
	return g, nil
}

func parquetNode(t DataType) (parquet.Node, error) {
	switch t := t.(type) {
	case Primitive:
		switch t {
		case String:
			return parquet.String(), nil
		case Long:
			return parquet.Leaf(parquet.Int64Type), nil
		case Integer:
			return parquet.Leaf(parquet.Int32Type), nil
		case Short:
			return parquet.Int(16), nil
		case Byte:
			return parquet.Int(8), nil
		case Float:
			return parquet.Leaf(parquet.FloatType), nil
		case Double:
			return parquet.Leaf(parquet.DoubleType), nil
		case Boolean:
			return parquet.Leaf(parquet.BooleanType), nil
		case Binary:
			return parquet.Leaf(parquet.ByteArrayType), nil
		case Date:
			return parquet.Date(), nil
		case Timestamp:
			return parquet.TimestampAdjusted(parquet.Microsecond, true), nil
		case TimestampNTZ:
			return parquet.TimestampAdjusted(parquet.Microsecond, false), nil
		}
	case Decimal:
		switch {
		case t.Precision <= 9:
			return parquet.Decimal(t.Scale, t.Precision, parquet.Int32Type), nil
		case t.Precision <= 18:
			return parquet.Decimal(t.Scale, t.Precision, parquet.Int64Type), nil
		}
		return parquet.Decimal(t.Scale, t.Precision, parquet.FixedLenByteArrayType(decimalBytes(t.Precision))), nil
	case Array:
		e, err := parquetNode(t.Element)
		if err != nil {
			return nil, err
		}
		return parquet.List(parquet.Optional(e)), nil
	case Map:
		k, err := parquetNode(t.Key)
		if err != nil {
			return nil, err
		}
		v, err := parquetNode(t.Value)
		if err != nil {
			return nil, err
		}
		return parquet.Map(k, parquet.Optional(v)), nil
	case Struct:
		return parquetGroup(t)
	}
	return nil, fmt.Errorf("%w: type %s", ErrUnsupported, t.SQL())
}

// decimalBytes is how many bytes an unscaled value of that many digits needs.
func decimalBytes(precision int) int {
	// bits = ceil(precision * log2(10)) + 1 for the sign; 3.3219281 is log2(10) rounded up.
	bits := int(float64(precision)*3.3219281) + 2
	return (bits + 7) / 8
}
