package deltalog

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// part is the rows of one data file.
type part struct {
	values  map[string]*string
	batches []arrow.RecordBatch
	rows    int64
}

// split parts rows by their partition values; runs of equal values stay together.
func split(snap *Snapshot, batches []arrow.RecordBatch) ([]*part, error) {
	columns := snap.metadata.PartitionColumns
	if len(columns) == 0 {
		p := &part{values: map[string]*string{}, batches: batches}
		for _, b := range batches {
			p.rows += b.NumRows()
		}
		if p.rows == 0 {
			return nil, nil
		}
		return []*part{p}, nil
	}
	at := make([]int, len(columns))
	for i, c := range columns {
		at[i] = slices.IndexFunc(snap.schema.Fields, func(f Field) bool { return f.Name == c })
	}
	var order []*part
	byKey := map[string]*part{}
	for _, b := range batches {
		for from, rows := 0, int(b.NumRows()); from < rows; {
			to := from + 1
			for to < rows && samePartition(b, at, from, to) {
				to++
			}
			values := make(map[string]*string, len(columns))
			for i, c := range columns {
				v, err := partitionValue(b.Column(at[i]), from)
				if err != nil {
					return nil, fmt.Errorf("column %s: %w", c, err)
				}
				values[c] = v
			}
			key := partitionKey(columns, func(c string) *string { return values[c] })
			p := byKey[key]
			if p == nil {
				p = &part{values: values}
				byKey[key] = p
				order = append(order, p)
			}
			p.batches = append(p.batches, b.NewSlice(int64(from), int64(to)))
			p.rows += int64(to - from)
			from = to
		}
	}
	return order, nil
}

// samePartition reports whether rows i and j surely belong to the same partition. A false no costs a slice more, nothing else.
func samePartition(b arrow.RecordBatch, columns []int, i, j int) bool {
	for _, c := range columns {
		arr := b.Column(c)
		if arr.IsNull(i) != arr.IsNull(j) {
			return false
		}
		if arr.IsNull(i) {
			continue
		}
		switch arr := arr.(type) {
		case *array.String:
			if arr.Value(i) != arr.Value(j) {
				return false
			}
		case *array.Date32:
			if arr.Value(i) != arr.Value(j) {
				return false
			}
		default:
			if arr.ValueStr(i) != arr.ValueStr(j) {
				return false
			}
		}
	}
	return true
}
