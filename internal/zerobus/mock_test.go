package zerobus

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call is one RPC as a script sees it.
type call struct {
	mock *mock
	rpc  zerobuspb.Zerobus_EphemeralStreamServer
	n    int // the how-manieth RPC, from 0
	md   metadata.MD
}

// mock is a Zerobus server whose n-th RPC runs script[n] (the last one again and again).
type mock struct {
	zerobuspb.UnimplementedZerobusServer
	script []func(*call) error
	lis    *bufconn.Listener

	mu    sync.Mutex
	opens []time.Time
	rows  []string // records in the order received, all RPCs
	mds   []metadata.MD
}

func (m *mock) EphemeralStream(rpc zerobuspb.Zerobus_EphemeralStreamServer) error {
	md, _ := metadata.FromIncomingContext(rpc.Context())
	m.mu.Lock()
	n := len(m.opens)
	m.opens = append(m.opens, time.Now())
	m.mds = append(m.mds, md)
	m.mu.Unlock()
	return m.script[min(n, len(m.script)-1)](&call{mock: m, rpc: rpc, n: n, md: md})
}

// startMock serves until the test's bubble ends; stop must be called before.
func startMock(script ...func(*call) error) (*mock, func()) {
	m := &mock{script: script, lis: bufconn.Listen(1 << 20)}
	srv := grpc.NewServer(grpc.MaxRecvMsgSize(16 << 20))
	zerobuspb.RegisterZerobusServer(srv, m)
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(m.lis) }()
	return m, func() { srv.Stop(); <-served }
}

func (m *mock) config() Config {
	return Config{
		Endpoint: "http://zerobus.test", Token: "secret", Table: "c.s.t", RecordType: JSON,
		Dial: func(ctx context.Context, _ string) (net.Conn, error) { return m.lis.DialContext(ctx) },
	}
}

func (m *mock) received() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.rows...)
}

func (m *mock) opened() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]time.Time(nil), m.opens...)
}

// accept answers the create message.
func (c *call) accept() error {
	req, err := c.rpc.Recv()
	if err != nil {
		return err
	}
	if req.GetCreateStream() == nil {
		return status.Error(codes.InvalidArgument, "no create message")
	}
	return c.rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_CreateStreamResponse{
		CreateStreamResponse: &zerobuspb.CreateIngestStreamResponse{StreamId: proto.String("id")},
	}})
}

// take receives n messages and checks that their offsets are contiguous from "from"; io.EOF at half-close.
func (c *call) take(from, n int64) error {
	for i := range n {
		req, err := c.rpc.Recv()
		if err != nil {
			return err
		}
		offset, rows := int64(-1), []string(nil)
		if r := req.GetIngestRecord(); r != nil {
			offset, rows = r.GetOffsetId(), []string{r.GetJsonRecord() + string(r.GetProtoEncodedRecord())}
		} else if b := req.GetIngestRecordBatch(); b != nil {
			offset, rows = b.GetOffsetId(), b.GetJsonBatch().GetRecords()
			for _, r := range b.GetProtoEncodedBatch().GetRecords() {
				rows = append(rows, string(r))
			}
		}
		if offset != from+i {
			return status.Errorf(codes.InvalidArgument, "offset %d, want %d", offset, from+i)
		}
		c.mock.mu.Lock()
		c.mock.rows = append(c.mock.rows, rows...)
		c.mock.mu.Unlock()
	}
	return nil
}

func (c *call) ack(upTo int64) error {
	return c.rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_IngestRecordResponse{
		IngestRecordResponse: &zerobuspb.IngestRecordResponse{DurabilityAckUpToOffset: &upTo},
	}})
}

func (c *call) closeSignal(d time.Duration) error {
	sig := &zerobuspb.CloseStreamSignal{}
	if d > 0 {
		sig.Duration = durationpb.New(d)
	}
	return c.rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_CloseStreamSignal{CloseStreamSignal: sig}})
}

// ackAll acknowledges everything from wire offset "from" on, until the client half-closes.
func (c *call) ackAll(from int64) error {
	for i := from; ; i++ {
		err := c.take(i, 1)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.ack(i); err != nil {
			return err
		}
	}
}

// hang waits for the client to go away.
func (c *call) hang() error {
	<-c.rpc.Context().Done()
	return c.rpc.Context().Err()
}

// good is a server without faults.
func good(c *call) error {
	if err := c.accept(); err != nil {
		return err
	}
	return c.ackAll(0)
}

// do accepts and runs steps in order.
func do(steps ...func(*call) error) func(*call) error {
	return func(c *call) error {
		if err := c.accept(); err != nil {
			return err
		}
		for _, step := range steps {
			if err := step(c); err != nil {
				return err
			}
		}
		return nil
	}
}

func take(from, n int64) func(*call) error { return func(c *call) error { return c.take(from, n) } }
func ack(n int64) func(*call) error        { return func(c *call) error { return c.ack(n) } }
func ackAll(from int64) func(*call) error  { return func(c *call) error { return c.ackAll(from) } }
func hang(c *call) error                   { return c.hang() }
func fail(code codes.Code, msg string) func(*call) error {
	return func(*call) error { return status.Error(code, msg) }
}

func signal(d time.Duration) func(*call) error {
	return func(c *call) error { return c.closeSignal(d) }
}
