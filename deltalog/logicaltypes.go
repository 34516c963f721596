package deltalog

import (
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// timestampUnit is the unit of a stored timestamp: "millis", "micros" or "nanos". Without an annotation it is micros.
func timestampUnit(col *parquet.Column) string {
	if lt := col.Type().LogicalType(); lt != nil {
		if ts, ok := lt.Value.(*format.TimestampType); ok {
			switch ts.Unit.Value.(type) {
			case *format.MilliSeconds:
				return "millis"
			case *format.NanoSeconds:
				return "nanos"
			}
		}
		return "micros"
	}
	if ct := col.Type().ConvertedType(); ct != nil && *ct == deprecated.TimestampMillis {
		return "millis"
	}
	return "micros"
}

// decimalScale is the scale that a stored decimal is annotated with.
func decimalScale(col *parquet.Column) (int, bool) {
	if lt := col.Type().LogicalType(); lt != nil {
		if d, ok := lt.Value.(*format.DecimalType); ok {
			return int(d.Scale), true
		}
	}
	return 0, false
}
