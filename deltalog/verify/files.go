package verify

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/deltalog"
)

// readFiles reads every live file to its last row and checks its size and statistics.
func (a *audit) readFiles() error {
	a.report.Files = len(a.live)
	t, err := deltalog.Open(a.ctx, a.st, deltalog.Options{CheckpointInterval: -1})
	if err != nil {
		return nil // compareSnapshot says so
	}
	for _, n := range slices.Sorted(maps.Keys(a.live)) {
		add := a.live[n]
		size, there := a.sizes[n]
		switch {
		case !there:
			a.report.problem("file %s is missing", n)
			continue
		case size != add.Size:
			a.report.problem("file %s has %d bytes, the log says %d", n, size, add.Size)
		}
		if add.DeletionVector != nil {
			a.report.note("not audited: %s has a deletion vector", n)
			continue
		}
		if err := a.readFile(t, n, add); err != nil {
			return err
		}
	}
	return nil
}

func (a *audit) readFile(t *deltalog.Table, n string, add *deltalog.Add) error {
	stats, err := deltalog.ParseStats(add.Stats)
	if err != nil {
		a.report.problem("file %s: %v", n, err)
	}
	c := newColumnCheck(stats)
	var rows int64
	for rec, err := range t.ReadFile(a.ctx, t.Cached(), add.Path, add.PartitionValues, nil) {
		if errors.Is(err, deltalog.ErrUnsupported) {
			a.report.note("not audited: file %s: %v", n, err)
			return nil
		}
		if err != nil {
			if a.ctx.Err() != nil {
				return a.ctx.Err()
			}
			a.report.problem("file %s: %v", n, err)
			return nil
		}
		rows += rec.NumRows()
		for i, f := range t.Cached().Schema().Fields {
			if !f.Nullable && rec.Column(i).NullN() > 0 {
				a.report.problem("file %s: column %s is null where it must not be", n, f.Name)
			}
			c.add(f.Name, rec.Column(i))
		}
	}
	a.report.Rows += rows
	if stats.NumRecords != nil && *stats.NumRecords != rows {
		a.report.problem("file %s has %d rows, its statistics say %d", n, rows, *stats.NumRecords)
	}
	for _, p := range c.problems() {
		a.report.problem("file %s: %s", n, p)
	}
	return nil
}

// columnCheck compares the top-level columns of a file with its statistics: counts of nulls are exact, bounds contain every value.
type columnCheck struct {
	stats deltalog.Stats
	nulls map[string]int64
	bad   map[string]string
}

func newColumnCheck(s deltalog.Stats) *columnCheck {
	return &columnCheck{stats: s, nulls: map[string]int64{}, bad: map[string]string{}}
}

func (c *columnCheck) add(name string, arr arrow.Array) {
	c.nulls[name] += int64(arr.NullN())
	low, hasLow := c.stats.MinValues[name]
	high, hasHigh := c.stats.MaxValues[name]
	if !hasLow && !hasHigh {
		return
	}
	for i := range arr.Len() {
		if arr.IsNull(i) {
			continue
		}
		if hasLow && less(arr, i, low, false) {
			c.bad[name] = "column " + name + ": a value is below minValues"
		}
		if hasHigh && less(arr, i, high, true) {
			c.bad[name] = "column " + name + ": a value is above maxValues"
		}
	}
}

// less reports whether element i is below the bound (or, above, whether it is above it). Types that cannot be compared here never are.
func less(arr arrow.Array, i int, bound json.RawMessage, above bool) bool {
	var cmp int
	switch arr := arr.(type) {
	case *array.String:
		var b string
		if json.Unmarshal(bound, &b) != nil {
			return true
		}
		cmp = compare(arr.Value(i), b)
	case *array.Int64, *array.Int32, *array.Int16, *array.Int8:
		b, err := strconv.ParseInt(string(bound), 10, 64)
		if err != nil {
			return true
		}
		v, err := strconv.ParseInt(arr.ValueStr(i), 10, 64)
		if err != nil {
			return true
		}
		cmp = compare(v, b)
	case *array.Float64:
		var b float64
		if json.Unmarshal(bound, &b) != nil {
			return false // NaN and infinities are strings
		}
		cmp = compare(arr.Value(i), b)
	case *array.Timestamp:
		var s string
		if json.Unmarshal(bound, &s) != nil {
			return true
		}
		b, err := boundTime(s)
		if err != nil {
			return true
		}
		limit := b.UnixMicro()
		if above {
			limit += 999 // some writers cut to the millisecond
		}
		cmp = compare(int64(arr.Value(i)), limit)
	default:
		return false
	}
	if above {
		return cmp > 0
	}
	return cmp < 0
}

// boundTime reads a time of the statistics; delta-rs writes those without a zone with a blank.
func boundTime(s string) (t time.Time, err error) {
	for _, layout := range []string{"2006-01-02T15:04:05.999Z07:00", "2006-01-02T15:04:05.999", "2006-01-02 15:04:05.999"} {
		if t, err = time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return t, err
}

func compare[T string | int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (c *columnCheck) problems() []string {
	out := slices.Collect(maps.Values(c.bad))
	for name, raw := range c.stats.NullCount {
		var want int64
		if json.Unmarshal(raw, &want) != nil {
			continue // a nested column
		}
		if got, ok := c.nulls[name]; ok && got != want {
			out = append(out, "column "+name+" has "+strconv.FormatInt(got, 10)+" nulls, its statistics say "+strconv.FormatInt(want, 10))
		}
	}
	slices.Sort(out)
	return out
}
