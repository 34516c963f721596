package deltalog

import (
	"encoding/json"
	"fmt"
)

const propColumnMapping = "delta.columnMapping.mode"

// How a table's columns are found in its files (delta.md 2.12, columnMapping).
const (
	mappingNone = "none" // by their names
	mappingName = "name" // by the physical names in their metadata
	mappingID   = "id"   // by the field ids in their metadata
)

func (m *Metadata) mapping() string {
	if mode := m.Configuration[propColumnMapping]; mode != "" {
		return mode
	}
	return mappingNone
}

// MappedSchema is the schema of m, its fields with their stored names as column mapping has them.
func MappedSchema(m *Metadata) (Struct, error) {
	s, err := ParseSchema([]byte(m.SchemaString))
	if err != nil {
		return Struct{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	switch mode := m.mapping(); mode {
	case mappingNone:
		return s, nil
	case mappingName, mappingID:
		if err := mapFields(&s, mode == mappingID); err != nil {
			return Struct{}, fmt.Errorf("%w: column mapping: %w", ErrCorrupt, err)
		}
		return s, nil
	default:
		return Struct{}, NewClassError("DELTA_UNSUPPORTED_FEATURES_FOR_READ", ErrUnsupported, "columnMapping (mode %s)", mode)
	}
}

// mapFields takes the stored names, and the ids if files are read by them, of the fields of t at every depth from their metadata.
func mapFields(t DataType, byID bool) error {
	switch t := t.(type) {
	case Array:
		return mapFields(t.Element, byID)
	case Map:
		if err := mapFields(t.Key, byID); err != nil {
			return err
		}
		return mapFields(t.Value, byID)
	case Struct:
		return mapFields(&t, byID)
	case *Struct:
		for i := range t.Fields {
			f := &t.Fields[i]
			if err := json.Unmarshal(f.Metadata["delta.columnMapping.physicalName"], &f.stored); err != nil {
				return fmt.Errorf("column %s has no physical name: %w", f.Name, err)
			}
			if byID {
				if err := json.Unmarshal(f.Metadata["delta.columnMapping.id"], &f.id); err != nil {
					return fmt.Errorf("column %s has no id: %w", f.Name, err)
				}
			}
			if err := mapFields(f.Type, byID); err != nil {
				return err
			}
		}
	}
	return nil
}

// StoredName is the name that files, partition values and statistics have the field by: its own, unless the table maps columns.
func (f *Field) StoredName() string {
	if f.stored != "" {
		return f.stored
	}
	return f.Name
}

// ColumnMapping reports whether the table's columns are stored by other names than their own.
func (s *Snapshot) ColumnMapping() bool { return s.metadata.mapping() != mappingNone }

// storedPartition is partition by the names that files are known by.
func (s *Snapshot) storedPartition(partition map[string]string) map[string]string {
	if !s.ColumnMapping() {
		return partition
	}
	out := make(map[string]string, len(partition))
	for c, v := range partition {
		if f, ok := s.schema.field(c); ok {
			c = f.StoredName()
		}
		out[c] = v
	}
	return out
}

// storedNames are the stored names of columns.
func (s Struct) storedNames(columns []string) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = c
		if f, ok := s.field(c); ok {
			out[i] = f.StoredName()
		}
	}
	return out
}
