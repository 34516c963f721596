package deltalog

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"unsafe"

	"github.com/parquet-go/parquet-go"
)

// leafColumn is a leaf column of a row group of a checkpoint, in as little memory as it takes: a snapshot keeps the texts, and most columns are null
// in every row, of which nothing is kept. Its methods may be called on nil, a column that is not there.
type leafColumn struct {
	// numbers or texts are the values, and there tells which of them are not null: one a row, or, in a column that repeats, those from starts[row] to
	// starts[row+1].
	numbers []int64
	texts   []string
	there   []bool
	starts  []int32

	chunk []byte // texts are cut from it: an allocation for many
}

// leafBatch is how many values are in hand at once.
const leafBatch = 512

// chunkSize is how much text is allocated at once. What one file of a snapshot needs keeps its whole chunk in memory.
const chunkSize = 4 << 10

// readLeaf reads a column. Of one that repeats, rows whose list or map is null have no values; list is the definition level from which it is there,
// or, of a map, for which null and empty are the same, may be that of its entries.
// buf is for its use meanwhile.
func readLeaf(group parquet.RowGroup, leaf *parquet.Column, list int, buf []parquet.Value) (c *leafColumn, err error) {
	pages := group.ColumnChunks()[leaf.Index()].Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	c = &leafColumn{}
	rows, repeats := int(group.NumRows()), leaf.MaxRepetitionLevel() > 0
	text := leaf.Type().Kind() == parquet.ByteArray || leaf.Type().Kind() == parquet.FixedLenByteArray
	row := 0
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if !repeats && page.NumNulls() == page.NumValues() {
			row += int(page.NumValues())
			parquet.Release(page)
			continue
		}
		values := page.Values()
		for more := true; more; {
			n, err := values.ReadValues(buf)
			if n == 0 && err == nil {
				err = io.ErrNoProgress
			}
			if more = err == nil; err != nil && !errors.Is(err, io.EOF) {
				parquet.Release(page)
				return nil, err
			}
			for _, v := range buf[:n] {
				if v.RepetitionLevel() == 0 {
					row++
				}
				if row < 1 || row > rows {
					continue // refused below
				}
				if repeats {
					c.append(row-1, v, list, leaf.MaxDefinitionLevel())
				} else if !v.IsNull() {
					c.set(row-1, rows, v, text)
				}
			}
		}
		parquet.Release(page)
	}
	if row != rows {
		return nil, fmt.Errorf("column %v has %d rows, the group %d", leaf.Path(), row, rows)
	}
	return c, nil
}

// set is for a column that does not repeat.
func (c *leafColumn) set(row, rows int, v parquet.Value, text bool) {
	if c.there == nil {
		c.there = make([]bool, rows)
		if text {
			c.texts = make([]string, rows)
		} else {
			c.numbers = make([]int64, rows)
		}
	}
	c.there[row] = true
	switch v.Kind() {
	case parquet.Int32:
		c.numbers[row] = int64(v.Int32())
	case parquet.Int64:
		c.numbers[row] = v.Int64()
	case parquet.Boolean:
		if v.Boolean() {
			c.numbers[row] = 1
		}
	case parquet.ByteArray, parquet.FixedLenByteArray:
		c.texts[row] = c.keep(v.ByteArray())
	}
}

// append is for a column that repeats, which holds texts.
func (c *leafColumn) append(row int, v parquet.Value, list, most int) {
	if v.DefinitionLevel() < list {
		return
	}
	for len(c.starts) <= row {
		c.starts = append(c.starts, int32(len(c.texts)))
	}
	there := v.DefinitionLevel() == most
	text := ""
	if there {
		text = c.keep(v.ByteArray())
	}
	c.texts, c.there = append(c.texts, text), append(c.there, there)
}

// keep copies a text.
func (c *leafColumn) keep(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > cap(c.chunk)-len(c.chunk) {
		c.chunk = make([]byte, 0, max(chunkSize, len(b)))
	}
	at := len(c.chunk)
	c.chunk = append(c.chunk, b...)
	return unsafe.String(&c.chunk[at], len(b)) // nothing writes there again
}

func (c *leafColumn) has(row int) bool { return c != nil && c.there != nil && c.there[row] }

// empty reports whether no row has a value, nor a list.
func (c *leafColumn) empty() bool { return c == nil || c.there == nil }

// any reports whether a row has a value.
func (c *leafColumn) any() bool { return c != nil && slices.Contains(c.there, true) }

func (c *leafColumn) text(row int) string {
	if !c.has(row) || c.texts == nil {
		return ""
	}
	return c.texts[row]
}

func (c *leafColumn) number(row int) (int64, bool) {
	if !c.has(row) {
		return 0, false
	}
	if c.numbers == nil {
		return 0, true
	}
	return c.numbers[row], true
}

func (c *leafColumn) pointer(row int) *int64 {
	n, ok := c.number(row)
	if !ok {
		return nil
	}
	return &n
}

// span is where the values of a row are, in a column that repeats.
func (c *leafColumn) span(row int) (from, to int) {
	if c == nil || row >= len(c.starts) {
		return 0, 0
	}
	if row+1 == len(c.starts) {
		return int(c.starts[row]), len(c.texts)
	}
	return int(c.starts[row]), int(c.starts[row+1])
}

// list is the elements in a row; nil if the list is null, as opposed to empty.
func (c *leafColumn) list(row int) []string {
	from, to := c.span(row)
	if from == to {
		return nil
	}
	out := []string{}
	for i := from; i < to; i++ {
		if c.there[i] {
			out = append(out, c.texts[i])
		}
	}
	return out
}
