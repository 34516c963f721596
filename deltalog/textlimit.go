package deltalog

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// TextLimit is how long the texts of a column, or of a type within it, may be: what VARCHAR(n) and CHAR(n) say. Delta has STRING for both, with the
// declared type as a text in the column's metadata. Lengths are in characters (code points); nothing is padded or trimmed.
type TextLimit struct {
	// Type is "varchar(n)" or "char(n)", "" if only nested types have limits.
	Type string
	// Max is n.
	Max int
	// Nested are the limits of a struct's fields, of an array's element, or of a map's key and value, in that order; nil is none.
	Nested []*TextLimit
}

// charTypeKey is the metadata key of a column that has VARCHAR or CHAR at any depth: the whole type as SQL.
const charTypeKey = "__CHAR_VARCHAR_TYPE_STRING"

// TextLimit reads the limit of a field; nil if it has none. An error that matches ErrUnsupported says that the declared type cannot be read.
func (f Field) TextLimit() (*TextLimit, error) {
	if raw, ok := f.Metadata[charTypeKey]; ok {
		var sql string
		err := json.Unmarshal(raw, &sql)
		p := ddl{s: sql}
		var declared DataType
		var limit *TextLimit
		if err == nil {
			declared, limit, err = p.typ(0)
		}
		if err == nil && p.peek() != "" {
			err = fmt.Errorf("unexpected %q", p.peek())
		}
		if err != nil {
			return nil, fmt.Errorf("%w: column %s has %s %.100s: %w", ErrUnsupported, f.Name, charTypeKey, raw, err)
		}
		return limit.of(f.Type, declared), nil
	}
	return fieldLimits(f.Type)
}

// fieldLimits are the limits that fields of structs within t carry themselves, as this package once wrote them.
func fieldLimits(t DataType) (*TextLimit, error) {
	switch t := t.(type) {
	case Struct:
		nested := make([]*TextLimit, len(t.Fields))
		for i, f := range t.Fields {
			var err error
			if nested[i], err = f.TextLimit(); err != nil {
				return nil, err
			}
		}
		return nestedLimit(nested...), nil
	case Array:
		e, err := fieldLimits(t.Element)
		return nestedLimit(e), err
	case Map:
		k, err := fieldLimits(t.Key)
		if err != nil {
			return nil, err
		}
		v, err := fieldLimits(t.Value)
		return nestedLimit(k, v), err
	}
	return nil, nil
}

// nestedLimit is the limit of a type with these within; nil if they are none.
func nestedLimit(nested ...*TextLimit) *TextLimit {
	for _, l := range nested {
		if l != nil {
			return &TextLimit{Nested: nested}
		}
	}
	return nil
}

// of is l, the limit of the declared type, as far as it fits t, whose columns may have changed since.
func (l *TextLimit) of(t, declared DataType) *TextLimit {
	if l == nil {
		return nil
	}
	if l.Type != "" {
		if t != String {
			return nil
		}
		return l
	}
	switch t := t.(type) {
	case Array:
		if d, ok := declared.(Array); ok {
			return nestedLimit(l.Nested[0].of(t.Element, d.Element))
		}
	case Map:
		if d, ok := declared.(Map); ok {
			return nestedLimit(l.Nested[0].of(t.Key, d.Key), l.Nested[1].of(t.Value, d.Value))
		}
	case Struct:
		d, ok := declared.(Struct)
		if !ok {
			return nil
		}
		nested := make([]*TextLimit, len(t.Fields))
		for i, f := range t.Fields {
			for k, old := range d.Fields {
				if strings.EqualFold(f.Name, old.Name) {
					nested[i] = l.Nested[k].of(f.Type, old.Type)
				}
			}
		}
		return nestedLimit(nested...)
	}
	return nil
}

// sql is the type t with its limits, as Spark writes it.
func (l *TextLimit) sql(t DataType) string {
	if l == nil {
		return t.SQL()
	}
	if l.Type != "" {
		return l.Type
	}
	switch t := t.(type) {
	case Array:
		return "array<" + l.Nested[0].sql(t.Element) + ">"
	case Map:
		return "map<" + l.Nested[0].sql(t.Key) + "," + l.Nested[1].sql(t.Value) + ">"
	case Struct:
		parts := make([]string, len(t.Fields))
		for i, f := range t.Fields {
			name := f.Name
			if p := (ddl{s: name}); p.next() != name || strings.HasPrefix(name, "`") {
				name = "`" + strings.ReplaceAll(name, "`", "``") + "`"
			}
			parts[i] = name + ":" + l.Nested[i].sql(f.Type)
		}
		return "struct<" + strings.Join(parts, ",") + ">"
	}
	return t.SQL()
}

// Allows reports whether text is short enough. It may be called on nil.
func (l *TextLimit) Allows(text []byte) bool {
	return l == nil || l.Type == "" || len(text) <= l.Max || utf8.RuneCount(text) <= l.Max
}

// checkLengths finds a text that is too long among elements from to to of arr, whose parents are all there.
func (l *TextLimit) checkLengths(name string, arr arrow.Array, from, to int) error {
	if l == nil {
		return nil
	}
	switch arr := arr.(type) {
	case *array.String:
		for i := from; i < to; i++ {
			if v := arr.Value(i); !arr.IsNull(i) && len(v) > l.Max && !l.Allows([]byte(v)) {
				return NewClassError("DELTA_EXCEED_CHAR_VARCHAR_LIMIT", ErrInvalidValue, "column %s: %.40q is longer than %s", name, v, l.Type)
			}
		}
	case *array.Struct:
		return inRuns(arr, from, to, func(from, to int) error {
			for i, nested := range l.Nested {
				if err := nested.checkLengths(name+"."+arr.DataType().(*arrow.StructType).Field(i).Name, arr.Field(i), from, to); err != nil {
					return err
				}
			}
			return nil
		})
	case *array.Map:
		return inRuns(arr, from, to, func(from, to int) error {
			start, _ := arr.ValueOffsets(from)
			_, end := arr.ValueOffsets(to - 1)
			if err := l.Nested[0].checkLengths(name+".key", arr.Keys(), int(start), int(end)); err != nil {
				return err
			}
			return l.Nested[1].checkLengths(name+".value", arr.Items(), int(start), int(end))
		})
	case *array.List:
		return inRuns(arr, from, to, func(from, to int) error {
			start, _ := arr.ValueOffsets(from)
			_, end := arr.ValueOffsets(to - 1)
			return l.Nested[0].checkLengths(name+".element", arr.ListValues(), int(start), int(end))
		})
	}
	return nil
}

// inRuns is notNullRuns until the first error.
func inRuns(arr arrow.Array, from, to int, check func(from, to int) error) (err error) {
	notNullRuns(arr, from, to, func(from, to int) bool {
		err = check(from, to)
		return err == nil
	})
	return err
}
