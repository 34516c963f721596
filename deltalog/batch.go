package deltalog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// ErrNotNull says that a row has a null where the schema allows none. The text names the column.
var ErrNotNull = errors.New("null in a column that is NOT NULL")

// ErrInvalidValue says that a row has a value that its column's type does not have: text that is no UTF-8 or too long for VARCHAR(n) or CHAR(n), or
// a decimal with too many digits.
// The text names the column.
var ErrInvalidValue = errors.New("invalid value")

// checkBatch checks that b has the columns of s, no null where there may be none, and no text that is too long.
func checkBatch(s Struct, b arrow.RecordBatch) error {
	if err := checkColumns(s, b); err != nil {
		return err
	}
	if err := CheckNotNull(s, b); err != nil {
		return err
	}
	return checkLengths(s, b)
}

// checkColumns checks that b has the columns of s.
func checkColumns(s Struct, b arrow.RecordBatch) error {
	if int(b.NumCols()) != len(s.Fields) {
		return fmt.Errorf("a batch has %d columns, the table %d", b.NumCols(), len(s.Fields))
	}
	for i, f := range s.Fields {
		if got := b.ColumnName(i); !strings.EqualFold(got, f.Name) {
			return fmt.Errorf("column %d of a batch is %s, of the table %s", i+1, got, f.Name)
		}
		want, err := ArrowType(f.Type)
		if err != nil {
			return fmt.Errorf("column %s: %w", f.Name, err)
		}
		if got := b.Column(i).DataType(); !sameType(want, got) {
			return fmt.Errorf("column %s: a batch has %s, the table %s", f.Name, got, want)
		}
	}
	return nil
}

// checkLengths checks that no text of b, which has the columns of s, is longer than its VARCHAR or CHAR allows, at any depth. Its error matches
// ErrInvalidValue.
func checkLengths(s Struct, b arrow.RecordBatch) error {
	for i, f := range s.Fields {
		limit, err := f.TextLimit()
		if err == nil {
			err = limit.checkLengths(f.Name, b.Column(i), 0, b.Column(i).Len())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sameType reports whether arrays of got can be read as want. Names count for the fields of structs, nullability nowhere.
func sameType(want, got arrow.DataType) bool {
	if want.ID() != got.ID() {
		return false
	}
	switch want := want.(type) {
	case *arrow.StructType:
		got := got.(*arrow.StructType)
		if want.NumFields() != got.NumFields() {
			return false
		}
		for i := range want.NumFields() {
			if !strings.EqualFold(want.Field(i).Name, got.Field(i).Name) || !sameType(want.Field(i).Type, got.Field(i).Type) {
				return false
			}
		}
		return true
	case *arrow.ListType:
		return sameType(want.Elem(), got.(*arrow.ListType).Elem())
	case *arrow.MapType:
		got := got.(*arrow.MapType)
		return sameType(want.KeyType(), got.KeyType()) && sameType(want.ItemType(), got.ItemType())
	case *arrow.TimestampType:
		got := got.(*arrow.TimestampType)
		return want.Unit == got.Unit && (want.TimeZone == "") == (got.TimeZone == "")
	case *arrow.Decimal128Type:
		got := got.(*arrow.Decimal128Type)
		return want.Precision == got.Precision && want.Scale == got.Scale
	}
	return true
}

// CheckNotNull checks that rec, which has the columns of s, has no null where s allows none, at any depth. Its error matches ErrNotNull.
func CheckNotNull(s Struct, rec arrow.RecordBatch) error {
	for i, f := range s.Fields {
		if at, bad := nullBreach(f.Type, f.Nullable, rec.Column(i), 0, rec.Column(i).Len()); bad {
			return NewClassError("DELTA_NOT_NULL_CONSTRAINT_VIOLATED", ErrNotNull, "column %s", f.Name+at)
		}
	}
	return nil
}

// nullBreach finds a null where none may be among elements from to to of arr, whose parents are all there, and says where below the column.
func nullBreach(t DataType, nullable bool, arr arrow.Array, from, to int) (at string, bad bool) {
	if !nullable && hasNull(arr, from, to) {
		return "", true
	}
	if !constrained(t) {
		return "", false
	}
	notNullRuns(arr, from, to, func(from, to int) bool {
		switch t := t.(type) {
		case Struct:
			for i, f := range t.Fields {
				if at, bad = nullBreach(f.Type, f.Nullable, arr.(*array.Struct).Field(i), from, to); bad {
					at = "." + f.Name + at
					break
				}
			}
		case Array:
			l := arr.(*array.List)
			start, _ := l.ValueOffsets(from)
			_, end := l.ValueOffsets(to - 1)
			at, bad = nullBreach(t.Element, t.ContainsNull, l.ListValues(), int(start), int(end))
			at = ".element" + at
		case Map:
			m := arr.(*array.Map)
			start, _ := m.ValueOffsets(from)
			_, end := m.ValueOffsets(to - 1)
			if at, bad = nullBreach(t.Key, false, m.Keys(), int(start), int(end)); bad {
				at = ".key" + at
			} else {
				at, bad = nullBreach(t.Value, t.ValueContainsNull, m.Items(), int(start), int(end))
				at = ".value" + at
			}
		}
		return !bad
	})
	return at, bad
}

// constrained reports whether a null may be forbidden below t.
func constrained(t DataType) bool {
	switch t := t.(type) {
	case Struct:
		for _, f := range t.Fields {
			if !f.Nullable || constrained(f.Type) {
				return true
			}
		}
	case Array:
		return !t.ContainsNull || constrained(t.Element)
	case Map:
		return true // the key
	}
	return false
}

func hasNull(arr arrow.Array, from, to int) bool {
	if arr.NullN() == 0 {
		return false
	}
	for i := from; i < to; i++ {
		if arr.IsNull(i) {
			return true
		}
	}
	return false
}

// notNullRuns calls yield for each run of elements of arr between from and to that are not null, until it returns false.
func notNullRuns(arr arrow.Array, from, to int, yield func(from, to int) bool) {
	if arr.NullN() == 0 {
		if from < to {
			yield(from, to)
		}
		return
	}
	for from < to {
		if arr.IsNull(from) {
			from++
			continue
		}
		end := from + 1
		for end < to && !arr.IsNull(end) {
			end++
		}
		if !yield(from, end) {
			return
		}
		from = end
	}
}
