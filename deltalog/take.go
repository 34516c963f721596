package deltalog

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// take is the rows of rec at these positions, in their order, in memory of their own.
func take(rec arrow.RecordBatch, rows []int) (arrow.RecordBatch, error) {
	columns := make([]arrow.Array, rec.NumCols())
	for i := range columns {
		var err error
		if columns[i], err = takeArray(rec.Column(i), rows); err != nil {
			return nil, fmt.Errorf("column %s: %w", rec.ColumnName(i), err)
		}
	}
	return array.NewRecordBatch(rec.Schema(), columns, int64(len(rows))), nil
}

func takeArray(arr arrow.Array, rows []int) (arrow.Array, error) {
	mem := memory.DefaultAllocator
	switch arr := arr.(type) {
	case *array.String:
		return gather(arr, array.NewStringBuilder(mem), rows), nil
	case *array.Binary:
		return gather(arr, array.NewBinaryBuilder(mem, arrow.BinaryTypes.Binary), rows), nil
	case *array.Int64:
		return gather(arr, array.NewInt64Builder(mem), rows), nil
	case *array.Int32:
		return gather(arr, array.NewInt32Builder(mem), rows), nil
	case *array.Int16:
		return gather(arr, array.NewInt16Builder(mem), rows), nil
	case *array.Int8:
		return gather(arr, array.NewInt8Builder(mem), rows), nil
	case *array.Float64:
		return gather(arr, array.NewFloat64Builder(mem), rows), nil
	case *array.Float32:
		return gather(arr, array.NewFloat32Builder(mem), rows), nil
	case *array.Boolean:
		return gather(arr, array.NewBooleanBuilder(mem), rows), nil
	case *array.Date32:
		return gather(arr, array.NewDate32Builder(mem), rows), nil
	case *array.Timestamp:
		return gather(arr, array.NewTimestampBuilder(mem, arr.DataType().(*arrow.TimestampType)), rows), nil
	case *array.Decimal128:
		return gather(arr, array.NewDecimal128Builder(mem, arr.DataType().(*arrow.Decimal128Type)), rows), nil
	}
	// Nested ones by runs of neighbours.
	var runs []arrow.Array
	for from := 0; from < len(rows); {
		to := from + 1
		for to < len(rows) && rows[to] == rows[to-1]+1 {
			to++
		}
		runs = append(runs, array.NewSlice(arr, int64(rows[from]), int64(rows[to-1]+1)))
		from = to
	}
	if len(runs) == 0 {
		return array.NewSlice(arr, 0, 0), nil
	}
	return array.Concatenate(runs, mem)
}

type values[V any] interface {
	IsNull(i int) bool
	Value(i int) V
}

type valueBuilder[V any] interface {
	Reserve(n int)
	Append(v V)
	AppendNull()
	NewArray() arrow.Array
	Release()
}

func gather[V any](from values[V], b valueBuilder[V], rows []int) arrow.Array {
	defer b.Release()
	b.Reserve(len(rows))
	for _, i := range rows {
		if from.IsNull(i) {
			b.AppendNull()
		} else {
			b.Append(from.Value(i))
		}
	}
	return b.NewArray()
}
