package deltalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Table features by what this package can do with a table that lists them (delta.md 2.12). A feature that only binds
// writers costs a reader nothing.
var (
	readableFeatures = []string{
		"appendOnly", "invariants", "changeDataFeed", "timestampNtz", "checkConstraints", "generatedColumns",
		"identityColumns", "allowColumnDefaults", "domainMetadata", "rowTracking", "clustering", "inCommitTimestamp",
		"vacuumProtocolCheck", "v2Checkpoint", "columnMapping", "deletionVectors", "typeWidening", "typeWidening-preview", "variantType", "variantType-preview", "checkpointProtection", "icebergCompatV1", "icebergCompatV2",
	}
	writableFeatures = []string{"appendOnly", "invariants", "changeDataFeed", "timestampNtz"}
)

// checkReadable refuses a table whose rows this package would read wrongly.
func checkReadable(p *Protocol, m *Metadata) error {
	if p.MinReaderVersion > 3 || p.MinReaderVersion < 1 {
		return NewClassError("DELTA_INVALID_PROTOCOL_VERSION", ErrUnsupported, "reader version %d", p.MinReaderVersion)
	}
	if unknown := missing(p.ReaderFeatures, readableFeatures); len(unknown) > 0 {
		return NewClassError("DELTA_UNSUPPORTED_FEATURES_FOR_READ", ErrUnsupported, "%s", strings.Join(unknown, ", "))
	}
	if m.Format.Provider != "" && m.Format.Provider != "parquet" {
		return fmt.Errorf("%w: data files of format %s", ErrUnsupported, m.Format.Provider)
	}
	return nil
}

// checkWritable refuses a table whose rules this package would not keep.
func checkWritable(p *Protocol, m *Metadata, s Struct) error {
	if p.MinWriterVersion > 7 || p.MinWriterVersion < 1 {
		return NewClassError("DELTA_INVALID_PROTOCOL_VERSION", ErrUnsupported, "writer version %d", p.MinWriterVersion)
	}
	if p.MinWriterVersion == 5 || p.MinWriterVersion == 6 {
		return NewClassError("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", ErrUnsupported, "writer version %d (column mapping, identity columns)", p.MinWriterVersion)
	}
	if unknown := missing(p.WriterFeatures, writableFeatures); len(unknown) > 0 {
		return NewClassError("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", ErrUnsupported, "%s", strings.Join(unknown, ", "))
	}
	if m.mapping() != mappingNone {
		return NewClassError("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", ErrUnsupported, "columnMapping (mode %s)", m.mapping())
	}
	for key := range m.Configuration {
		if strings.HasPrefix(key, "delta.constraints.") {
			return NewClassError("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", ErrUnsupported, "checkConstraints (%s)", key)
		}
	}
	for _, f := range s.Fields {
		if _, err := f.TextLimit(); err != nil {
			return err
		}
	}
	for _, t := range []Primitive{Variant, Void} {
		if usesType(s, t) {
			return NewClassError("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", ErrUnsupported, "columns of type %s", t.SQL())
		}
	}
	return checkExpressions("", s)
}

// checkExpressions refuses columns, at any depth, whose values an expression decides about.
func checkExpressions(prefix string, t DataType) error {
	switch t := t.(type) {
	case Array:
		return checkExpressions(prefix+"element.", t.Element)
	case Map:
		return errors.Join(checkExpressions(prefix+"key.", t.Key), checkExpressions(prefix+"value.", t.Value))
	case Struct:
		for _, f := range t.Fields {
			for _, key := range []string{"delta.invariants", "delta.generationExpression", "delta.identity.start", "CURRENT_DEFAULT"} {
				if _, ok := f.Metadata[key]; ok {
					return NewClassError("DELTA_UNSUPPORTED_FEATURES_FOR_WRITE", ErrUnsupported, "column %s%s has %s", prefix, f.Name, key)
				}
			}
			if err := checkExpressions(prefix+f.Name+".", f.Type); err != nil {
				return err
			}
		}
	}
	return nil
}

func missing(want, have []string) []string {
	var out []string
	for _, f := range want {
		if !slices.Contains(have, f) {
			out = append(out, f)
		}
	}
	return out
}

// newProtocol is the protocol of a new table (design.md, decision 6).
func newProtocol(s Struct, config map[string]string) *Protocol {
	p := &Protocol{MinReaderVersion: 1, MinWriterVersion: 7, WriterFeatures: []string{"appendOnly", "invariants"}}
	if strings.EqualFold(config[propChangeDataFeed], "true") {
		p.WriterFeatures = append(p.WriterFeatures, "changeDataFeed")
	}
	if usesType(s, TimestampNTZ) {
		p.MinReaderVersion = 3
		p.ReaderFeatures = []string{"timestampNtz"}
		p.WriterFeatures = append(p.WriterFeatures, "timestampNtz")
	}
	return p
}

// usesType reports whether t holds want at any depth.
func usesType(t DataType, want Primitive) bool {
	switch t := t.(type) {
	case Primitive:
		return t == want
	case Array:
		return usesType(t.Element, want)
	case Map:
		return usesType(t.Key, want) || usesType(t.Value, want)
	case Struct:
		return slices.ContainsFunc(t.Fields, func(f Field) bool { return usesType(f.Type, want) })
	}
	return false
}
