package zerobusfake

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/deltabus/deltabus-local/deltalog"
)

// protoDecoder reads protobuf records straight into columns, by a plan.
type protoDecoder struct{ plan *protoMessage }

// decode appends one record to r. After an error r holds part of it: the caller truncates.
func (d protoDecoder) decode(record []byte, r *rows) error {
	return d.plan.decode(record, r.root, 0)
}

// decode appends one message to the struct column c.
func (m *protoMessage) decode(b []byte, c *column, depth int) error {
	if depth > maxDepth {
		return badRecord("protobuf message is nested too deeply")
	}
	row := c.n
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return malformed(n)
		}
		b = b[n:]
		f := m.field(num)
		if f == nil { // a field that the descriptor does not have is passed over
			if typ == protowire.StartGroupType || typ == protowire.EndGroupType {
				return badRecord("protobuf groups are not supported")
			}
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return malformed(n)
			}
			b = b[n:]
			continue
		}
		col := c.kids[f.column]
		var err error
		if f.repeated {
			b, err = f.element(b, typ, col, depth)
		} else {
			if col.n > row { // again: the last one wins
				col.truncate(row)
			}
			b, err = f.single(b, typ, col, depth)
		}
		if err != nil {
			return err
		}
	}
	for _, col := range c.kids {
		if err := finish(col, row); err != nil {
			return err
		}
	}
	c.added()
	return nil
}

// finish gives a column its value for the row if the message had none, and ends lists and maps.
func finish(col *column, row int) error {
	if col.n > row {
		return nil
	}
	switch col.t.(type) {
	case deltalog.Array, deltalog.Map:
		if col.kids[0].n > int(col.offsets[row]) || !col.nullable {
			if _, isMap := col.t.(deltalog.Map); isMap && col.kids[0].repeats(int(col.offsets[row])) {
				return badRecord("duplicate key in map field '%s'", col.name)
			}
			col.closeList()
			return nil
		}
	}
	if !col.nullable {
		return badRecord("missing required field '%s'", col.name)
	}
	col.appendNull()
	return nil
}

// single reads the value of a field that is not repeated.
func (f *protoField) single(b []byte, typ protowire.Type, col *column, depth int) ([]byte, error) {
	if typ != wireType(f.kind) {
		return nil, badRecord("field '%s' has wire type %d", col.name, typ)
	}
	if f.message != nil {
		inner, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, malformed(n)
		}
		return b[n:], f.message.decode(inner, col, depth+1)
	}
	return f.scalar(b, col)
}

// element reads one element of a repeated field, a run of packed ones, or one entry of a map.
func (f *protoField) element(b []byte, typ protowire.Type, col *column, depth int) ([]byte, error) {
	if f.isMap {
		if typ != protowire.BytesType {
			return nil, badRecord("field '%s' has wire type %d", col.name, typ)
		}
		entry, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, malformed(n)
		}
		return b[n:], f.mapEntry(entry, col, depth+1)
	}
	want := wireType(f.kind)
	if typ == protowire.BytesType && want != protowire.BytesType {
		packed, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return nil, malformed(n)
		}
		for len(packed) > 0 {
			var err error
			if packed, err = f.scalar(packed, col.kids[0]); err != nil {
				return nil, err
			}
		}
		return b[n:], nil
	}
	return f.single(b, typ, col.kids[0], depth)
}

// mapEntry reads a map entry; a key or value that is left out is the default of its type.
func (f *protoField) mapEntry(b []byte, col *column, depth int) error {
	if depth > maxDepth {
		return badRecord("protobuf message is nested too deeply")
	}
	row := col.kids[0].n
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return malformed(n)
		}
		b = b[n:]
		part := f.message.field(num)
		if part == nil {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return malformed(n)
			}
			b = b[n:]
			continue
		}
		kid := col.kids[part.column]
		if kid.n > row {
			kid.truncate(row)
		}
		var err error
		if b, err = part.single(b, typ, kid, depth); err != nil {
			return err
		}
	}
	for i, kid := range col.kids {
		if kid.n == row {
			part := f.message.field(protowire.Number(i + 1))
			if err := part.zero(kid, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// zero appends the default value of a field's type.
func (f *protoField) zero(col *column, depth int) error {
	if f.message != nil {
		return f.message.decode(nil, col, depth+1)
	}
	switch wireType(f.kind) {
	case protowire.Fixed64Type:
		_, err := f.scalar(make([]byte, 8), col)
		return err
	case protowire.Fixed32Type:
		_, err := f.scalar(make([]byte, 4), col)
		return err
	}
	_, err := f.scalar([]byte{0}, col) // varint 0, and the empty string
	return err
}

// scalar reads one value of a kind that is no message.
func (f *protoField) scalar(b []byte, col *column) ([]byte, error) {
	switch wireType(f.kind) {
	case protowire.VarintType:
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, malformed(n)
		}
		b = b[n:]
		i := int64(v)
		switch f.kind {
		case descriptorpb.FieldDescriptorProto_TYPE_BOOL:
			col.appendBool(v != 0)
			return b, nil
		case descriptorpb.FieldDescriptorProto_TYPE_INT32:
			i = int64(int32(v))
		case descriptorpb.FieldDescriptorProto_TYPE_SINT32:
			i = int64(int32(protowire.DecodeZigZag(v & 0xffffffff)))
		case descriptorpb.FieldDescriptorProto_TYPE_SINT64:
			i = protowire.DecodeZigZag(v)
		}
		return b, f.integer(i, col)
	case protowire.Fixed32Type:
		v, n := protowire.ConsumeFixed32(b)
		if n < 0 {
			return nil, malformed(n)
		}
		if f.kind == descriptorpb.FieldDescriptorProto_TYPE_FLOAT {
			col.appendBits(uint64(v))
			return b[n:], nil
		}
		return b[n:], f.integer(int64(int32(v)), col)
	case protowire.Fixed64Type:
		v, n := protowire.ConsumeFixed64(b)
		if n < 0 {
			return nil, malformed(n)
		}
		if f.kind == descriptorpb.FieldDescriptorProto_TYPE_DOUBLE {
			col.appendBits(v)
			return b[n:], nil
		}
		return b[n:], f.integer(int64(v), col)
	}
	v, n := protowire.ConsumeBytes(b)
	if n < 0 {
		return nil, malformed(n)
	}
	b = b[n:]
	if d, ok := col.t.(deltalog.Decimal); ok {
		lo, hi, ok := parseDecimal(string(v), d)
		if !ok {
			return nil, badRecord("invalid value for %s field '%s'", d.SQL(), col.name)
		}
		col.appendDecimal(lo, hi)
		return b, nil
	}
	if f.kind == descriptorpb.FieldDescriptorProto_TYPE_STRING && !utf8.Valid(v) {
		return nil, badRecord("invalid UTF-8 in field '%s'", col.name)
	}
	col.data = append(room(col.data, len(v)), v...)
	col.closeText()
	return b, nil
}

func (f *protoField) integer(v int64, col *column) error {
	if !col.appendInt(v) {
		return badRecord("number out of range for %s field '%s'", col.t.SQL(), col.name)
	}
	return nil
}
