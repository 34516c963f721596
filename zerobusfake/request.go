package zerobusfake

import (
	"errors"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

// request is an EphemeralStreamRequest whose records stay where they came in. As Go structs a record of 1 KB costs more than decoding it
// into columns does: an allocation and a copy, and reflection for the oneofs around it.
type request struct {
	payload   payload
	create    zerobuspb.CreateIngestStreamRequest
	offset    int64
	hasOffset bool
	kind      zerobuspb.RecordType // of the records; unspecified: the message has neither a record nor a batch
	records   [][]byte             // in buf

	buf mem.Buffer
}

// payload is which of the three a message is.
type payload int

const (
	noPayload payload = iota
	createStream
	ingestRecord
	ingestBatch
)

// recordKinds are the fields of both oneofs, that of records and that of batches.
var recordKinds = [...]zerobuspb.RecordType{2: zerobuspb.RecordType_PROTO, 3: zerobuspb.RecordType_JSON, 4: zerobuspb.RecordType_AVRO}

// free gives the memory of the records back. The request may be used again.
func (r *request) free() {
	if r.buf != nil {
		r.buf.Free()
	}
	r.clear()
	r.buf = nil
}

// clear makes it a message without a payload.
func (r *request) clear() {
	clear(r.records)
	r.payload, r.hasOffset, r.kind, r.records = noPayload, false, zerobuspb.RecordType_RECORD_TYPE_UNSPECIFIED, r.records[:0]
}

// unmarshal takes a message apart, and holds its memory until free or the next message. Like proto.Unmarshal it passes over unknown fields,
// takes the last of a oneof, and merges a field that comes again.
func (r *request) unmarshal(data mem.BufferSlice) error {
	r.free()
	r.buf = data.MaterializeToBuffer(mem.DefaultBufferPool())
	var f wireField
	for b := r.buf.ReadOnlyData(); len(b) > 0; {
		var err error
		if b, err = f.next(b); err != nil {
			return err
		}
		if f.typ != protowire.BytesType {
			continue
		}
		switch f.num {
		case 1:
			if r.payload != createStream {
				r.create.Reset()
			}
			r.begin(createStream)
			err = proto.UnmarshalOptions{Merge: true}.Unmarshal(f.bytes, &r.create)
		case 2:
			r.begin(ingestRecord)
			err = r.content(f.bytes)
		case 3:
			r.begin(ingestBatch)
			err = r.content(f.bytes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin makes p the payload.
func (r *request) begin(p payload) {
	if r.payload != p {
		r.clear()
		r.payload = p
	}
}

// content takes an IngestRecordRequest or an IngestRecordBatchRequest apart, whose fields have the same numbers.
func (r *request) content(b []byte) error {
	var f wireField
	for len(b) > 0 {
		var err error
		if b, err = f.next(b); err != nil {
			return err
		}
		switch {
		case f.num == 1 && f.typ == protowire.VarintType:
			r.offset, r.hasOffset = int64(f.varint), true
		case f.num >= 2 && int(f.num) < len(recordKinds) && f.typ == protowire.BytesType:
			if kind := recordKinds[f.num]; r.kind != kind || r.payload == ingestRecord {
				r.kind, r.records = kind, r.records[:0]
			}
			if r.payload == ingestRecord {
				r.records = append(r.records, f.bytes)
			} else if err := r.batch(f.bytes); err != nil {
				return err
			}
		}
	}
	return nil
}

// batch adds the records of one of the three kinds of batches, which all have them in the field 1.
func (r *request) batch(b []byte) error {
	var f wireField
	for len(b) > 0 {
		var err error
		if b, err = f.next(b); err != nil {
			return err
		}
		if f.num == 1 && f.typ == protowire.BytesType {
			r.records = append(r.records, f.bytes)
		}
	}
	return nil
}

// wireField is one field of a protobuf message.
type wireField struct {
	num    protowire.Number
	typ    protowire.Type
	bytes  []byte // of a BytesType
	varint uint64 // of a VarintType
}

var errFieldNumber = errors.New("a field number out of range")

// next reads the first field of b, and returns what follows.
func (f *wireField) next(b []byte) ([]byte, error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	if !num.IsValid() {
		return nil, errFieldNumber
	}
	b = b[n:]
	f.num, f.typ = num, typ
	switch typ {
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(b)
	case protowire.VarintType:
		f.varint, n = protowire.ConsumeVarint(b)
	default:
		n = protowire.ConsumeFieldValue(num, typ, b)
	}
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	return b[n:], nil
}
