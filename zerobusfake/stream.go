package zerobusfake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

// ephemeral is one EphemeralStream: a receiver decodes messages into rows, the table's committer takes them, and the
// handler sends acknowledgements.
type ephemeral struct {
	id     string
	table  string
	rpc    grpc.BidiStreamingServer[zerobuspb.EphemeralStreamRequest, zerobuspb.EphemeralStreamResponse]
	c      *committer
	kind   zerobuspb.RecordType
	json   jsonDecoder
	proto  protoDecoder
	wake   chan struct{} // capacity 1: something to tell the client
	schema string        // the table's, when the stream was made
	meta   string        // the table's id

	mu       sync.Mutex
	rows     *rows // what waits for the committer
	spare    *rows // handed back by it
	bytes    int   // of rows, as limits counts them
	accepted int64 // the last offset whose rows are in
	acked    int64 // the last offset whose rows are committed
	ended    bool  // nothing more is accepted
	err      error // why; nil for a half-close
	failed   error // the committer could not commit
}

// EphemeralStream serves one stream.
func (s *Server) EphemeralStream(rpc grpc.BidiStreamingServer[zerobuspb.EphemeralStreamRequest, zerobuspb.EphemeralStreamResponse]) error {
	if !s.enter() {
		return errShuttingDown()
	}
	defer s.streams.Done()
	// SDKs wait for the response headers before they send anything (zerobus.md 5.1).
	if err := rpc.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	st, err := s.create(rpc)
	if err != nil {
		return err
	}
	err = rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_CreateStreamResponse{
		CreateStreamResponse: &zerobuspb.CreateIngestStreamResponse{StreamId: &st.id},
	}})
	if err != nil {
		return err
	}
	s.cfg.Logger.Debug("stream opened", "stream", st.id, "table", st.table, "record_type", st.kind)
	err = st.serve(s)
	st.mu.Lock() // the committer may be storing what a client that went away handed over
	acked := st.acked
	st.mu.Unlock()
	s.cfg.Logger.Debug("stream ended", "stream", st.id, "table", st.table, "acknowledged", acked, "error", err)
	return err
}

// partName is one part of a table's name: names with other characters are no table's.
var partName = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// create reads the first message and sets the stream up.
func (s *Server) create(rpc grpc.BidiStreamingServer[zerobuspb.EphemeralStreamRequest, zerobuspb.EphemeralStreamResponse]) (*ephemeral, error) {
	first := new(request)
	got := make(chan error, 1)
	go func() { got <- rpc.RecvMsg(first) }() // ends with the RPC at the latest
	select {
	case err := <-got:
		if errors.Is(err, io.EOF) {
			return nil, invalid("the stream ended before create_stream")
		}
		if err != nil {
			return nil, err
		}
	case <-s.closing:
		return nil, errShuttingDown()
	}
	defer first.free()
	if first.payload != createStream {
		return nil, invalid("the first message of a stream must be create_stream")
	}
	create := &first.create
	name := create.GetTableName()
	parts := strings.Split(name, ".")
	if len(parts) != 3 {
		return nil, invalid("table name %q must have exactly 3 parts (catalog.schema.table)", name)
	}
	for _, p := range parts {
		if !partName.MatchString(p) {
			return nil, invalid("table name %q: use letters, digits and underscores", name)
		}
	}
	kind := zerobuspb.RecordType_PROTO // of clients from before the field
	if create.RecordType != nil {
		kind = create.GetRecordType()
	}
	switch kind {
	case zerobuspb.RecordType_PROTO, zerobuspb.RecordType_JSON:
	case zerobuspb.RecordType_AVRO:
		return nil, unimplemented("record type AVRO")
	default:
		return nil, invalid("record type %s is not supported: use PROTO or JSON", kind)
	}
	t, err := s.cfg.Tables.Table(rpc.Context(), name)
	if err != nil {
		return nil, tableStatus(name, err)
	}
	snap, err := t.Snapshot(rpc.Context())
	if err != nil {
		return nil, tableStatus(name, err)
	}
	st := &ephemeral{
		id: uuid.NewString(), table: name, rpc: rpc, kind: kind, wake: make(chan struct{}, 1),
		schema: snap.Metadata().SchemaString, meta: snap.Metadata().ID, accepted: -1, acked: -1,
	}
	if st.rows, err = newRows(snap.Schema()); err != nil {
		return nil, status.Errorf(codes.Unimplemented, "table %s: %v", name, err)
	}
	if st.spare, err = newRows(snap.Schema()); err != nil {
		return nil, status.Errorf(codes.Unimplemented, "table %s: %v", name, err)
	}
	if kind == zerobuspb.RecordType_PROTO {
		if st.proto.plan, err = planProto(create.GetDescriptorProto(), st.rows.root); err != nil {
			return nil, err
		}
	}
	if st.c, err = s.committer(name, t); err != nil {
		return nil, err
	}
	st.rows, st.spare = st.c.reuse(st.schema, st.rows), st.c.reuse(st.schema, st.spare)
	now, err := s.cfg.Tables.Table(rpc.Context(), name)
	if errors.Is(err, deltalog.ErrNotTable) || err == nil && now != t {
		s.Drop(t) // it was dropped while this stream was being made
		return nil, notFound(name)
	}
	if err != nil {
		return nil, tableStatus(name, err)
	}
	return st, nil
}

// serve runs the stream to its end.
func (st *ephemeral) serve(s *Server) error {
	go st.receive() // ends when the RPC does
	closing, deadline := s.closing, s.deadline
	told := int64(-1)
	for {
		st.mu.Lock()
		acked, failed := st.acked, st.failed
		done := st.ended && acked == st.accepted
		err := st.err
		st.mu.Unlock()
		if acked > told {
			told = acked
			if e := st.rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_IngestRecordResponse{
				IngestRecordResponse: &zerobuspb.IngestRecordResponse{DurabilityAckUpToOffset: &told},
			}}); e != nil {
				return e
			}
		}
		if failed != nil {
			return failed
		}
		if done {
			st.c.keep(st)
			return err
		}
		select {
		case <-st.wake:
		case <-closing:
			closing = nil
			if e := st.rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_CloseStreamSignal{
				CloseStreamSignal: &zerobuspb.CloseStreamSignal{Duration: durationpb.New(s.grace)},
			}}); e != nil {
				return e
			}
		case <-deadline:
			// What was accepted is committed and acknowledged before the status: a client that hears of the end may look for its rows.
			deadline = nil
			st.end(coded(codes.Unavailable, codeStreamTimeout, 0, "Stream timeout reached. Closing the stream (ID: %s)", st.id))
		case <-st.rpc.Context().Done():
			return status.FromContextError(st.rpc.Context().Err()).Err()
		}
	}
}

// receive decodes messages until the client stops, a message is bad, or the RPC ends. What was accepted is committed all the same.
func (st *ephemeral) receive() {
	var err error
	var req request
	for err == nil {
		if err = st.rpc.RecvMsg(&req); err == nil {
			err = st.message(&req)
		}
		req.free()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	st.end(err)
}

// end makes the stream accept nothing more and end with err, nil for OK, once what it accepted is committed. The first end counts.
func (st *ephemeral) end(err error) {
	st.mu.Lock()
	if !st.ended {
		st.ended, st.err = true, err
	}
	st.mu.Unlock()
	notify(st.wake)
}

// errEnded stops the receiver of a stream that has ended from this side.
var errEnded = errors.New("stream has ended")

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// message takes one message: all of its records, or none.
func (st *ephemeral) message(req *request) error {
	if err := st.waitForRoom(st.rpc.Context()); err != nil {
		return err
	}
	st.mu.Lock()
	if st.ended {
		st.mu.Unlock()
		return errEnded
	}
	before := st.rows.root.n
	size, err := st.decode(req)
	if err != nil {
		st.rows.root.truncate(before)
		st.mu.Unlock()
		var bad *recordError
		if errors.As(err, &bad) {
			return bad.status()
		}
		return err
	}
	size += (st.rows.root.n - before) * st.rows.width
	st.accepted++
	st.bytes += size
	st.c.pending.Add(int64(size))
	st.mu.Unlock()
	st.c.offer(st)
	return nil
}

// waitForRoom holds the client back while too much is waiting, on this stream or on all streams of the table.
func (st *ephemeral) waitForRoom(ctx context.Context) error {
	for {
		freed := st.c.fullFor(st)
		if freed == nil {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// decode appends the message's records to the rows, and returns their size.
func (st *ephemeral) decode(req *request) (size int, err error) {
	next := st.accepted + 1
	switch {
	case req.payload == createStream:
		return 0, invalid("create_stream may only be the first message of a stream")
	case req.payload == noPayload:
		return 0, invalid("a message without a payload, or no EphemeralStreamRequest")
	case !req.hasOffset:
		return 0, coded(codes.InvalidArgument, codeNonIncrementalOffset, 0, "Offset is missing, expected %d", next)
	case req.offset != next:
		return 0, coded(codes.InvalidArgument, codeNonIncrementalOffset, 0, "Non-incremental offset: expected %d, actual %d", next, req.offset)
	case req.kind == zerobuspb.RecordType_RECORD_TYPE_UNSPECIFIED && req.payload == ingestRecord:
		return 0, invalid("message %d has no record", next)
	case req.kind == zerobuspb.RecordType_RECORD_TYPE_UNSPECIFIED:
		return 0, invalid("message %d has no batch", next)
	case req.kind != st.kind:
		return 0, invalid("a %s record on a stream of record type %s", req.kind, st.kind)
	}
	for _, r := range req.records {
		size += len(r)
	}
	if size > maxRecord {
		return 0, invalid("a message of %d bytes of records exceeds the limit of %d", size, maxRecord)
	}
	for i, r := range req.records {
		if st.kind == zerobuspb.RecordType_JSON {
			err = st.json.decode(unsafe.String(unsafe.SliceData(r), len(r)), st.rows) // copied into columns before req is freed
		} else {
			err = st.proto.decode(r, st.rows)
		}
		if err == nil {
			err = st.rows.measure()
		}
		if err != nil {
			return 0, inBatch(err, i, len(req.records))
		}
	}
	return size, nil
}

// inBatch says which record of a batch is bad; of a single record there is nothing to add.
func inBatch(err error, i, n int) error {
	var bad *recordError
	if n > 1 && errors.As(err, &bad) {
		return &recordError{fmt.Sprintf("%s (record %d of the batch)", bad.text, i)}
	}
	return err
}

// pace is how long a stream that could not commit waits before it fails: clients come back within milliseconds, for ever
// (zerobus.md 5.5).
const pace = 200 * time.Millisecond
