package zerobusfake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a server over one table.
type fixture struct {
	t      *testing.T
	table  *deltalog.Table
	server *Server
	conn   *grpc.ClientConn
}

// Table makes the fixture a Tables.
func (f *fixture) Table(_ context.Context, name string) (*deltalog.Table, error) {
	if name != "main.default.t" {
		return nil, fmt.Errorf("table %s: %w", name, deltalog.ErrNotTable)
	}
	return f.table, nil
}

func columnsOf(t testing.TB, ddl ...string) deltalog.Struct {
	t.Helper()
	var s deltalog.Struct
	for _, d := range ddl {
		f, err := deltalog.ParseColumn(d)
		if err != nil {
			t.Fatal(err)
		}
		s.Fields = append(s.Fields, f)
	}
	return s
}

func newFixture(t *testing.T, st store.Store, ddl ...string) *fixture {
	t.Helper()
	if len(ddl) == 0 {
		ddl = []string{"id INT NOT NULL", "name STRING"}
	}
	table, err := deltalog.Create(context.Background(), st, deltalog.TableSpec{Schema: columnsOf(t, ddl...)}, deltalog.Options{CheckpointInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, table: table}
	f.server = New(Config{Tables: f})
	g := grpc.NewServer(ServerOptions()...)
	f.server.Register(g)
	l := bufconn.Listen(1 << 20)
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(l) })
	f.conn, err = grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.server.Shutdown(context.Background(), 0); err != nil {
			t.Error(err)
		}
		if err := f.conn.Close(); err != nil {
			t.Error(err)
		}
		g.Stop()
		serving.Wait()
	})
	return f
}

// client is one raw stream.
type client struct {
	t   *testing.T
	rpc grpc.BidiStreamingClient[zerobuspb.EphemeralStreamRequest, zerobuspb.EphemeralStreamResponse]
}

func (f *fixture) open(ctx context.Context) *client {
	f.t.Helper()
	rpc, err := zerobuspb.NewZerobusClient(f.conn).EphemeralStream(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	return &client{f.t, rpc}
}

func createRequest(table string, kind *zerobuspb.RecordType, descriptor []byte) *zerobuspb.EphemeralStreamRequest {
	return &zerobuspb.EphemeralStreamRequest{Payload: &zerobuspb.EphemeralStreamRequest_CreateStream{
		CreateStream: &zerobuspb.CreateIngestStreamRequest{TableName: &table, RecordType: kind, DescriptorProto: descriptor},
	}}
}

// json opens a stream for JSON records.
func (f *fixture) json() *client {
	f.t.Helper()
	c := f.open(f.t.Context())
	c.send(createRequest("main.default.t", zerobuspb.RecordType_JSON.Enum(), nil))
	c.created()
	return c
}

func (c *client) created() {
	c.t.Helper()
	r, err := c.rpc.Recv()
	if err != nil || r.GetCreateStreamResponse().GetStreamId() == "" {
		c.t.Fatalf("create stream: %v, %v", r, err)
	}
}

func (c *client) send(r *zerobuspb.EphemeralStreamRequest) {
	c.t.Helper()
	if err := c.rpc.Send(r); err != nil && !errors.Is(err, io.EOF) {
		c.t.Fatal(err)
	}
}

func jsonRecord(offset int64, record string) *zerobuspb.EphemeralStreamRequest {
	return &zerobuspb.EphemeralStreamRequest{Payload: &zerobuspb.EphemeralStreamRequest_IngestRecord{
		IngestRecord: &zerobuspb.IngestRecordRequest{OffsetId: &offset, Record: &zerobuspb.IngestRecordRequest_JsonRecord{JsonRecord: record}},
	}}
}

func jsonBatch(offset int64, records ...string) *zerobuspb.EphemeralStreamRequest {
	return &zerobuspb.EphemeralStreamRequest{Payload: &zerobuspb.EphemeralStreamRequest_IngestRecordBatch{
		IngestRecordBatch: &zerobuspb.IngestRecordBatchRequest{OffsetId: &offset, Batch: &zerobuspb.IngestRecordBatchRequest_JsonBatch{JsonBatch: &zerobuspb.JsonRecordBatch{Records: records}}},
	}}
}

func protoRecord(offset int64, record []byte) *zerobuspb.EphemeralStreamRequest {
	return &zerobuspb.EphemeralStreamRequest{Payload: &zerobuspb.EphemeralStreamRequest_IngestRecord{
		IngestRecord: &zerobuspb.IngestRecordRequest{OffsetId: &offset, Record: &zerobuspb.IngestRecordRequest_ProtoEncodedRecord{ProtoEncodedRecord: record}},
	}}
}

// drain reads until the stream ends: the last acknowledged offset, and how it ended.
func (c *client) drain() (acked int64, err error) {
	acked = -1
	for {
		r, err := c.rpc.Recv()
		if errors.Is(err, io.EOF) {
			return acked, nil
		}
		if err != nil {
			return acked, err
		}
		if a := r.GetIngestRecordResponse(); a != nil {
			if a.GetDurabilityAckUpToOffset() <= acked {
				c.t.Errorf("acknowledgement %d after %d", a.GetDurabilityAckUpToOffset(), acked)
			}
			acked = a.GetDurabilityAckUpToOffset()
		}
	}
}

// until reads until offset is acknowledged.
func (c *client) until(offset int64) {
	c.t.Helper()
	for {
		r, err := c.rpc.Recv()
		if err != nil {
			c.t.Fatalf("waiting for offset %d: %v", offset, err)
		}
		if a := r.GetIngestRecordResponse(); a != nil && a.GetDurabilityAckUpToOffset() >= offset {
			return
		}
	}
}

func (f *fixture) rows() []string {
	f.t.Helper()
	snap, err := f.table.Snapshot(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	var out []string
	for rec, err := range f.table.Scan(context.Background(), snap, nil, nil) {
		if err != nil {
			f.t.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			row, err := deltalog.AppendRowJSON(nil, rec, i)
			if err != nil {
				f.t.Fatal(err)
			}
			out = append(out, string(row))
		}
	}
	return out
}

func descriptor(t testing.TB, fields ...*descriptorpb.FieldDescriptorProto) []byte {
	t.Helper()
	data, err := proto.Marshal(&descriptorpb.DescriptorProto{Name: proto.String("M"), Field: fields})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func field(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
	return &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number, Type: &kind, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()}
}

const (
	int32Type  = descriptorpb.FieldDescriptorProto_TYPE_INT32
	stringType = descriptorpb.FieldDescriptorProto_TYPE_STRING
)

func TestHeadersComeBeforeTheFirstMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store.NewMemory())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c := f.open(ctx)
	if _, err := c.rpc.Header(); err != nil { // nothing was sent: an SDK waits for this
		t.Fatal(err)
	}
}

// TestBadRecords: what comes before a bad record on its stream is committed and acknowledged, then the stream fails with the exact answer;
// another stream goes on.
func TestBadRecords(t *testing.T) {
	t.Parallel()
	const e = ". Error Code: 4044, Error State: 3."
	deep := strings.Repeat(`[`, 200)
	tests := []struct{ name, record, want string }{
		{"unknown field", `{"id":1,"nope":2}`, "Record decoder/encoder error: unrecognized field name 'nope' at line 1 column 9" + e},
		{"missing not null", `{"name":"x"}`, "Record decoder/encoder error: missing required field 'id'" + e},
		{"null for not null", `{"id":null}`, "Record decoder/encoder error: null for required field 'id' at line 1 column 7" + e},
		{"text for a number", `{"id":"2020-01-01"}`, "Record decoder/encoder error: invalid digit found in string at line 1 column 7" + e},
		{"number for a text", `{"id":1,"name":5}`, "Record decoder/encoder error: expected a string for field 'name' at line 1 column 16" + e},
		{"out of range", `{"id":2147483648}`, "Record decoder/encoder error: number out of range for int field 'id' at line 1 column 7" + e},
		{"beyond 64 bits", `{"id":99999999999999999999}`, "Record decoder/encoder error: invalid digit found in string at line 1 column 7" + e},
		{"fraction", `{"id":1.5}`, "Record decoder/encoder error: invalid digit found in string at line 1 column 7" + e},
		{"bad UTF-8", "{\"id\":1,\"name\":\"a\xffb\"}", "Record decoder/encoder error: invalid UTF-8 at line 1 column 16" + e},
		{"lone surrogate", `{"id":1,"name":"\ud800"}`, "Record decoder/encoder error: lone surrogate in a string at line 1 column 17" + e},
		{"twice", `{"id":1,"id":2}`, "Record decoder/encoder error: duplicate field 'id' at line 1 column 9" + e},
		{"array", `[1,2]`, "Record decoder/encoder error: expected a JSON object at line 1 column 1" + e},
		{"null", `null`, "Record decoder/encoder error: expected a JSON object at line 1 column 1" + e},
		{"nothing", ``, "Record decoder/encoder error: expected a JSON object at line 1 column 1" + e},
		{"cut off", `{"id":1`, "Record decoder/encoder error: expected `,` or `}` at line 1 column 8" + e},
		{"second line", "{\"id\":1,\n \"nope\":2}", "Record decoder/encoder error: unrecognized field name 'nope' at line 2 column 2" + e},
		{"deep", `{"id":` + deep, "Record decoder/encoder error: invalid digit found in string at line 1 column 7" + e},
		{"trailing", `{"id":1} x`, "Record decoder/encoder error: trailing characters at line 1 column 10" + e},
		{"long name", `{"id":1,"` + strings.Repeat("é", 1<<20) + `":1}`, "Record decoder/encoder error: unrecognized field name '" + strings.Repeat("é", maxQuoted/2) + "…' at line 1 column 9" + e},
		{"far too large", strings.Repeat("x", 65<<20), "a message of 68157440 bytes of records exceeds the limit of 10485760"},
		{"too large", `{"id":1,"name":"` + strings.Repeat("x", 11<<20) + `"}`, "a message of 11534354 bytes of records exceeds the limit of 10485760"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, store.NewMemory())
			other, c := f.json(), f.json()
			c.send(jsonRecord(0, `{"id":0}`))
			c.send(jsonBatch(1, `{"id":1}`, `{"id":2}`))
			c.send(jsonRecord(2, tt.record))
			acked, err := c.drain()
			if st := status.Convert(err); st.Code() != codes.InvalidArgument || st.Message() != tt.want {
				t.Errorf("got %s %q, want %q", st.Code(), st.Message(), tt.want)
			}
			if acked != 1 {
				t.Errorf("acknowledged up to %d", acked)
			}
			other.send(jsonRecord(0, `{"id":7}`))
			other.until(0)
			if rows := f.rows(); len(rows) != 4 {
				t.Errorf("rows %v", rows)
			}
		})
	}
}

func TestBatchIsRefusedWhole(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store.NewMemory())
	c := f.json()
	c.send(jsonBatch(0, `{"id":1}`, `{"id":2,"name":"a`+"\x01"+`"}`, `{"id":3}`))
	_, err := c.drain()
	want := "Record decoder/encoder error: control character in a string at line 1 column 18 (record 1 of the batch). Error Code: 4044, Error State: 3."
	if st := status.Convert(err); st.Message() != want {
		t.Errorf("got %q", st.Message())
	}
	if rows := f.rows(); len(rows) != 0 {
		t.Errorf("rows %v", rows)
	}
}

func TestLargestRecordPasses(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store.NewMemory())
	c := f.json()
	frame := `{"id":1,"name":""}`
	c.send(jsonRecord(0, `{"id":1,"name":"`+strings.Repeat("x", maxRecord-len(frame))+`"}`))
	c.until(0)
}

// garbage is a message whose bytes are no EphemeralStreamRequest.
func garbage() *zerobuspb.EphemeralStreamRequest {
	r := &zerobuspb.EphemeralStreamRequest{}
	r.ProtoReflect().SetUnknown([]byte{0x12, 0x01, 0x08})
	return r
}

func TestOffsets(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		bad  *zerobuspb.EphemeralStreamRequest
		want string
	}{
		{"gap", jsonRecord(2, `{"id":1}`), "Non-incremental offset: expected 1, actual 2. Error Code: 4002, Error State: 0."},
		{"again", jsonRecord(0, `{"id":1}`), "Non-incremental offset: expected 1, actual 0. Error Code: 4002, Error State: 0."},
		{"missing", &zerobuspb.EphemeralStreamRequest{Payload: &zerobuspb.EphemeralStreamRequest_IngestRecord{IngestRecord: &zerobuspb.IngestRecordRequest{}}}, "Offset is missing, expected 1. Error Code: 4002, Error State: 0."},
		{"create again", createRequest("main.default.t", zerobuspb.RecordType_JSON.Enum(), nil), "create_stream may only be the first message of a stream"},
		{"empty", &zerobuspb.EphemeralStreamRequest{}, "a message without a payload, or no EphemeralStreamRequest"},
		{"garbage", garbage(), "a message without a payload, or no EphemeralStreamRequest"},
		{"other kind", protoRecord(1, nil), "a PROTO record on a stream of record type JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, store.NewMemory())
			c := f.json()
			c.send(jsonRecord(0, `{"id":0}`))
			c.send(tt.bad)
			acked, err := c.drain()
			if st := status.Convert(err); st.Code() != codes.InvalidArgument || st.Message() != tt.want {
				t.Errorf("got %s %q", st.Code(), st.Message())
			}
			if acked != 0 || len(f.rows()) != 1 {
				t.Errorf("acknowledged %d, rows %v", acked, f.rows())
			}
		})
	}
}

func TestSetup(t *testing.T) {
	t.Parallel()
	json, prot := zerobuspb.RecordType_JSON.Enum(), zerobuspb.RecordType_PROTO.Enum()
	good := descriptor(t, field("id", 1, int32Type), field("name", 2, stringType))
	tests := []struct {
		name  string
		first *zerobuspb.EphemeralStreamRequest
		code  codes.Code
		want  string
	}{
		{"unknown table", createRequest("main.default.x", json, nil), codes.NotFound, `Table "main.default.x" cannot be found.`},
		{"two parts", createRequest("default.t", json, nil), codes.InvalidArgument, `table name "default.t" must have exactly 3 parts (catalog.schema.table)`},
		{"quoted", createRequest("`main`.default.t", json, nil), codes.InvalidArgument, "table name \"`main`.default.t\": use letters, digits and underscores"},
		{"no create", jsonRecord(0, `{"id":1}`), codes.InvalidArgument, "the first message of a stream must be create_stream"},
		{"garbage first", garbage(), codes.InvalidArgument, "the first message of a stream must be create_stream"},
		{"long table name", createRequest("main.default."+strings.Repeat("-", 1<<20), json, nil), codes.InvalidArgument, `table name "main.default.---`},
		{"long field name", createRequest("main.default.t", prot, descriptor(t, field(strings.Repeat("k", 1<<20), 1, int32Type))), codes.InvalidArgument, "Protobuf descriptor does not match the table: field '" + strings.Repeat("k", maxQuoted) + "…' is not in the table"},
		{"unspecified", createRequest("main.default.t", zerobuspb.RecordType_RECORD_TYPE_UNSPECIFIED.Enum(), nil), codes.InvalidArgument, "record type RECORD_TYPE_UNSPECIFIED is not supported: use PROTO or JSON"},
		{"avro", createRequest("main.default.t", zerobuspb.RecordType_AVRO.Enum(), nil), codes.Unimplemented, "record type AVRO is not implemented by deltabus-local yet"},
		{"no descriptor", createRequest("main.default.t", prot, nil), codes.InvalidArgument, "descriptor_proto is required for record type PROTO"},
		{"absent type is proto", createRequest("main.default.t", nil, nil), codes.InvalidArgument, "descriptor_proto is required for record type PROTO"},
		{"garbage", createRequest("main.default.t", prot, []byte{0xff, 0xff, 0xff}), codes.InvalidArgument, "descriptor_proto is not a DescriptorProto"},
		{"field not there", createRequest("main.default.t", prot, descriptor(t, field("id", 1, int32Type), field("nope", 2, stringType))), codes.InvalidArgument, "Protobuf descriptor does not match the table: field 'nope' is not in the table"},
		{"wrong type", createRequest("main.default.t", prot, descriptor(t, field("id", 1, stringType))), codes.InvalidArgument, "Protobuf descriptor does not match the table: field 'id' is string, which does not fit column type int"},
		{"required missing", createRequest("main.default.t", prot, descriptor(t, field("name", 1, stringType))), codes.InvalidArgument, "Protobuf descriptor does not match the table: required column 'id' has no field"},
		{"good", createRequest("main.default.t", prot, good), codes.OK, ""},
	}
	f := newFixture(t, store.NewMemory())
	for _, tt := range tests {
		c := f.open(t.Context())
		c.send(tt.first)
		if tt.code == codes.OK {
			c.created()
			continue
		}
		_, err := c.rpc.Recv()
		if st := status.Convert(err); st.Code() != tt.code || !strings.HasPrefix(st.Message(), tt.want) || len(st.Message()) > maxText+10 {
			t.Errorf("%s: got %s %q", tt.name, st.Code(), st.Message())
		}
	}
}

func TestBadProtobuf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		record []byte
		want   string
	}{
		{"truncated", []byte{0x08}, "invalid protobuf: unexpected EOF"},
		{"cut string", []byte{0x08, 1, 0x12, 5, 'a'}, "invalid protobuf: unexpected EOF"},
		{"wrong wire type", []byte{0x0a, 0}, "field 'id' has wire type 2"},
		{"bad UTF-8", []byte{0x08, 1, 0x12, 1, 0xff}, "invalid UTF-8 in field 'name'"},
		{"missing required", []byte{0x12, 1, 'a'}, "missing required field 'id'"},
		{"group", []byte{0x08, 1, 0x1b, 0x1c}, "protobuf groups are not supported"},
		{"garbage", []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "invalid protobuf: variable length integer overflow"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, store.NewMemory())
			c := f.open(t.Context())
			c.send(createRequest("main.default.t", nil, descriptor(t, field("id", 1, int32Type), field("name", 2, stringType))))
			c.created()
			c.send(protoRecord(0, []byte{0x08, 5}))
			c.send(protoRecord(1, tt.record))
			acked, err := c.drain()
			want := "Record decoder/encoder error: " + tt.want + ". Error Code: 4044, Error State: 3."
			if st := status.Convert(err); st.Code() != codes.InvalidArgument || st.Message() != want {
				t.Errorf("got %s %q", st.Code(), st.Message())
			}
			if acked != 0 || len(f.rows()) != 1 {
				t.Errorf("acknowledged %d, rows %v", acked, f.rows())
			}
		})
	}
}

// gate holds up the commits of a store.
type gate struct {
	mu      sync.Mutex
	closed  chan struct{} // nil: open
	reached chan struct{} // told when a commit is held up
	answer  store.Fault   // to a commit that was held up
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.closed)
	g.closed = nil
}

func (g *gate) hook(op store.Op) store.Fault {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed != nil && op.Kind == "put" && op.IfAbsent {
		notify(g.reached)
		<-closed
		return g.answer
	}
	return store.None
}

func TestNothingIsAcknowledgedBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	g := &gate{}
	f := newFixture(t, store.WithFaults(store.NewMemory(), g.hook))
	const streams = 16
	clients := make([]*client, streams)
	acks := make(chan int64, streams)
	for i := range clients {
		clients[i] = f.json()
	}
	g.shut()
	for i := range clients {
		clients[i].send(jsonRecord(0, fmt.Sprintf(`{"id":%d}`, i)))
		go func() {
			clients[i].until(0)
			acks <- int64(i)
		}()
	}
	waiting := streams
	select {
	case i := <-acks:
		waiting--
		t.Errorf("stream %d was acknowledged before its commit was there", i)
	case <-time.After(50 * time.Millisecond): // long enough for a wrong acknowledgement; a right one cannot come
	}
	g.open()
	for range waiting {
		<-acks
	}
	if rows := f.rows(); len(rows) != streams {
		t.Errorf("%d rows", len(rows))
	}
	if v := f.table.Cached().Version(); v > 3 {
		t.Errorf("16 waiting streams made %d versions", v)
	}
}

func TestHalfCloseFinishesAcknowledgements(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store.NewMemory())
	c := f.json()
	const n = 500
	for i := range n {
		c.send(jsonRecord(int64(i), fmt.Sprintf(`{"id":%d}`, i)))
	}
	if err := c.rpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	acked, err := c.drain()
	if err != nil || acked != n-1 {
		t.Errorf("acknowledged %d, %v", acked, err)
	}
	if rows := f.rows(); len(rows) != n || rows[0] != `{"id":0,"name":null}` || rows[n-1] != `{"id":499,"name":null}` {
		t.Errorf("%d rows", len(rows))
	}
}

func TestShutdownAnnouncesAndFinishes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store.NewMemory())
	c, stubborn := f.json(), f.json()
	done := make(chan error, 1)
	go func() { done <- f.server.Shutdown(context.Background(), 300*time.Millisecond) }()
	r, err := c.rpc.Recv()
	if err != nil || r.GetCloseStreamSignal().GetDuration().AsDuration() != 300*time.Millisecond {
		t.Fatalf("got %v, %v", r, err)
	}
	c.send(jsonRecord(0, `{"id":1}`)) // was on its way
	if err := c.rpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if acked, err := c.drain(); acked != 0 || err != nil {
		t.Errorf("acknowledged %d, %v", acked, err)
	}
	late := f.open(t.Context())
	if _, err := late.rpc.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a new stream: %v", err)
	}
	_, err = stubborn.drain()
	if st := status.Convert(err); st.Code() != codes.Unavailable || !strings.HasPrefix(st.Message(), "Stream timeout reached. Closing the stream (ID: ") || !strings.HasSuffix(st.Message(), "). Error Code: 6002, Error State: 0.") {
		t.Errorf("at the deadline: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFailedSyncStopsTheTable(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	broken := false
	f := newFixture(t, store.WithFaults(store.NewMemory(), func(op store.Op) store.Fault {
		mu.Lock()
		defer mu.Unlock()
		if broken && op.Kind == "put" && op.IfAbsent {
			return store.SyncFailed
		}
		return store.None
	}))
	c := f.json()
	mu.Lock()
	broken = true
	mu.Unlock()
	c.send(jsonRecord(0, `{"id":1}`))
	acked, err := c.drain()
	if st := status.Convert(err); acked != -1 || st.Code() != codes.Unavailable || !strings.Contains(st.Message(), "restart the server") {
		t.Errorf("acknowledged %d, %v", acked, err)
	}
	again := f.open(t.Context())
	again.send(createRequest("main.default.t", zerobuspb.RecordType_JSON.Enum(), nil))
	if _, err := again.rpc.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a new stream: %v", err)
	}
}

func TestChangedSchemaEndsOnlyOldStreams(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store.NewMemory())
	old := f.json()
	snap := f.table.Cached()
	meta := *snap.Metadata()
	meta.SchemaString = strings.Replace(meta.SchemaString, `"name":"name"`, `"name":"title"`, 1)
	if _, err := f.table.Commit(t.Context(), deltalog.Transaction{Base: snap, Operation: "RENAME", Metadata: &meta}); err != nil {
		t.Fatal(err)
	}
	fresh := f.json()
	old.send(jsonRecord(0, `{"id":1,"name":"a"}`))
	fresh.send(jsonRecord(0, `{"id":2,"title":"b"}`))
	fresh.until(0)
	if _, err := old.drain(); status.Code(err) != codes.Unavailable {
		t.Errorf("the old stream: %v", err)
	}
	if rows := f.rows(); len(rows) != 1 || rows[0] != `{"id":2,"title":"b"}` {
		t.Errorf("rows %v", rows)
	}
}

// TestCancelledClientKeepsWhatItHandedOver: the client goes away while its rows are being committed. The gate holds that commit until
// the server has ended the stream.
func TestCancelledClientKeepsWhatItHandedOver(t *testing.T) {
	t.Parallel()
	g := &gate{reached: make(chan struct{}, 1)}
	f := newFixture(t, store.WithFaults(store.NewMemory(), g.hook))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := f.open(ctx)
	c.send(createRequest("main.default.t", zerobuspb.RecordType_JSON.Enum(), nil))
	c.created()
	g.shut()
	c.send(jsonRecord(0, `{"id":1}`))
	<-g.reached
	cancel()
	f.server.streams.Wait() // its handler has returned
	g.open()
	f.json().endCleanly(t)
	f.flush()
	if rows := f.rows(); len(rows) != 1 {
		t.Errorf("rows %v", rows)
	}
}

// TestClientsGoAwayUnderTheCommitter: nothing orders the end of a stream and the commit of its rows, as -race sees if they share anything
// unguarded; what was acknowledged is there.
func TestClientsGoAwayUnderTheCommitter(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store.NewMemory())
	var streams sync.WaitGroup
	acked := make([]int64, 32)
	for i := range acked {
		streams.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := f.open(ctx)
			c.send(createRequest("main.default.t", zerobuspb.RecordType_JSON.Enum(), nil))
			c.created()
			for n := range 20 {
				c.send(jsonRecord(int64(n), fmt.Sprintf(`{"id":%d}`, i)))
			}
			if i%2 == 0 {
				c.until(0)
			}
			cancel()
			acked[i], _ = c.drain()
		})
	}
	streams.Wait()
	f.flush()
	stored := map[string]int64{}
	for _, row := range f.rows() {
		stored[row]++
	}
	for i, a := range acked {
		if n := stored[fmt.Sprintf(`{"id":%d,"name":null}`, i)]; n <= a {
			t.Errorf("stream %d: %d rows, acknowledged up to %d", i, n, a)
		}
	}
}

// flush returns when all that was handed over before is committed.
func (f *fixture) flush() {
	f.t.Helper()
	c := f.json()
	c.send(jsonBatch(0))
	c.until(0)
	c.endCleanly(f.t)
}

// endCleanly half-closes an idle stream and expects a clean end.
func (c *client) endCleanly(t *testing.T) {
	t.Helper()
	if err := c.rpc.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.drain(); err != nil {
		t.Error(err)
	}
}

func TestNotThereYet(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store.NewMemory())
	z := zerobuspb.NewZerobusClient(f.conn)
	if _, err := z.RetireStream(t.Context(), &zerobuspb.RetireStreamRequest{}); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "RetireStream") {
		t.Errorf("RetireStream: %v", err)
	}
	p, err := z.PersistentStream(t.Context())
	if err == nil {
		_, err = p.Recv()
	}
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "PersistentStream") {
		t.Errorf("PersistentStream: %v", err)
	}
}

// TestRowsOfEndedStreamsAreReused: streams that follow each other, and run side by side, store what they sent and nothing of each other.
func TestRowsOfEndedStreamsAreReused(t *testing.T) {
	t.Parallel()
	f := newFixture(t, store.NewMemory())
	const workers, rounds, records = 4, 15, 5
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for round := range rounds {
				c := f.json()
				for i := range int64(records) {
					c.send(jsonRecord(i, fmt.Sprintf(`{"id":%d,"name":"w%d"}`, int64(w*1000+round*10)+i, w)))
				}
				if err := c.rpc.CloseSend(); err != nil {
					t.Error(err)
				}
				if acked, err := c.drain(); err != nil || acked != records-1 {
					t.Errorf("acknowledged %d, %v", acked, err)
				}
			}
		})
	}
	wg.Wait()
	var want []string
	for w := range workers {
		for round := range rounds {
			for i := range records {
				want = append(want, fmt.Sprintf(`{"id":%d,"name":"w%d"}`, w*1000+round*10+i, w))
			}
		}
	}
	got := f.rows()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d rows, expected %d", len(got), len(want))
	}
}

// TestLateOfferOfAnEndedStream: a stream may be offered to the committer once more when its last row is committed and its columns are another's.
func TestLateOfferOfAnEndedStream(t *testing.T) {
	t.Parallel()
	c := &committer{limits: defaultLimits, dirty: map[*ephemeral]bool{}, freed: make(chan struct{})}
	r, err := newRows(columnsOf(t, "id INT NOT NULL", "name STRING"))
	if err != nil {
		t.Fatal(err)
	}
	ended := &ephemeral{rows: r, accepted: 0, acked: 0, ended: true}
	c.keep(ended)
	var d jsonDecoder
	if err := d.decode(`{"id":1}`, r); err != nil { // of the stream that has them now
		t.Fatal(err)
	}
	c.waiting, c.dirty[ended] = []*ephemeral{ended}, true
	if got := c.take(); len(got) != 0 || r.root.n != 1 {
		t.Errorf("%d taken, and %d rows are left of 1", len(got), r.root.n)
	}
}
