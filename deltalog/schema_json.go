package deltalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxTypeDepth bounds nesting, so that hostile schemas end in an error.
const maxTypeDepth = 100

// ParseSchema reads a schemaString.
func ParseSchema(data []byte) (Struct, error) {
	t, err := parseTypeJSON(data, 0)
	if err != nil {
		return Struct{}, fmt.Errorf("parse schema: %w", err)
	}
	s, ok := t.(Struct)
	if !ok {
		return Struct{}, fmt.Errorf("parse schema: a table's schema is a struct, not %s", t.SQL())
	}
	return s, nil
}

var primitives = []Primitive{
	String, Long, Integer, Short, Byte, Float, Double, Boolean, Binary, Date, Timestamp, TimestampNTZ, Variant, Void,
}

func parseTypeJSON(data []byte, depth int) (DataType, error) {
	if depth > maxTypeDepth {
		return nil, errors.New("types are nested too deeply")
	}
	data = bytes.TrimSpace(data)
	if len(data) > 0 && data[0] == '"' {
		var name string
		if err := json.Unmarshal(data, &name); err != nil {
			return nil, err
		}
		if p := Primitive(name); slices.Contains(primitives, p) {
			return p, nil
		}
		if name == "null" {
			return Void, nil
		}
		var d Decimal
		if name == "decimal" {
			return Decimal{10, 0}, nil
		}
		if n, err := fmt.Sscanf(name, "decimal(%d,%d)", &d.Precision, &d.Scale); err == nil && n == 2 && strings.HasSuffix(name, ")") {
			return d, d.validate()
		}
		return nil, fmt.Errorf("unknown type %q", name)
	}
	var t struct {
		Type              string          `json:"type"`
		Fields            []jsonField     `json:"fields"`
		ElementType       json.RawMessage `json:"elementType"`
		ContainsNull      bool            `json:"containsNull"`
		KeyType           json.RawMessage `json:"keyType"`
		ValueType         json.RawMessage `json:"valueType"`
		ValueContainsNull bool            `json:"valueContainsNull"`
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, err
	}
	switch t.Type {
	case "array":
		e, err := parseTypeJSON(t.ElementType, depth+1)
		return Array{e, t.ContainsNull}, err
	case "map":
		k, err := parseTypeJSON(t.KeyType, depth+1)
		if err != nil {
			return nil, err
		}
		v, err := parseTypeJSON(t.ValueType, depth+1)
		return Map{k, v, t.ValueContainsNull}, err
	case "struct":
		s := Struct{Fields: make([]Field, len(t.Fields))}
		for i, f := range t.Fields {
			ft, err := parseTypeJSON(f.Type, depth+1)
			if err != nil {
				return nil, fmt.Errorf("field %s: %w", f.Name, err)
			}
			s.Fields[i] = Field{Name: f.Name, Type: ft, Nullable: f.Nullable, Metadata: f.Metadata}
		}
		return s, nil
	}
	return nil, fmt.Errorf("unknown type %q", t.Type)
}

type jsonField struct {
	Name     string                     `json:"name"`
	Type     json.RawMessage            `json:"type"`
	Nullable bool                       `json:"nullable"`
	Metadata map[string]json.RawMessage `json:"metadata"`
}

// MarshalJSON writes s as a schemaString.
func (s Struct) MarshalJSON() ([]byte, error) {
	fields := make([]json.RawMessage, len(s.Fields))
	for i, f := range s.Fields {
		fields[i] = FieldJSON(f)
	}
	return encodeJSON(struct {
		Type   string            `json:"type"`
		Fields []json.RawMessage `json:"fields"`
	}{"struct", fields})
}

// FieldJSON is the schema JSON of a field: {"name":…,"type":…,"nullable":…,"metadata":{}}.
func FieldJSON(f Field) json.RawMessage {
	metadata := f.Metadata
	if metadata == nil {
		metadata = map[string]json.RawMessage{}
	}
	return mustJSON(jsonField{f.Name, TypeJSON(f.Type), f.Nullable, metadata})
}

// TypeJSON is the schema JSON of a type: "long" (quoted) or an object.
func TypeJSON(t DataType) json.RawMessage {
	switch t := t.(type) {
	case Primitive:
		return mustJSON(string(t))
	case Decimal:
		return mustJSON(t.SQL())
	case Array:
		return mustJSON(struct {
			Type         string          `json:"type"`
			ElementType  json.RawMessage `json:"elementType"`
			ContainsNull bool            `json:"containsNull"`
		}{"array", TypeJSON(t.Element), t.ContainsNull})
	case Map:
		return mustJSON(struct {
			Type              string          `json:"type"`
			KeyType           json.RawMessage `json:"keyType"`
			ValueType         json.RawMessage `json:"valueType"`
			ValueContainsNull bool            `json:"valueContainsNull"`
		}{"map", TypeJSON(t.Key), TypeJSON(t.Value), t.ValueContainsNull})
	case Struct:
		return mustJSON(t)
	}
	return json.RawMessage("null")
}

// mustJSON encodes what cannot fail: strings, numbers, and messages that were JSON before.
func mustJSON(v any) json.RawMessage {
	data, err := encodeJSON(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return data
}

func encodeJSON(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(buf.Bytes()), nil
}

func (d Decimal) validate() error {
	if d.Precision < 1 || d.Precision > 38 || d.Scale < 0 || d.Scale > d.Precision {
		return fmt.Errorf("%s: precision is 1 to 38, scale 0 to precision", d.SQL())
	}
	return nil
}
