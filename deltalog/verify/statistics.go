package verify

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/deltalog"
)

// statistics is add.stats; numbers as they are written.
type statistics struct {
	numRecords                      *int64
	minValues, maxValues, nullCount map[string]any
	loose                           bool // tightBounds is false: counts of nulls tell of a deletion vector's file only whether there are none or nothing else
}

func parseStatistics(text string) (statistics, error) {
	if text == "" {
		return statistics{}, nil
	}
	var s struct {
		NumRecords                      *int64
		MinValues, MaxValues, NullCount map[string]any
		TightBounds                     *bool
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&s); err != nil {
		return statistics{}, err
	}
	return statistics{s.NumRecords, s.MinValues, s.MaxValues, s.NullCount, s.TightBounds != nil && !*s.TightBounds}, nil
}

// columnCheck compares a column or field of a file with its statistics: counts of nulls are exact, bounds contain every value. A file of our own
// also has each bound of a number or date as a value; of others' bounds the imprecision that readers must allow for is a note.
type columnCheck struct {
	name      string
	t         deltalog.DataType
	own       bool
	low, high any // bounds, as extremes gives values; nil once they are found wrong
	wantNulls any
	nulls     int64

	least, greatest any
	kids            []*columnCheck
	bad, notes      []string
}

// newColumnCheck takes the statistics of one column, as they were decoded from JSON; nil where there are none.
func newColumnCheck(name string, t deltalog.DataType, own bool, low, high, nulls any) *columnCheck {
	c := &columnCheck{name: name, t: t, own: own, wantNulls: nulls}
	if s, ok := t.(deltalog.Struct); ok {
		of := func(v any, field string) any {
			m, _ := v.(map[string]any)
			return m[field]
		}
		c.wantNulls = nil
		for _, f := range s.Fields {
			c.kids = append(c.kids, newColumnCheck(name+"."+f.Name, f.Type, own, of(low, f.Name), of(high, f.Name), of(nulls, f.Name)))
		}
		return c
	}
	c.low, c.high = c.parse("minValues", low), c.parse("maxValues", high)
	return c
}

func (c *columnCheck) parse(which string, v any) any {
	if v == nil {
		return nil
	}
	bound, err := parseBound(c.t, v)
	switch {
	case err == nil:
		return bound
	case c.own:
		c.bad = append(c.bad, fmt.Sprintf("column %s: %s is %v: %v", c.name, which, v, err))
	default:
		c.notes = append(c.notes, fmt.Sprintf("column %s: %s cannot be read: readers do without", c.name, which))
	}
	return nil
}

// add looks at elements from to to of arr, whose parents are all there.
func (c *columnCheck) add(arr arrow.Array, from, to int) {
	nulls := 0
	if arr.NullN() > 0 {
		for i := from; i < to; i++ {
			if arr.IsNull(i) {
				nulls++
			}
		}
	}
	c.nulls += int64(nulls)
	if s, ok := arr.(*array.Struct); ok {
		for k, kid := range c.kids {
			kid.addNulls(int64(nulls))
			for start := from; start < to; { // runs of structs that are there
				end := start
				for end < to && !s.IsNull(end) {
					end++
				}
				if end > start {
					kid.add(s.Field(k), start, end)
				}
				start = end + 1
			}
		}
		return
	}
	if c.low == nil && c.high == nil {
		return
	}
	if low, high, ok := extremes(arr, from, to); ok {
		if c.least == nil || order(low, c.least) < 0 {
			c.least = low
		}
		if c.greatest == nil || order(high, c.greatest) > 0 {
			c.greatest = high
		}
	}
}

// addNulls counts rows that have no parent.
func (c *columnCheck) addNulls(n int64) {
	c.nulls += n
	for _, kid := range c.kids {
		kid.addNulls(n)
	}
}

// end compares what was added with the statistics, for a file of so many rows. Problems and notes are in c and its kids then.
func (c *columnCheck) end(rows int64, loose bool) {
	if n, ok := c.wantNulls.(json.Number); ok && n.String() != strconv.FormatInt(c.nulls, 10) {
		if told := n.String(); !loose || told == "0" || told == strconv.FormatInt(rows, 10) {
			c.bad = append(c.bad, fmt.Sprintf("column %s has %d nulls, its statistics say %s", c.name, c.nulls, n))
		}
	}
	if c.least != nil {
		c.compare("minValues", c.least, c.low, false, loose)
		c.compare("maxValues", c.greatest, c.high, true, loose)
	}
	for _, kid := range c.kids {
		kid.end(rows, loose)
		c.bad, c.notes = append(c.bad, kid.bad...), append(c.notes, kid.notes...)
	}
}

// compare compares the extreme value v with its bound.
func (c *columnCheck) compare(which string, v, bound any, high, loose bool) {
	if bound == nil {
		return
	}
	beyond, side := order(v, bound), "above"
	if !high {
		beyond, side = -beyond, "below"
	}
	switch {
	case beyond > 0 && !c.own && allowance(c.t, v, bound, high) != "":
		c.notes = append(c.notes, fmt.Sprintf("column %s: %s is %s: readers have to allow for it", c.name, which, allowance(c.t, v, bound, high)))
	case beyond > 0:
		c.bad = append(c.bad, fmt.Sprintf("column %s: a value is %s %s", c.name, side, which))
	case beyond < 0 && c.own && !loose && tight(c.t):
		c.bad = append(c.bad, fmt.Sprintf("column %s: no value is %s", c.name, which))
	}
}

// tight reports whether bounds of t are values of the file, so that engines answer MIN and MAX from them: strings and times are cut.
func tight(t deltalog.DataType) bool {
	return t != deltalog.String && t != deltalog.Timestamp && t != deltalog.TimestampNTZ
}
