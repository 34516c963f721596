package cdf

import (
	"fmt"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog"
)

// checkSchema checks that rows of version, which has the columns of then, can be read with those of now: the feed has one schema, the
// newest (delta.md 3.6).
func checkSchema(version int64, class string, then, now deltalog.Struct) error {
	if column, what := breach(then, now); what != "" {
		return deltalog.NewClassError(class, ErrIncompatibleSchema, "version %d has column %s, which %s; start behind the change", version, column, what)
	}
	return nil
}

// breach finds a field of then that now cannot hold, and says what happened to it; "" if there is none.
func breach(then, now deltalog.Struct) (field, what string) {
	for _, old := range then.Fields {
		f, ok := find(now, old.Name)
		switch {
		case !ok:
			return old.Name, "the table no longer has"
		case !strings.EqualFold(f.StoredName(), old.StoredName()):
			return old.Name, "is another column now"
		case old.Nullable && !f.Nullable:
			return old.Name, "may no longer be null"
		}
		if below, what := typeBreach(old.Type, f.Type); what != "" {
			return old.Name + below, what
		}
	}
	return "", ""
}

func typeBreach(then, now deltalog.DataType) (below, what string) {
	const nulls = "may no longer be null"
	switch then := then.(type) {
	case deltalog.Struct:
		if now, ok := now.(deltalog.Struct); ok {
			field, what := breach(then, now)
			return "." + field, what
		}
	case deltalog.Array:
		if now, ok := now.(deltalog.Array); ok {
			if then.ContainsNull && !now.ContainsNull {
				return ".element", nulls
			}
			below, what := typeBreach(then.Element, now.Element)
			return ".element" + below, what
		}
	case deltalog.Map:
		if now, ok := now.(deltalog.Map); ok {
			if then.ValueContainsNull && !now.ValueContainsNull {
				return ".value", nulls
			}
			if below, what := typeBreach(then.Key, now.Key); what != "" {
				return ".key" + below, what
			}
			below, what := typeBreach(then.Value, now.Value)
			return ".value" + below, what
		}
	default:
		if then == now {
			return "", ""
		}
	}
	return "", fmt.Sprintf("is %s now, not %s", now.SQL(), then.SQL())
}

func find(s deltalog.Struct, name string) (deltalog.Field, bool) {
	for _, f := range s.Fields {
		if strings.EqualFold(f.Name, name) {
			return f, true
		}
	}
	return deltalog.Field{}, false
}
