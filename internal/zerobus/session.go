package zerobus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/deltabus/deltabus-local/internal/databricks"
	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

// session is one RPC on a connection of its own, set up and accepted.
type session struct {
	conn   *grpc.ClientConn
	rpc    grpc.BidiStreamingClient[zerobuspb.EphemeralStreamRequest, zerobuspb.EphemeralStreamResponse]
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// dialer opens sessions.
type dialer struct {
	cfg        Config
	endpoint   endpoint
	creds      credentials.TransportCredentials
	descriptor []byte
}

func newDialer(cfg Config) (*dialer, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	ep, err := parseEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	d := &dialer{cfg: cfg, endpoint: ep, creds: insecure.NewCredentials()}
	if ep.tls {
		conf := cfg.TLS
		if conf == nil {
			if conf, err = databricks.SystemTLS(); err != nil {
				return nil, err
			}
		}
		d.creds = credentials.NewTLS(conf)
	}
	if cfg.Descriptor != nil {
		if d.descriptor, err = proto.Marshal(cfg.Descriptor); err != nil {
			return nil, fmt.Errorf("descriptor: %w", err)
		}
	}
	return d, nil
}

// open sets one session up. life bounds the whole session, ctx only the setup.
func (d *dialer) open(ctx, life context.Context) (*session, error) {
	s, err := d.attempt(ctx, life)
	var e *Error
	if d.cfg.OAuth != nil && errors.As(err, &e) && e.Op == "open" && e.Cause != nil &&
		(e.Code == codes.Unauthenticated || e.Code == codes.PermissionDenied) && !isTokenError(e) {
		// The token may have been minted before the server's keys or the grants changed: once more with a new one.
		d.cfg.OAuth.ForgetTableToken(d.endpoint.workspaceID, d.cfg.Table)
		return d.attempt(ctx, life)
	}
	return s, err
}

func (d *dialer) attempt(ctx, life context.Context) (*session, error) {
	sctx, cancel := context.WithCancelCause(life)
	timer := time.AfterFunc(d.cfg.RecoveryTimeout, func() {
		cancel(&Error{Op: "open", Code: codes.DeadlineExceeded, Message: fmt.Sprintf("stream creation timed out after %s", d.cfg.RecoveryTimeout)})
	})
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
	s := &session{ctx: sctx, cancel: cancel}
	if err := d.setUp(s); err != nil {
		err = s.explain("open", err)
		s.close()
		return nil, err
	}
	return s, nil
}

func (d *dialer) setUp(s *session) error {
	md := metadata.Pairs("x-databricks-zerobus-table-name", d.cfg.Table)
	token := d.cfg.Token
	if d.cfg.OAuth != nil {
		var err error
		if token, err = d.cfg.OAuth.TableToken(s.ctx, d.endpoint.workspaceID, d.cfg.Table); err != nil {
			return err
		}
	}
	if token != "" {
		md.Set("authorization", "Bearer "+token)
	}
	agent := d.cfg.UserAgent
	if agent == "" {
		agent = "deltabus"
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(d.creds), grpc.WithUserAgent(agent),
		grpc.WithWriteBufferSize(256 << 10), grpc.WithDisableServiceConfig(),
	}
	if dial := d.cfg.Dial; dial != nil {
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return dial(ctx, addr) }))
	}
	var err error
	// Passthrough leaves names to the dialer, which tries every address of localhost.
	if s.conn, err = grpc.NewClient("passthrough:///"+d.endpoint.addr, opts...); err != nil {
		return err
	}
	if s.rpc, err = zerobuspb.NewZerobusClient(s.conn).EphemeralStream(metadata.NewOutgoingContext(s.ctx, md)); err != nil {
		return err
	}
	create := &zerobuspb.CreateIngestStreamRequest{TableName: proto.String(d.cfg.Table), RecordType: zerobuspb.RecordType_JSON.Enum()}
	if d.cfg.RecordType == Proto {
		create.RecordType, create.DescriptorProto = zerobuspb.RecordType_PROTO.Enum(), d.descriptor
	}
	err = s.rpc.Send(&zerobuspb.EphemeralStreamRequest{Payload: &zerobuspb.EphemeralStreamRequest_CreateStream{CreateStream: create}})
	if err != nil && err != io.EOF { // at EOF, Recv has the reason
		return err
	}
	resp, err := s.rpc.Recv()
	if err == io.EOF {
		return &Error{Op: "open", Code: codes.OK, Message: "the server ended the stream before it answered"}
	}
	if err != nil {
		return err
	}
	if created := resp.GetCreateStreamResponse(); created == nil || created.StreamId == nil {
		return &Error{Op: "open", Code: codes.Internal, Message: "the server's first answer is not a stream id", Protocol: true}
	}
	return nil
}

// explain makes an *Error of what a call on the session returned: the reason it was cancelled for, if it was.
func (s *session) explain(op string, err error) *Error {
	if s.ctx.Err() != nil {
		if cause := context.Cause(s.ctx); cause != nil && cause != context.Canceled {
			err = cause
		}
	}
	return asError(op, err)
}

func (s *session) close() {
	s.cancel(context.Canceled)
	if s.conn != nil {
		_ = s.conn.Close() // nothing is left to say
	}
}

// sendItem sends one Ingest under a wire offset.
func (s *session) sendItem(it *item, kind RecordType, wire int64) error {
	var req zerobuspb.EphemeralStreamRequest
	switch {
	case it.batch && kind == Proto:
		req.Payload = &zerobuspb.EphemeralStreamRequest_IngestRecordBatch{IngestRecordBatch: &zerobuspb.IngestRecordBatchRequest{
			OffsetId: &wire,
			Batch:    &zerobuspb.IngestRecordBatchRequest_ProtoEncodedBatch{ProtoEncodedBatch: &zerobuspb.ProtoEncodedRecordBatch{Records: it.records}},
		}}
	case it.batch:
		texts := make([]string, len(it.records))
		for i, r := range it.records {
			texts[i] = string(r)
		}
		req.Payload = &zerobuspb.EphemeralStreamRequest_IngestRecordBatch{IngestRecordBatch: &zerobuspb.IngestRecordBatchRequest{
			OffsetId: &wire,
			Batch:    &zerobuspb.IngestRecordBatchRequest_JsonBatch{JsonBatch: &zerobuspb.JsonRecordBatch{Records: texts}},
		}}
	case kind == Proto:
		req.Payload = &zerobuspb.EphemeralStreamRequest_IngestRecord{IngestRecord: &zerobuspb.IngestRecordRequest{
			OffsetId: &wire, Record: &zerobuspb.IngestRecordRequest_ProtoEncodedRecord{ProtoEncodedRecord: it.records[0]},
		}}
	default:
		req.Payload = &zerobuspb.EphemeralStreamRequest_IngestRecord{IngestRecord: &zerobuspb.IngestRecordRequest{
			OffsetId: &wire, Record: &zerobuspb.IngestRecordRequest_JsonRecord{JsonRecord: string(it.records[0])},
		}}
	}
	return s.rpc.Send(&req)
}
