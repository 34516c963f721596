package deltalog

import (
	"encoding/json"

	"github.com/apache/arrow-go/v18/arrow"
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
}

// ParseSchema reads a schemaString.
func ParseSchema(data []byte) (Struct, error) { panic("pending") }

// MarshalJSON writes s as a schemaString.
func (s Struct) MarshalJSON() ([]byte, error) { panic("pending") }

// TypeJSON is the schema JSON of a type: "long" (quoted) or an object.
func TypeJSON(t DataType) json.RawMessage { panic("pending") }

// FieldJSON is the schema JSON of a field: {"name":…,"type":…,"nullable":…,"metadata":{}}.
func FieldJSON(f Field) json.RawMessage { panic("pending") }

// ParseType reads a type as SQL writes it, in any case: "BIGINT", "decimal(10,2)", "array<struct<a:int>>".
func ParseType(sql string) (DataType, error) { panic("pending") }

// ParseColumn reads a column definition: "id BIGINT NOT NULL", "name STRING COMMENT 'x'".
func ParseColumn(ddl string) (Field, error) { panic("pending") }

// ArrowType is the Arrow type that holds values of t: Utf8 and Binary with 32-bit offsets, Decimal128,
// Timestamp(µs, "UTC") for timestamp, Timestamp(µs) for timestamp_ntz, Date32, List with element "element", Map, Struct.
func ArrowType(t DataType) (arrow.DataType, error) { panic("pending") }

// ArrowSchema is the Arrow schema of the columns of s, in order.
func ArrowSchema(s Struct) (*arrow.Schema, error) { panic("pending") }
