package deltalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// DataType is a Delta data type: Primitive, Decimal, Array, Map or Struct.
type DataType interface {
	// SQL is the type as Databricks SQL writes it in lower case: "bigint", "array<struct<a:int>>".
	SQL() string
	dataType()
}

// Primitive is a type without parameters, by its name in the schema JSON: "string", "long", "integer", "short",
// "byte", "float", "double", "boolean", "binary", "date", "timestamp", "timestamp_ntz", "variant", "void".
type Primitive string

// The primitive types.
const (
	String       Primitive = "string"
	Long         Primitive = "long"
	Integer      Primitive = "integer"
	Short        Primitive = "short"
	Byte         Primitive = "byte"
	Float        Primitive = "float"
	Double       Primitive = "double"
	Boolean      Primitive = "boolean"
	Binary       Primitive = "binary"
	Date         Primitive = "date"
	Timestamp    Primitive = "timestamp"
	TimestampNTZ Primitive = "timestamp_ntz"
	Variant      Primitive = "variant"
	Void         Primitive = "void"
)

// Decimal is decimal(precision, scale), precision 1 to 38.
type Decimal struct{ Precision, Scale int }

// Array is array<element>.
type Array struct {
	Element      DataType
	ContainsNull bool
}

// Map is map<key, value>.
type Map struct {
	Key, Value        DataType
	ValueContainsNull bool
}

// Struct is a struct type, and the schema of a table.
type Struct struct{ Fields []Field }

// Field is a column of a table or a field of a struct.
type Field struct {
	Name     string
	Type     DataType
	Nullable bool
	// Metadata holds the field's metadata, byte for byte as read.
	Metadata map[string]json.RawMessage

	stored string // the name in files, if column mapping gives it another
	id     int    // in files, if column mapping goes by ids
}

func (Primitive) dataType() {}
func (Decimal) dataType()   {}
func (Array) dataType()     {}
func (Map) dataType()       {}
func (Struct) dataType()    {}

var sqlNames = map[Primitive]string{Long: "bigint", Integer: "int", Short: "smallint", Byte: "tinyint"}

// SQL is the type's name: "bigint" for long, and so on.
func (p Primitive) SQL() string {
	if name, ok := sqlNames[p]; ok {
		return name
	}
	return string(p)
}

// SQL is "decimal(p,s)".
func (d Decimal) SQL() string { return fmt.Sprintf("decimal(%d,%d)", d.Precision, d.Scale) }

// SQL is "array<element>".
func (a Array) SQL() string { return "array<" + a.Element.SQL() + ">" }

// SQL is "map<key,value>".
func (m Map) SQL() string { return "map<" + m.Key.SQL() + "," + m.Value.SQL() + ">" }

// SQL is "struct<name:type,…>".
func (s Struct) SQL() string {
	parts := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		parts[i] = f.Name + ":" + f.Type.SQL()
	}
	return "struct<" + strings.Join(parts, ",") + ">"
}

// field finds a field by name, in any case.
func (s Struct) field(name string) (Field, bool) {
	for _, f := range s.Fields {
		if strings.EqualFold(f.Name, name) {
			return f, true
		}
	}
	return Field{}, false
}

// validate checks names at every depth: not empty, and unique in any case.
func (s Struct) validate() error {
	seen := map[string]bool{}
	for _, f := range s.Fields {
		switch key := strings.ToLower(f.Name); {
		case f.Name == "":
			return errors.New("a column has no name")
		case strings.ContainsAny(f.Name, " ,;{}()\n\t="):
			return fmt.Errorf("column %q: names may not contain any of \" ,;{}()\\n\\t=\"", f.Name)
		case seen[key]:
			return fmt.Errorf("column %s is there twice (names differ in more than case)", f.Name)
		default:
			seen[key] = true
		}
		if f.Type == nil {
			return fmt.Errorf("column %s has no type", f.Name)
		}
		if err := validateType(f.Type); err != nil {
			return fmt.Errorf("column %s: %w", f.Name, err)
		}
	}
	return nil
}

func validateType(t DataType) error {
	switch t := t.(type) {
	case Decimal:
		return t.validate()
	case Array:
		return validateType(t.Element)
	case Map:
		return errors.Join(validateType(t.Key), validateType(t.Value))
	case Struct:
		return t.validate()
	}
	return nil
}
