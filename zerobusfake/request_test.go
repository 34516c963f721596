package zerobusfake

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

// asProto is what the request says, as protobuf's own decoder has it.
func (r *request) asProto() *zerobuspb.EphemeralStreamRequest {
	out := &zerobuspb.EphemeralStreamRequest{}
	var offset *int64
	if r.hasOffset {
		offset = proto.Int64(r.offset)
	}
	texts := make([]string, len(r.records))
	for i, b := range r.records {
		texts[i] = string(b)
	}
	switch r.payload {
	case createStream:
		out.Payload = &zerobuspb.EphemeralStreamRequest_CreateStream{CreateStream: &r.create}
	case ingestRecord:
		in := &zerobuspb.IngestRecordRequest{OffsetId: offset}
		switch r.kind {
		case zerobuspb.RecordType_JSON:
			in.Record = &zerobuspb.IngestRecordRequest_JsonRecord{JsonRecord: texts[0]}
		case zerobuspb.RecordType_PROTO:
			in.Record = &zerobuspb.IngestRecordRequest_ProtoEncodedRecord{ProtoEncodedRecord: r.records[0]}
		case zerobuspb.RecordType_AVRO:
			in.Record = &zerobuspb.IngestRecordRequest_AvroEncodedRecord{AvroEncodedRecord: r.records[0]}
		}
		out.Payload = &zerobuspb.EphemeralStreamRequest_IngestRecord{IngestRecord: in}
	case ingestBatch:
		in := &zerobuspb.IngestRecordBatchRequest{OffsetId: offset}
		switch r.kind {
		case zerobuspb.RecordType_JSON:
			in.Batch = &zerobuspb.IngestRecordBatchRequest_JsonBatch{JsonBatch: &zerobuspb.JsonRecordBatch{Records: texts}}
		case zerobuspb.RecordType_PROTO:
			in.Batch = &zerobuspb.IngestRecordBatchRequest_ProtoEncodedBatch{ProtoEncodedBatch: &zerobuspb.ProtoEncodedRecordBatch{Records: r.records}}
		case zerobuspb.RecordType_AVRO:
			in.Batch = &zerobuspb.IngestRecordBatchRequest_AvroBatch{AvroBatch: &zerobuspb.AvroRecordBatch{Records: r.records}}
		}
		out.Payload = &zerobuspb.EphemeralStreamRequest_IngestRecordBatch{IngestRecordBatch: in}
	}
	return out
}

// dropUnknown removes unknown fields at every level: a request does not keep them.
func dropUnknown(m *zerobuspb.EphemeralStreamRequest) {
	m.ProtoReflect().SetUnknown(nil)
	if c := m.GetCreateStream(); c != nil {
		c.ProtoReflect().SetUnknown(nil)
	}
	if r := m.GetIngestRecord(); r != nil {
		r.ProtoReflect().SetUnknown(nil)
	}
	if b := m.GetIngestRecordBatch(); b != nil {
		b.ProtoReflect().SetUnknown(nil)
		for _, kind := range []proto.Message{b.GetJsonBatch(), b.GetProtoEncodedBatch(), b.GetAvroBatch()} {
			if kind.ProtoReflect().IsValid() {
				kind.ProtoReflect().SetUnknown(nil)
			}
		}
	}
}

// FuzzRequest holds the hand-written decoder to protobuf's own: the same messages, the same refusals.
func FuzzRequest(f *testing.F) {
	requests := []*zerobuspb.EphemeralStreamRequest{
		createRequest("a.b.c", zerobuspb.RecordType_JSON.Enum(), []byte("d")), jsonRecord(7, `{"a":1}`), jsonRecord(-1, ""), protoRecord(1<<40, []byte{8, 1}),
		jsonBatch(3, "x", "", "yy"), jsonBatch(4),
		{},
		{Payload: &zerobuspb.EphemeralStreamRequest_IngestRecord{IngestRecord: &zerobuspb.IngestRecordRequest{}}},
		{Payload: &zerobuspb.EphemeralStreamRequest_IngestRecordBatch{IngestRecordBatch: &zerobuspb.IngestRecordBatchRequest{
			Batch: &zerobuspb.IngestRecordBatchRequest_AvroBatch{AvroBatch: &zerobuspb.AvroRecordBatch{Records: [][]byte{{1}}}},
		}}},
	}
	var all []byte
	for _, r := range requests {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, b...)
		f.Add(b)
		f.Add(append(b, b...))                                  // merged
		f.Add(append(b, 0x2a, 1, 'u', 0x30, 1))                 // unknown fields
		f.Add(append(b, 0x12, 0x04, 0x0d, 1, 2, 3))             // cut
		f.Add(append(b, 0x12, 0x05, 0x0d, 1, 2, 3, 4))          // another wire type
		f.Add(append(b, 0x1a, 0x04, 0x12, 0x02, 0x08, 0x01))    // a record of a batch that is a number
		f.Add(append(b, 0x1a, 0x05, 0x1a, 0x03, 0x0a, 0x01, 1)) // another kind of batch
		f.Add(append(b, 0x2b, 0x08, 1, 0x2c))                   // a group
		f.Add(append(b, 0x03))
	}
	f.Add([]byte("\x89\x89\x89\x89000000000")) // a field number beyond the greatest
	f.Add(all)
	f.Fuzz(func(t *testing.T, b []byte) {
		want := &zerobuspb.EphemeralStreamRequest{}
		wantErr := proto.Unmarshal(b, want)
		got := &request{payload: ingestRecord, hasOffset: true, offset: 99, kind: zerobuspb.RecordType_PROTO, records: [][]byte{[]byte("of the last message")}}
		half := len(b) / 2 // a message may come in several pieces
		err := got.unmarshal(mem.BufferSlice{mem.SliceBuffer(bytes.Clone(b[:half])), mem.SliceBuffer(bytes.Clone(b[half:]))})
		defer got.free()
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%x: %v, protobuf says %v", b, err, wantErr)
		}
		if err != nil {
			return
		}
		dropUnknown(want)
		have := got.asProto()
		dropUnknown(have)
		if !proto.Equal(have, want) {
			t.Fatalf("%x:\n got %v\nwant %v", b, have, want)
		}
	})
}
