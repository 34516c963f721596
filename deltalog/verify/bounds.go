package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
)

// parseBound reads a bound as extremes gives values: *big.Rat for integers and decimals (some writers put integers through doubles), int64 for days
// and microseconds, float64, string. nil for what has no bound that could be checked.
func parseBound(t deltalog.DataType, v any) (any, error) {
	switch t {
	case deltalog.Long, deltalog.Integer, deltalog.Short, deltalog.Byte:
		return parseRat(v)
	case deltalog.Float:
		return parseFloat(v, 32) // 0.1 is another number as a double
	case deltalog.Double:
		return parseFloat(v, 64)
	case deltalog.String:
		if s, ok := v.(string); ok {
			return s, nil
		}
		return nil, errors.New("not text")
	case deltalog.Date:
		at, err := time.Parse(time.DateOnly, fmt.Sprint(v))
		return at.Unix() / 86400, err
	case deltalog.Timestamp, deltalog.TimestampNTZ:
		at, err := parseTime(fmt.Sprint(v))
		return at.UnixMicro(), err
	}
	if _, ok := t.(deltalog.Decimal); ok {
		return parseRat(v)
	}
	return nil, nil
}

func parseRat(v any) (any, error) {
	text := fmt.Sprint(v)
	r, ok := new(big.Rat).SetString(text)
	if _, isNumber := v.(json.Number); !ok || !isNumber || len(text) > 100 { // an exponent could make it endless
		return nil, errors.New("not a number of this type")
	}
	return r, nil
}

func parseFloat(v any, bits int) (any, error) {
	switch v := v.(type) {
	case json.Number:
		return floatOf(v.String(), bits)
	case string:
		if f, ok := map[string]float64{"Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}[v]; ok {
			return f, nil
		}
		if v == "NaN" {
			return nil, nil // writers disagree about its place
		}
	}
	return nil, errors.New("not a number")
}

func parseTime(s string) (t time.Time, err error) {
	for _, layout := range []string{"2006-01-02T15:04:05.999Z07:00", "2006-01-02T15:04:05.999", "2006-01-02 15:04:05.999"} {
		if t, err = time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return t, err
}

// allowance says why a bound that excludes v is still no fault of another writer's file: readers have to allow for this (delta.md 2.4). "" if it is
// one. A string that was cut and not made an upper bound again is a fault: nobody could allow for it.
func allowance(t deltalog.DataType, v, bound any, high bool) string {
	switch v := v.(type) {
	case int64:
		if d := v - bound.(int64); high && t != deltalog.Date && 0 < d && d < 1000 {
			return "cut to milliseconds"
		}
	case float64:
		if b := bound.(float64); math.Abs(v-b) <= math.Abs(v)*1e-15 {
			return "rounded"
		}
	case *big.Rat:
		// A double has 15 digits to rely on; the way to it may round twice.
		off := new(big.Rat).Sub(v, bound.(*big.Rat))
		if off.Abs(off).Cmp(new(big.Rat).Mul(new(big.Rat).Abs(v), doubleError)) <= 0 {
			return "rounded to a double"
		}
	}
	return ""
}

var doubleError = big.NewRat(1, 1e15)
