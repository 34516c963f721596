package deltalog

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// KeyFunc gives each row of a batch a key; nil is a row that matches nothing.
type KeyFunc func(rows arrow.RecordBatch) (keys [][]byte, err error)

// KeyColumns makes keys of the values of columns, compared as = compares them in SQL: a null matches nothing, integers of all widths are alike, 0.0 is
// -0.0 and NaN is NaN. Other types only match their own.
func KeyColumns(names ...string) KeyFunc {
	return func(rec arrow.RecordBatch) ([][]byte, error) {
		columns := make([]arrow.Array, len(names))
		for i, name := range names {
			at := rec.Schema().FieldIndices(name)
			if len(at) == 0 {
				return nil, fmt.Errorf("no column %s", name)
			}
			columns[i] = rec.Column(at[0])
		}
		keys := make([][]byte, rec.NumRows())
		for i := range keys {
			key := make([]byte, 0, 16*len(names))
			for _, c := range columns {
				if key = appendKey(key, c, i); key == nil {
					break
				}
			}
			keys[i] = key
		}
		return keys, nil
	}
}

// appendKey appends one value, so that no two lists of values give the same key; nil if it is null, or of a type that cannot be compared.
func appendKey(key []byte, arr arrow.Array, i int) []byte {
	if arr.IsNull(i) {
		return nil
	}
	var value []byte
	switch arr := arr.(type) {
	case *array.String:
		value = []byte(arr.Value(i))
	case *array.Binary:
		value = arr.Value(i)
	default:
		var err error
		if value, err = AppendValueJSON(nil, arr, i); err != nil {
			return nil
		}
		if string(value) == "-0" {
			value = []byte("0")
		}
	}
	key = binary.AppendUvarint(key, uint64(len(value)))
	return append(key, value...)
}

// join finds the rows of a source that match rows of a table.
type join struct {
	source  arrow.RecordBatch // nil: no rows
	rows    int
	byKey   map[string][]int
	target  KeyFunc
	on      func(Pairs) ([]bool, error)
	matched []bool // rows of the source
}

// pair is a row of the batch at hand and one of the source.
type pair struct{ target, source int }

// oneKey gives every row the same key.
func oneKey(rec arrow.RecordBatch) ([][]byte, error) {
	keys := make([][]byte, rec.NumRows())
	for i := range keys {
		keys[i] = []byte{}
	}
	return keys, nil
}

func newJoin(m *Merge) (*join, error) {
	j := &join{byKey: map[string][]int{}, target: m.TargetKey, on: m.On}
	sourceKey := m.SourceKey
	switch {
	case (sourceKey == nil) != (j.target == nil):
		return nil, fmt.Errorf("a merge has keys for both sides, or for none")
	case sourceKey == nil:
		sourceKey, j.target = oneKey, oneKey
	}
	var err error
	if j.source, err = concatenate(m.Source); err != nil || j.source == nil {
		return j, err
	}
	j.rows = int(j.source.NumRows())
	j.matched = make([]bool, j.rows)
	keys, err := keysOf(sourceKey, j.source)
	if err != nil {
		return nil, err
	}
	for i, k := range keys {
		if k != nil {
			j.byKey[string(k)] = append(j.byKey[string(k)], i)
		}
	}
	return j, nil
}

func keysOf(f KeyFunc, rec arrow.RecordBatch) ([][]byte, error) {
	keys, err := f(rec)
	if err == nil && len(keys) != int(rec.NumRows()) {
		err = fmt.Errorf("%d keys for %d rows", len(keys), rec.NumRows())
	}
	return keys, err
}

// with is the pairs of rec and the source, and remembers which rows of the source have one.
func (j *join) with(rec arrow.RecordBatch) ([]pair, error) {
	if j.rows == 0 {
		return nil, nil
	}
	keys, err := keysOf(j.target, rec)
	if err != nil {
		return nil, err
	}
	var found []pair
	for i, k := range keys {
		if k == nil {
			continue
		}
		for _, s := range j.byKey[string(k)] {
			found = append(found, pair{i, s})
		}
	}
	found, _, err = j.choose(rec, found, j.on)
	for _, p := range found {
		j.matched[p.source] = true
	}
	return found, err
}

// choose parts pairs into those that when takes and the rest.
func (j *join) choose(rec arrow.RecordBatch, from []pair, when func(Pairs) ([]bool, error)) (chosen, rest []pair, err error) {
	if when == nil || len(from) == 0 {
		return from, nil, nil
	}
	pairs, err := j.pairs(rec, from)
	if err != nil {
		return nil, nil, err
	}
	answers, err := when(pairs)
	if err != nil {
		return nil, nil, err
	}
	if len(answers) != len(from) {
		return nil, nil, fmt.Errorf("the condition gave %d answers for %d pairs", len(answers), len(from))
	}
	for i, yes := range answers {
		if yes {
			chosen = append(chosen, from[i])
		} else {
			rest = append(rest, from[i])
		}
	}
	return chosen, rest, nil
}

func (j *join) pairs(rec arrow.RecordBatch, of []pair) (p Pairs, err error) {
	targets, sources := make([]int, len(of)), make([]int, len(of))
	for i, x := range of {
		targets[i], sources[i] = x.target, x.source
	}
	if p.Target, err = take(rec, targets); err != nil {
		return p, err
	}
	p.Source, err = take(j.source, sources)
	return p, err
}

// unmatched is the rows of the source that matched nothing; nil if there is no source.
func (j *join) unmatched() (arrow.RecordBatch, error) {
	if j.source == nil {
		return nil, nil
	}
	var rows []int
	for i, yes := range j.matched {
		if !yes {
			rows = append(rows, i)
		}
	}
	return take(j.source, rows)
}

// concatenate is all rows of batches, which have the same columns, as one batch; nil if there are none.
func concatenate(batches []arrow.RecordBatch) (arrow.RecordBatch, error) {
	if len(batches) == 0 {
		return nil, nil
	}
	if len(batches) == 1 {
		return batches[0], nil
	}
	first := batches[0]
	columns := make([]arrow.Array, first.NumCols())
	rows := int64(0)
	for _, b := range batches {
		if !b.Schema().Equal(first.Schema()) {
			return nil, fmt.Errorf("batches differ in their columns: %s and %s", first.Schema(), b.Schema())
		}
		rows += b.NumRows()
	}
	for i := range columns {
		parts := make([]arrow.Array, len(batches))
		for j, b := range batches {
			parts[j] = b.Column(i)
		}
		var err error
		if columns[i], err = array.Concatenate(parts, memory.DefaultAllocator); err != nil {
			return nil, fmt.Errorf("column %s: %w", first.ColumnName(i), err)
		}
	}
	return array.NewRecordBatch(first.Schema(), columns, rows), nil
}
