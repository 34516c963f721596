package zerobusfake

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/deltabus/deltabus-local/deltalog"
)

// protoMessage says how the fields of a message type fill the columns of a struct. It is made once a stream.
type protoMessage struct {
	low  []*protoField // by number, for the small ones
	high map[protowire.Number]*protoField
	// columns is the number of columns of the struct.
	columns int
}

// protoField is one field.
type protoField struct {
	column   int
	kind     descriptorpb.FieldDescriptorProto_Type
	repeated bool
	message  *protoMessage // of messages; of map entries, key and value are columns 0 and 1
	isMap    bool
}

func (m *protoMessage) field(n protowire.Number) *protoField {
	if int(n) < len(m.low) {
		return m.low[n]
	}
	return m.high[n]
}

// descriptorError is a descriptor that does not fit its table; it refuses the stream at its creation.
func descriptorError(format string, args ...any) error {
	return invalid("Protobuf descriptor does not match the table: "+format, args...)
}

// planProto checks a stream's descriptor against its table and plans the decoding. Fields are matched to columns by name.
func planProto(descriptor []byte, root *column) (*protoMessage, error) {
	if len(descriptor) == 0 {
		return nil, invalid("descriptor_proto is required for record type PROTO")
	}
	var d descriptorpb.DescriptorProto
	if err := proto.Unmarshal(descriptor, &d); err != nil {
		return nil, invalid("descriptor_proto is not a DescriptorProto: %v", err)
	}
	if d.GetName() == "" || len(d.GetField()) == 0 {
		return nil, invalid("descriptor_proto is not a DescriptorProto with fields")
	}
	p := &protoPlanner{root: &d, types: map[string]*descriptorpb.DescriptorProto{}}
	p.collect(d.GetName(), &d)
	return p.message(&d, d.GetName(), root, "", 0)
}

type protoPlanner struct {
	root  *descriptorpb.DescriptorProto
	types map[string]*descriptorpb.DescriptorProto // by path from the root message
}

func (p *protoPlanner) collect(path string, d *descriptorpb.DescriptorProto) {
	p.types[path] = d
	for _, n := range d.GetNestedType() {
		p.collect(path+"."+n.GetName(), n)
	}
}

// resolve finds the type that a field in scope names. Generated classes name it in full, with a package that is not on the wire; tools
// name it short: so suffixes of the name are tried from the root, and the scopes around the field.
func (p *protoPlanner) resolve(name, scope string) (*descriptorpb.DescriptorProto, string, bool) {
	name = strings.TrimPrefix(name, ".")
	for around := scope; around != ""; {
		if d, ok := p.types[around+"."+name]; ok {
			return d, around + "." + name, true
		}
		i := strings.LastIndexByte(around, '.')
		if i < 0 {
			break
		}
		around = around[:i]
	}
	for rest := name; ; {
		if d, ok := p.types[rest]; ok && rest != p.root.GetName() {
			return d, rest, true
		}
		_, after, ok := strings.Cut(rest, ".")
		if !ok {
			return nil, "", false
		}
		rest = after
	}
}

func (p *protoPlanner) message(d *descriptorpb.DescriptorProto, scope string, c *column, path string, depth int) (*protoMessage, error) {
	if depth > maxDepth {
		return nil, descriptorError("message types are nested too deeply")
	}
	m := &protoMessage{high: map[protowire.Number]*protoField{}, columns: len(c.kids)}
	covered := make([]bool, len(c.kids))
	for _, f := range d.GetField() {
		i, ok := c.index[f.GetName()]
		if !ok {
			return nil, descriptorError("field '%s' is not in the table", brief(path+f.GetName(), maxQuoted))
		}
		if covered[i] {
			return nil, descriptorError("field '%s%s' is there twice", path, f.GetName())
		}
		covered[i] = true
		pf, err := p.field(f, scope, c.kids[i], path+f.GetName(), depth)
		if err != nil {
			return nil, err
		}
		pf.column = i
		if err := m.put(protowire.Number(f.GetNumber()), pf); err != nil {
			return nil, err
		}
	}
	for i, ok := range covered {
		if !ok && !c.kids[i].nullable {
			return nil, descriptorError("required column '%s%s' has no field", path, c.kids[i].name)
		}
	}
	return m, nil
}

func (m *protoMessage) put(n protowire.Number, f *protoField) error {
	if !n.IsValid() {
		return descriptorError("field number %d", n)
	}
	if m.field(n) != nil {
		return descriptorError("field number %d is there twice", n)
	}
	const dense = 256
	if n >= dense {
		m.high[n] = f
		return nil
	}
	for int(n) >= len(m.low) {
		m.low = append(m.low, nil)
	}
	m.low[n] = f
	return nil
}

func (p *protoPlanner) field(f *descriptorpb.FieldDescriptorProto, scope string, c *column, path string, depth int) (*protoField, error) {
	pf := &protoField{kind: f.GetType(), repeated: f.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_REPEATED}
	mismatch := func() error {
		kind := strings.ToLower(strings.TrimPrefix(f.GetType().String(), "TYPE_"))
		if pf.repeated {
			kind = "repeated " + kind
		}
		return descriptorError("field '%s' is %s, which does not fit column type %s", path, kind, c.t.SQL())
	}
	t := c.t
	switch ct := c.t.(type) {
	case deltalog.Array:
		if !pf.repeated {
			return nil, mismatch()
		}
		t, c = ct.Element, c.kids[0]
		switch t.(type) {
		case deltalog.Array, deltalog.Map:
			return nil, descriptorError("field '%s': protobuf has no %s", path, ct.SQL())
		}
	case deltalog.Map:
		if !pf.repeated || pf.kind != descriptorpb.FieldDescriptorProto_TYPE_MESSAGE {
			return nil, mismatch()
		}
		entry, inner, ok := p.resolve(f.GetTypeName(), scope)
		if !ok || !entry.GetOptions().GetMapEntry() {
			return nil, mismatch()
		}
		pf.isMap = true
		var err error
		pf.message, err = p.entry(entry, inner, c, path, depth+1)
		return pf, err
	default:
		if pf.repeated {
			return nil, mismatch()
		}
	}
	if _, isStruct := t.(deltalog.Struct); isStruct {
		if pf.kind != descriptorpb.FieldDescriptorProto_TYPE_MESSAGE {
			return nil, mismatch()
		}
		d, inner, ok := p.resolve(f.GetTypeName(), scope)
		if !ok {
			return nil, descriptorError("field '%s': type %s is not part of the descriptor", path, f.GetTypeName())
		}
		if d.GetOptions().GetMapEntry() {
			return nil, mismatch()
		}
		var err error
		pf.message, err = p.message(d, inner, c, path+".", depth+1)
		return pf, err
	}
	if !fits(pf.kind, t) {
		return nil, mismatch()
	}
	return pf, nil
}

// entry plans a map entry: field 1 is the key, field 2 the value.
func (p *protoPlanner) entry(d *descriptorpb.DescriptorProto, scope string, c *column, path string, depth int) (*protoMessage, error) {
	if depth > maxDepth {
		return nil, descriptorError("message types are nested too deeply")
	}
	m := &protoMessage{high: map[protowire.Number]*protoField{}, columns: 2}
	for _, f := range d.GetField() {
		if f.GetNumber() != 1 && f.GetNumber() != 2 {
			return nil, descriptorError("field '%s': a map entry has a field %d", path, f.GetNumber())
		}
		i := int(f.GetNumber()) - 1
		pf, err := p.field(f, scope, c.kids[i], path+"."+f.GetName(), depth)
		if err != nil {
			return nil, err
		}
		pf.column = i
		if err := m.put(protowire.Number(f.GetNumber()), pf); err != nil {
			return nil, err
		}
	}
	if m.field(1) == nil || m.field(2) == nil {
		return nil, descriptorError("field '%s': a map entry needs a key and a value", path)
	}
	return m, nil
}

// fits reports whether a field kind holds values of t: the table of zerobus.md 8.4, and the other wire forms of the same type.
func fits(kind descriptorpb.FieldDescriptorProto_Type, t deltalog.DataType) bool {
	const (
		i32, s32, sf32 = descriptorpb.FieldDescriptorProto_TYPE_INT32, descriptorpb.FieldDescriptorProto_TYPE_SINT32, descriptorpb.FieldDescriptorProto_TYPE_SFIXED32
		i64, s64, sf64 = descriptorpb.FieldDescriptorProto_TYPE_INT64, descriptorpb.FieldDescriptorProto_TYPE_SINT64, descriptorpb.FieldDescriptorProto_TYPE_SFIXED64
	)
	if _, ok := t.(deltalog.Decimal); ok {
		return kind == descriptorpb.FieldDescriptorProto_TYPE_STRING
	}
	switch t {
	case deltalog.Boolean:
		return kind == descriptorpb.FieldDescriptorProto_TYPE_BOOL
	case deltalog.Byte, deltalog.Short, deltalog.Integer, deltalog.Date:
		return kind == i32 || kind == s32 || kind == sf32
	case deltalog.Long, deltalog.Timestamp, deltalog.TimestampNTZ:
		return kind == i64 || kind == s64 || kind == sf64
	case deltalog.Float:
		return kind == descriptorpb.FieldDescriptorProto_TYPE_FLOAT
	case deltalog.Double:
		return kind == descriptorpb.FieldDescriptorProto_TYPE_DOUBLE
	case deltalog.String:
		return kind == descriptorpb.FieldDescriptorProto_TYPE_STRING
	case deltalog.Binary:
		return kind == descriptorpb.FieldDescriptorProto_TYPE_BYTES
	}
	return false
}

// wireType is the wire type of a kind, unpacked.
func wireType(kind descriptorpb.FieldDescriptorProto_Type) protowire.Type {
	switch kind {
	case descriptorpb.FieldDescriptorProto_TYPE_DOUBLE, descriptorpb.FieldDescriptorProto_TYPE_SFIXED64:
		return protowire.Fixed64Type
	case descriptorpb.FieldDescriptorProto_TYPE_FLOAT, descriptorpb.FieldDescriptorProto_TYPE_SFIXED32:
		return protowire.Fixed32Type
	case descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_BYTES, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE:
		return protowire.BytesType
	}
	return protowire.VarintType
}

func (f *protoField) String() string { return fmt.Sprintf("column %d (%s)", f.column, f.kind) }
