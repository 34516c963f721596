package zerobusfake

import (
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto" // registers the codec that this one stands on
	"google.golang.org/grpc/mem"
)

// codec is gRPC's own, but for the messages of a stream: it takes them apart itself, and hands over one that it cannot read as one without a
// payload. gRPC would end the stream itself, with INTERNAL, before what came earlier is acknowledged; and clients send the same again for
// ever (zerobus.md 5.6).
type codec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(encodingproto.Name)} }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	req, ok := v.(*request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	if req.unmarshal(data) != nil {
		req.clear()
	}
	return nil
}
