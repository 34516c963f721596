package deltabus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/internal/zerobus"
	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("DELTABUS_TEST_SPOOL"); dir != "" {
		publishUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

// row is what the fakes keep of a message.
type row struct {
	producer string
	seq      int64
	id       string
	version  int64
}

// fakeTable is the messages table, for both paths.
type fakeTable struct {
	mu      sync.Mutex
	rows    []row
	version int64
	txns    map[string]int64
	// before and after, if set, fail an append before or after it is committed.
	before, after func(n int) error
	appends       int
	down          bool // nothing can be read or written
	ownReads      []ownQuery
	afterOwn      func(n int) // called once the n-th look-up has read
}

var errDown = errors.New("table is down")

func (f *fakeTable) commit(rows []row) {
	f.version++
	for _, r := range rows {
		r.version = f.version
		f.rows = append(f.rows, r)
	}
}

type fakeJournal struct{ *fakeTable }

func (f fakeJournal) version(context.Context) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return 0, errDown
	}
	return f.fakeTable.version, nil
}

func (f fakeJournal) own(_ context.Context, q ownQuery) (ownRows, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return ownRows{}, errDown
	}
	f.ownReads = append(f.ownReads, q)
	out := ownRows{seqs: map[int64]bool{}, txn: -1, upTo: f.fakeTable.version}
	if v, ok := f.txns[q.producer]; ok {
		out.txn = v
	}
	for _, r := range f.rows {
		if r.producer == q.producer && r.version > q.after && r.seq >= q.fromSeq {
			out.seqs[r.seq] = true
		}
	}
	if f.afterOwn != nil {
		f.afterOwn(len(f.ownReads) - 1)
	}
	return out, nil
}

func (f fakeJournal) append(_ context.Context, producer string, msgs []*entry, since int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return errDown
	}
	n := f.appends
	f.appends++
	if f.before != nil {
		if err := f.before(n); err != nil {
			return err
		}
	}
	highest := msgs[len(msgs)-1].receipt.ProducerSeq
	if v, ok := f.txns[producer]; ok && v >= highest {
		return deltalog.ErrTxnAlreadyCommitted
	}
	if since >= 0 && f.fakeTable.version != since {
		return deltalog.ErrConflict
	}
	var rows []row
	for _, e := range msgs {
		rows = append(rows, row{producer: producer, seq: e.receipt.ProducerSeq, id: e.msg.ID})
	}
	f.commit(rows)
	if f.txns == nil {
		f.txns = map[string]int64{}
	}
	f.txns[producer] = highest
	if f.after != nil {
		return f.after(n)
	}
	return nil
}

// fakeEndpoint is a Zerobus server over a fakeTable, with faults that can be switched while it runs.
type fakeEndpoint struct {
	zerobuspb.UnimplementedZerobusServer
	table *fakeTable
	lis   *bufconn.Listener
	srv   *grpc.Server
	done  chan struct{}

	mu      sync.Mutex
	gone    bool       // connections are refused
	refuse  codes.Code // streams are refused
	noAck   bool       // commits, and does not acknowledge
	broken  bool       // accepts streams, and ends them at the first message
	stall   bool       // neither commits nor acknowledges
	late    time.Duration
	failAt  map[string]error // message ids that end the stream, not committed
	dieAt   map[string]bool  // message ids that are committed, and then the stream is cut; once
	closing bool             // streams get a CloseStreamSignal after the next message
	streams map[int]context.CancelFunc
	opens   int
	later   sync.WaitGroup
}

func startEndpoint(table *fakeTable) *fakeEndpoint {
	e := &fakeEndpoint{
		table: table, lis: bufconn.Listen(1 << 20), srv: grpc.NewServer(grpc.MaxRecvMsgSize(16 << 20)), done: make(chan struct{}),
		failAt: map[string]error{}, dieAt: map[string]bool{}, streams: map[int]context.CancelFunc{},
	}
	zerobuspb.RegisterZerobusServer(e.srv, e)
	go func() { defer close(e.done); _ = e.srv.Serve(e.lis) }()
	return e
}

func (e *fakeEndpoint) stop() { e.srv.Stop(); <-e.done; e.later.Wait() }

func (e *fakeEndpoint) set(change func(*fakeEndpoint)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

// cut ends every stream as a lost connection would.
func (e *fakeEndpoint) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, cancel := range e.streams {
		cancel()
	}
}

func (e *fakeEndpoint) opener() streamOpener {
	return func(ctx context.Context, o streamOptions) (*zerobus.Stream, error) {
		return zerobus.Open(ctx, zerobus.Config{
			Endpoint: "http://zerobus.test", Table: "main.deltabus.messages", RecordType: zerobus.Proto, Descriptor: messageDescriptor(), OnAck: o.onAck,
			Options: zerobus.Options{NoRecovery: true, LackOfAckTimeout: o.ackTimeout, MaxInFlightBytes: 1 << 40, MaxInFlightRecords: 1 << 40},
			Dial: func(ctx context.Context, _ string) (net.Conn, error) {
				e.mu.Lock()
				gone := e.gone
				e.mu.Unlock()
				if gone {
					return nil, errors.New("connection refused")
				}
				return e.lis.DialContext(ctx)
			},
		})
	}
}

func (e *fakeEndpoint) EphemeralStream(rpc zerobuspb.Zerobus_EphemeralStreamServer) error {
	ctx, cancel := context.WithCancel(rpc.Context())
	defer cancel()
	e.mu.Lock()
	e.opens++
	n := e.opens
	e.streams[n] = cancel
	refuse := e.refuse
	e.mu.Unlock()
	defer e.set(func(e *fakeEndpoint) { delete(e.streams, n) })
	if refuse != codes.OK {
		return status.Error(refuse, "refused")
	}
	if _, err := rpc.Recv(); err != nil {
		return err
	}
	if err := rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_CreateStreamResponse{
		CreateStreamResponse: &zerobuspb.CreateIngestStreamResponse{StreamId: proto.String("s")},
	}}); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- e.serve(ctx, rpc) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return status.Error(codes.Unavailable, "connection lost") // serve ends with the RPC
	}
}

func (e *fakeEndpoint) serve(ctx context.Context, rpc zerobuspb.Zerobus_EphemeralStreamServer) error {
	var backlog []row // taken, and not committed yet
	for {
		req, err := rpc.Recv()
		if err != nil {
			return nil // half-close: everything is acknowledged already
		}
		var offset int64
		var records [][]byte
		if r := req.GetIngestRecord(); r != nil {
			offset, records = r.GetOffsetId(), [][]byte{r.GetProtoEncodedRecord()}
		} else {
			offset, records = req.GetIngestRecordBatch().GetOffsetId(), req.GetIngestRecordBatch().GetProtoEncodedBatch().GetRecords()
		}
		var rows []row
		for _, r := range records {
			rows = append(rows, decodeRow(r))
		}
		taken := backlog
		backlog = nil
		e.mu.Lock()
		broken := e.broken
		stall, noAck, late, closing := e.stall, e.noAck, e.late, e.closing
		e.closing = false
		var fail error
		die := false
		for _, r := range rows {
			fail = errors.Join(fail, e.failAt[r.id])
			die = die || e.dieAt[r.id]
			delete(e.dieAt, r.id)
		}
		e.mu.Unlock()
		commit := func() {
			e.table.mu.Lock()
			e.table.commit(append(taken, rows...))
			e.table.mu.Unlock()
		}
		switch {
		case broken:
			return status.Error(codes.Unavailable, "broken")
		case fail != nil:
			rows = nil
			commit()
			return status.Error(codes.InvalidArgument, fail.Error())
		case stall:
			backlog = append(taken, rows...)
			continue
		case late > 0 && die: // cut off, but it writes what it has a little later
			e.later.Add(1)
			time.AfterFunc(late, func() { commit(); e.later.Done() })
			return status.Error(codes.Unavailable, "connection lost")
		}
		commit()
		switch {
		case die:
			return status.Error(codes.Unavailable, "died")
		case noAck:
			continue
		case closing:
			_ = rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_CloseStreamSignal{CloseStreamSignal: &zerobuspb.CloseStreamSignal{}}})
		}
		if ctx.Err() == nil {
			_ = rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_IngestRecordResponse{
				IngestRecordResponse: &zerobuspb.IngestRecordResponse{DurabilityAckUpToOffset: &offset},
			}})
		}
	}
}

func decodeRow(b []byte) row {
	var r row
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		b = b[n:]
		if typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b)
			b = b[n:]
			if num == fieldProducerSeq {
				r.seq = int64(v)
			}
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		b = b[n:]
		switch num {
		case fieldMessageID:
			r.id = string(v)
		case fieldProducerID:
			r.producer = string(v)
		}
	}
	return r
}

// checkTable is the checker: every delivered message is in the table once, refused ones are not, nobody else's are, and
// rows stand in the order they were published.
func checkTable(t *testing.T, table *fakeTable, deliveries []*Delivery) {
	t.Helper()
	table.mu.Lock()
	defer table.mu.Unlock()
	if err := checkRows(table.rows, deliveries); err != nil {
		t.Error(err)
	}
}

func checkRows(rows []row, deliveries []*Delivery) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	count := map[string]int{}
	last := map[string]int64{}
	for _, r := range rows {
		if count[r.id]++; count[r.id] > 1 {
			bad("message %s (seq %d) is in the table %d times", r.id, r.seq, count[r.id])
		}
		if l, ok := last[r.producer]; ok && r.seq <= l {
			bad("seq %d stands behind seq %d", r.seq, l)
		}
		last[r.producer] = r.seq
	}
	for _, d := range deliveries {
		select {
		case <-d.Done():
		default:
			bad("message %s is not done", d.receipt.MessageID)
			continue
		}
		n := count[d.receipt.MessageID]
		delete(count, d.receipt.MessageID)
		switch {
		case d.Err() == nil && n == 0:
			bad("message %s (seq %d) was called durable and is lost", d.receipt.MessageID, d.receipt.ProducerSeq)
		case errors.Is(d.Err(), ErrRefused) && n > 0:
			bad("message %s was called refused and is in the table", d.receipt.MessageID)
		}
	}
	for id := range count {
		bad("message %s was published by nobody", id)
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}
