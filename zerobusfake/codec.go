package zerobusfake

import (
	"google.golang.org/grpc/encoding"
	encodingproto "google.golang.org/grpc/encoding/proto" // registers the codec that this one stands on
	"google.golang.org/grpc/mem"

	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

// codec is gRPC's own, but hands over a stream's message that it cannot read as one without a payload. gRPC would end the stream itself, with
// INTERNAL, before what came earlier is acknowledged; and clients send the same again for ever (zerobus.md 5.6).
type codec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(encodingproto.Name)} }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	if req, ok := v.(*zerobuspb.EphemeralStreamRequest); ok && err != nil {
		req.Reset()
		return nil
	}
	return err
}
