package emulator

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

// holdEnv makes the test binary a server on a data directory, for tests that kill it.
const holdEnv = "DELTABUS_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdEnv); dir != "" {
		if _, err := Start(context.Background(), WithDataDir(dir)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until it is killed, or its parent is gone
		os.Exit(0)
	}
	// net/http lingers half a second, asleep, on a connection whose request it refused: longer than goleak waits.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// client is an HTTP client that leaves no connection behind.
func client(t *testing.T, transport *http.Transport) *http.Client {
	t.Helper()
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		return fmt.Errorf("redirected to %s", r.URL)
	}, Timeout: 30 * time.Second}
}

// api calls an emulator over its in-process connections.
type api struct {
	t *testing.T
	e *Emulator
	c *http.Client
}

func newAPI(t *testing.T, e *Emulator) api {
	t.Helper()
	return api{t, e, client(t, &http.Transport{DialContext: e.DialContext})}
}

// call sends a request with a JSON body, or none if it is "", and returns the status and the body.
func (a api) call(method, path, body string) (int, string) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.e.URL()+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	return a.do(r)
}

func (a api) do(r *http.Request) (int, string) {
	a.t.Helper()
	resp, err := a.c.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		a.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// form posts a form, and returns the answer as JSON.
func (a api) form(path string, form url.Values, auth ...string) (int, map[string]any, string) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.e.URL()+path, strings.NewReader(form.Encode()))
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if len(auth) == 2 {
		r.SetBasicAuth(auth[0], auth[1])
	}
	code, body := a.do(r)
	out := map[string]any{}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		a.t.Fatalf("%s: %v", body, err)
	}
	return code, out, body
}

// dialGRPC connects gRPC to the plain port within the process.
func dialGRPC(t *testing.T, e *Emulator) *grpc.ClientConn {
	t.Helper()
	return connect(t, "passthrough:///emulator", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(pipe(e)))
}

func connect(t *testing.T, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// stream is a raw Zerobus stream of JSON records.
type stream struct {
	t   *testing.T
	rpc grpc.BidiStreamingClient[zerobuspb.EphemeralStreamRequest, zerobuspb.EphemeralStreamResponse]
}

func openStream(t *testing.T, conn *grpc.ClientConn, table string) stream {
	t.Helper()
	rpc, err := zerobuspb.NewZerobusClient(conn).EphemeralStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := stream{t, rpc}
	err = rpc.Send(&zerobuspb.EphemeralStreamRequest{Payload: &zerobuspb.EphemeralStreamRequest_CreateStream{
		CreateStream: &zerobuspb.CreateIngestStreamRequest{TableName: &table, RecordType: zerobuspb.RecordType_JSON.Enum()},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := rpc.Recv(); err != nil || r.GetCreateStreamResponse() == nil {
		t.Fatalf("create stream: %v, %v", r, err)
	}
	return s
}

func (s stream) send(offset int64, record string) error {
	return s.rpc.Send(&zerobuspb.EphemeralStreamRequest{Payload: &zerobuspb.EphemeralStreamRequest_IngestRecord{
		IngestRecord: &zerobuspb.IngestRecordRequest{OffsetId: &offset, Record: &zerobuspb.IngestRecordRequest_JsonRecord{JsonRecord: record}},
	}})
}

// acknowledged sends a record and waits for its acknowledgement.
func (s stream) acknowledged(offset int64, record string) {
	s.t.Helper()
	if err := s.send(offset, record); err != nil {
		s.t.Fatal(err)
	}
	for {
		r, err := s.rpc.Recv()
		if err != nil {
			s.t.Fatal(err)
		}
		if a := r.GetIngestRecordResponse(); a != nil && a.GetDurabilityAckUpToOffset() >= offset {
			return
		}
	}
}

// end half-closes and waits for the end.
func (s stream) end() {
	s.t.Helper()
	if err := s.rpc.CloseSend(); err != nil {
		s.t.Fatal(err)
	}
	for {
		if _, err := s.rpc.Recv(); err == io.EOF {
			return
		} else if err != nil {
			s.t.Fatal(err)
		}
	}
}

func tableSpec(t *testing.T, ddl ...string) deltalog.TableSpec {
	t.Helper()
	var spec deltalog.TableSpec
	for _, c := range ddl {
		f, err := deltalog.ParseColumn(c)
		if err != nil {
			t.Fatal(err)
		}
		spec.Schema.Fields = append(spec.Schema.Fields, f)
	}
	return spec
}

// rowCount is the number of rows of a table's newest version, by the statistics of its files.
func rowCount(t *testing.T, table *deltalog.Table) int64 {
	t.Helper()
	snap, err := table.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for add := range snap.Files() {
		var stats struct{ NumRecords int64 }
		if err := json.Unmarshal([]byte(add.Stats), &stats); err != nil {
			t.Fatal(err)
		}
		n += stats.NumRecords
	}
	return n
}

// logBuffer is a logger's output.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
	line chan struct{}
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Write(p)
	select {
	case b.line <- struct{}{}:
	default:
	}
	return len(p), nil
}

// waitFor waits until the log has a text.
func (b *logBuffer) waitFor(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		b.mu.Lock()
		all := b.text.String()
		b.mu.Unlock()
		if strings.Contains(all, text) {
			return
		}
		select {
		case <-b.line:
		case <-timeout:
			t.Fatalf("the log never says %q: %s", text, all)
		}
	}
}

func newLog() (*slog.Logger, *logBuffer) {
	b := &logBuffer{line: make(chan struct{}, 1)}
	return slog.New(slog.NewTextHandler(b, nil)), b
}

// caCredentials trusts an emulator's authority.
func caCredentials(t *testing.T, e *Emulator) credentials.TransportCredentials {
	t.Helper()
	creds, err := credentials.NewClientTLSFromFile(e.CAFile(), "")
	if err != nil {
		t.Fatal(err)
	}
	return creds
}
