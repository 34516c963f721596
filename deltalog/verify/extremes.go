package verify

import (
	"cmp"
	"math/big"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// extremes are the least and the greatest of elements from to to of arr, as parseBound gives bounds. NaN does not count: writers disagree about
// its place.
func extremes(arr arrow.Array, from, to int) (low, high any, ok bool) {
	switch arr := arr.(type) {
	case *array.Int64:
		return rats(scan(arr, from, to, arr.Value))
	case *array.Int32:
		return rats(scan(arr, from, to, func(i int) int64 { return int64(arr.Value(i)) }))
	case *array.Int16:
		return rats(scan(arr, from, to, func(i int) int64 { return int64(arr.Value(i)) }))
	case *array.Int8:
		return rats(scan(arr, from, to, func(i int) int64 { return int64(arr.Value(i)) }))
	case *array.Date32:
		return scan(arr, from, to, func(i int) int64 { return int64(arr.Value(i)) })
	case *array.Timestamp:
		return scan(arr, from, to, func(i int) int64 { return int64(arr.Value(i)) })
	case *array.Float32:
		return scan(arr, from, to, func(i int) float64 { return float64(arr.Value(i)) })
	case *array.Float64:
		return scan(arr, from, to, arr.Value)
	case *array.String:
		return scan(arr, from, to, arr.Value)
	case *array.Decimal128:
		least, greatest := -1, -1
		for i := from; i < to; i++ {
			if arr.IsNull(i) {
				continue
			}
			if least < 0 || arr.Value(i).Less(arr.Value(least)) {
				least = i
			}
			if greatest < 0 || arr.Value(greatest).Less(arr.Value(i)) {
				greatest = i
			}
		}
		if least < 0 {
			return nil, nil, false
		}
		scale := arr.DataType().(*arrow.Decimal128Type).Scale
		unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
		rat := func(i int) any { return new(big.Rat).SetFrac(arr.Value(i).BigInt(), unit) }
		return rat(least), rat(greatest), true
	}
	return nil, nil, false
}

func scan[T int64 | float64 | string](arr arrow.Array, from, to int, value func(int) T) (low, high any, ok bool) {
	var lo, hi T
	for i := from; i < to; i++ {
		if arr.IsNull(i) {
			continue
		}
		switch v := value(i); {
		case v != v: // NaN
		case !ok:
			lo, hi, ok = v, v, true
		case v < lo:
			lo = v
		case v > hi:
			hi = v
		}
	}
	return lo, hi, ok
}

// rats makes exact numbers of integers, to be compared with whatever a writer made of them.
func rats(low, high any, ok bool) (any, any, bool) {
	if !ok {
		return nil, nil, false
	}
	return new(big.Rat).SetInt64(low.(int64)), new(big.Rat).SetInt64(high.(int64)), true
}

// floatOf reads a number as a float of so many bits.
func floatOf(text string, bits int) (any, error) {
	f, err := strconv.ParseFloat(text, bits)
	return f, err
}

// order compares two values of one kind; of others it knows nothing and calls them equal.
func order(a, b any) int {
	switch a := a.(type) {
	case *big.Rat:
		if b, ok := b.(*big.Rat); ok {
			return a.Cmp(b)
		}
	case float64:
		if b, ok := b.(float64); ok {
			return cmp.Compare(a, b)
		}
	case int64:
		if b, ok := b.(int64); ok {
			return cmp.Compare(a, b)
		}
	case string:
		if b, ok := b.(string); ok {
			return cmp.Compare(a, b)
		}
	}
	return 0
}
