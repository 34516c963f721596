package deltabus

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Field numbers of a message record: the positions of the messages table's columns, from 1.
const (
	fieldMessageID protowire.Number = iota + 1
	fieldTopic
	fieldKey
	fieldSource
	fieldType
	fieldSubject
	fieldContentType
	fieldPayload
	fieldPayloadBytes
	fieldHeaders
	fieldCorrelationID
	fieldProducerID
	fieldProducerSeq
	fieldPublishedAt
)

// messageDescriptor describes the records of appendMessageProto.
func messageDescriptor() *descriptorpb.DescriptorProto {
	type (
		kind  = descriptorpb.FieldDescriptorProto_Type
		label = descriptorpb.FieldDescriptorProto_Label
	)
	const (
		text     = descriptorpb.FieldDescriptorProto_TYPE_STRING
		long     = descriptorpb.FieldDescriptorProto_TYPE_INT64
		required = descriptorpb.FieldDescriptorProto_LABEL_REQUIRED
		optional = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
	)
	field := func(n protowire.Number, name string, k kind, l label) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{Name: proto.String(name), Number: proto.Int32(int32(n)), Type: k.Enum(), Label: l.Enum()}
	}
	headers := field(fieldHeaders, "headers", descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, descriptorpb.FieldDescriptorProto_LABEL_REPEATED)
	headers.TypeName = proto.String("HeadersEntry")
	return &descriptorpb.DescriptorProto{
		Name: proto.String("Message"),
		Field: []*descriptorpb.FieldDescriptorProto{
			field(fieldMessageID, "message_id", text, required),
			field(fieldTopic, "topic", text, required),
			field(fieldKey, "key", text, optional),
			field(fieldSource, "source", text, required),
			field(fieldType, "type", text, optional),
			field(fieldSubject, "subject", text, optional),
			field(fieldContentType, "content_type", text, optional),
			field(fieldPayload, "payload", text, optional),
			field(fieldPayloadBytes, "payload_bytes", descriptorpb.FieldDescriptorProto_TYPE_BYTES, optional),
			headers,
			field(fieldCorrelationID, "correlation_id", text, optional),
			field(fieldProducerID, "producer_id", text, required),
			field(fieldProducerSeq, "producer_seq", long, required),
			field(fieldPublishedAt, "published_at", long, required),
		},
		NestedType: []*descriptorpb.DescriptorProto{{
			Name:    proto.String("HeadersEntry"),
			Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
			Field:   []*descriptorpb.FieldDescriptorProto{field(1, "key", text, optional), field(2, "value", text, optional)},
		}},
	}
}

// appendMessageProto appends e as one record of messageDescriptor.
func appendMessageProto(b []byte, e *entry) []byte {
	m, r := &e.msg, &e.receipt
	b = appendText(b, fieldMessageID, m.ID)
	b = appendText(b, fieldTopic, m.Topic)
	b = appendOptional(b, fieldKey, m.Key)
	b = appendText(b, fieldSource, m.Source)
	b = appendOptional(b, fieldType, m.Type)
	b = appendOptional(b, fieldSubject, m.Subject)
	b = appendOptional(b, fieldContentType, m.ContentType)
	field := fieldPayloadBytes
	if isText(m.ContentType, m.Payload) {
		field = fieldPayload
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendBytes(b, m.Payload)
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) { // sorted: a message has one encoding
		value := m.Headers[name]
		b = protowire.AppendTag(b, fieldHeaders, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(2+protowire.SizeBytes(len(name))+protowire.SizeBytes(len(value))))
		b = appendText(b, 1, name)
		b = appendText(b, 2, value)
	}
	b = appendOptional(b, fieldCorrelationID, m.CorrelationID)
	b = appendText(b, fieldProducerID, r.ProducerID)
	b = protowire.AppendTag(b, fieldProducerSeq, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(r.ProducerSeq))
	b = protowire.AppendTag(b, fieldPublishedAt, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(r.PublishedAt.UnixMicro()))
}

func appendText(b []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

// appendOptional leaves "" out: it is null.
func appendOptional(b []byte, n protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return appendText(b, n, s)
}
