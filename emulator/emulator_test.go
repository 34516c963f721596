package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/deltabus/deltabus-local/deltalog"
)

func pipe(e *Emulator) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) { return e.DialContext(ctx, "tcp", addr) }
}

// One address serves HTTP and gRPC, on both loopback addresses, and within the process.
func TestOnePortForEverything(t *testing.T) {
	t.Parallel()
	e := Run(t)
	if _, err := e.CreateTable(t.Context(), "main.default.t", tableSpec(t, "id BIGINT")); err != nil {
		t.Fatal(err)
	}
	if e.URL() != e.ZerobusEndpoint() || !strings.HasPrefix(e.URL(), "http://127.0.0.1:") {
		t.Errorf("url %s, zerobus %s", e.URL(), e.ZerobusEndpoint())
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(e.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"127.0.0.1"}
	if l, err := net.Listen("tcp", "[::1]:0"); err == nil {
		hosts = append(hosts, "::1")
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	rows := int64(0)
	for _, host := range hosts {
		addr := net.JoinHostPort(host, port)
		resp, err := client(t, &http.Transport{}).Get("http://" + addr + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != 200 {
			t.Errorf("%s: %v, %v", addr, resp.Status, err)
		}
		s := openStream(t, connect(t, "passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials())), "main.default.t")
		s.acknowledged(0, `{"id":1}`)
		s.end()
		rows++
	}
	s := openStream(t, dialGRPC(t, e), "main.default.t")
	s.acknowledged(0, `{"id":1}`)
	s.end()
	rows++
	table, err := e.Table(t.Context(), "main.default.t")
	if err != nil {
		t.Fatal(err)
	}
	if n := rowCount(t, table); n != rows {
		t.Errorf("%d rows, want %d", n, rows)
	}
}

func TestWithoutListener(t *testing.T) {
	t.Parallel()
	e := Run(t, WithoutListener())
	if code, body := newAPI(t, e).call("GET", "/readyz", ""); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	if !strings.HasSuffix(e.URL(), ".invalid") {
		t.Errorf("%s might be somebody's address", e.URL())
	}
	if _, err := e.CreateTable(t.Context(), "main.default.t", tableSpec(t, "id BIGINT")); err != nil {
		t.Fatal(err)
	}
	s := openStream(t, dialGRPC(t, e), "main.default.t")
	s.acknowledged(0, `{"id":1}`)
	s.end()
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := e.DialContext(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial after the end: %v", err)
	}
}

func healthOf(t *testing.T, conn *grpc.ClientConn, service string) healthpb.HealthCheckResponse_ServingStatus {
	t.Helper()
	r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetStatus()
}

// Readiness is true: not before the seed and the hooks are done.
func TestReadyOnlyWhenReady(t *testing.T) {
	t.Parallel()
	seed, err := ParseSeed([]byte("tables: [{name: main.s.t, columns: [id BIGINT]}]"))
	if err != nil {
		t.Fatal(err)
	}
	services := []string{"", "databricks.zerobus.Zerobus"}
	hooked := false
	e := Run(t, WithSeed(seed), WithBeforeReady(func(ctx context.Context, e *Emulator) error {
		hooked = true
		if _, err := e.Table(ctx, "main.s.t"); err != nil {
			t.Errorf("the seed comes before the hook: %v", err)
		}
		a := newAPI(t, e)
		if code, _ := a.call("GET", "/readyz", ""); code != http.StatusServiceUnavailable {
			t.Errorf("readyz answers %d in the hook", code)
		}
		if code, _ := a.call("GET", "/livez", ""); code != 200 {
			t.Errorf("livez answers %d in the hook", code)
		}
		for _, s := range services {
			if h := healthOf(t, dialGRPC(t, e), s); h != healthpb.HealthCheckResponse_NOT_SERVING {
				t.Errorf("health of %q is %s in the hook", s, h)
			}
		}
		return nil
	}))
	if !hooked {
		t.Error("the hook was not called")
	}
	if code, _ := newAPI(t, e).call("GET", "/readyz", ""); code != 200 {
		t.Errorf("readyz answers %d", code)
	}
	for _, s := range services {
		if h := healthOf(t, dialGRPC(t, e), s); h != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q is %s", s, h)
		}
	}
}

// A start that fails takes everything down again: goleak and the lock see to it.
func TestFailedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	no := errors.New("no")
	if _, err := Start(t.Context(), WithDataDir(dir), WithBeforeReady(func(context.Context, *Emulator) error { return no })); !errors.Is(err, no) {
		t.Errorf("got %v", err)
	}
	if _, err := Start(t.Context(), WithDataDir(dir), WithListen("127.0.0.1:not-a-port")); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "server.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("server.json: %v", err)
	}
	Run(t, WithDataDir(dir))
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	e := Run(t)
	if _, err := Start(t.Context(), WithListen(strings.TrimPrefix(e.URL(), "http://"))); err == nil || !strings.Contains(err.Error(), "choose another port") {
		t.Errorf("got %v", err)
	}
}

// What was there before a restart is there after it: tables, rows, ids, credentials.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := Run(t, WithDataDir(dir))
	if _, err := e.CreateTable(t.Context(), "main.s.t", tableSpec(t, "id BIGINT")); err != nil {
		t.Fatal(err)
	}
	s := openStream(t, dialGRPC(t, e), "main.s.t")
	s.acknowledged(0, `{"id":1}`)
	s.end()
	before, entry := e.Info(), must(e.Workspace().Info(t.Context(), "main.s.t"))
	data, err := os.ReadFile(filepath.Join(dir, "server.json"))
	if err != nil {
		t.Fatal(err)
	}
	var written Info
	if err := json.Unmarshal(data, &written); err != nil || written != before {
		t.Errorf("server.json is %s, %v; want %+v", data, err, before)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "server.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("server.json after the end: %v", err)
	}
	e = Run(t, WithDataDir(dir))
	after := e.Info()
	before.HTTP, before.Zerobus, after.HTTP, after.Zerobus = "", "", "", ""
	if after != before {
		t.Errorf("was %+v, is %+v", before, after)
	}
	if again := must(e.Workspace().Info(t.Context(), "main.s.t")); again != entry {
		t.Errorf("was %+v, is %+v", entry, again)
	}
	if n := rowCount(t, must(e.Table(t.Context(), "main.s.t"))); n != 1 {
		t.Errorf("%d rows", n)
	}
	if !strings.HasPrefix(entry.Location, "file:///") || !strings.HasSuffix(entry.Location, "/tables/main/s/t") {
		t.Errorf("location %s", entry.Location)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The first Stop tells streams to go and waits for them; a second one does not wait.
func TestStopTwiceIsAtOnce(t *testing.T) {
	t.Parallel()
	e, err := Start(t.Context(), WithGrace(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.CreateTable(t.Context(), "main.default.t", tableSpec(t, "id BIGINT")); err != nil {
		t.Fatal(err)
	}
	s := openStream(t, dialGRPC(t, e), "main.default.t")
	first := make(chan error, 1)
	go func() { first <- e.Stop(context.Background()) }()
	if r, err := s.rpc.Recv(); err != nil || r.GetCloseStreamSignal() == nil {
		t.Fatalf("got %v, %v; want CloseStreamSignal", r, err)
	}
	s.acknowledged(0, `{"id":1}`) // it is still served
	if err := e.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := s.rpc.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ends with %v", err)
	}
	if err := e.Stop(context.Background()); err != nil {
		t.Errorf("a third time: %v", err)
	}
}

func TestStopAtTheEndOfContext(t *testing.T) {
	t.Parallel()
	e, err := Start(t.Context(), WithGrace(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.CreateTable(t.Context(), "main.default.t", tableSpec(t, "id BIGINT")); err != nil {
		t.Fatal(err)
	}
	openStream(t, dialGRPC(t, e), "main.default.t")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// A connection to the TLS port that never says a word does not hold up the end.
func TestStopWithSilentConnections(t *testing.T) {
	t.Parallel()
	e, err := Start(t.Context(), WithTLS("127.0.0.1:0"), WithGrace(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{e.URL(), e.TLSURL()} {
		c, err := net.Dial("tcp", strings.TrimPrefix(strings.TrimPrefix(addr, "http://"), "https://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	began := time.Now()
	if err := e.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("stopping took %s", took)
	}
}

// What is not there yet says so, by name.
func TestUnimplementedByName(t *testing.T) {
	t.Parallel()
	e := Run(t, WithoutListener())
	a := newAPI(t, e)
	for _, c := range [][2]string{
		{"/api/2.0/sql/statements", "SQL statement"},
		{"/api/2.0/sql/statements/", "SQL statement"},
		{"/api/2.0/sql/warehouses/" + e.WarehouseID() + "/start", "warehouses"},
		{"/zerobus/v1/tables/main.default.t/insert", "REST insert"},
		{"/v1/traces", "OTLP"},
		{"/v1/logs", "OTLP"},
		{"/v1/metrics", "OTLP"},
		{"/api/2.1/unity-catalog/temporary-table-credentials", "temporary-table-credentials"},
		{"/api/2.0/unity-catalog/temporary-table-credentials", "Unity Catalog"},
		{"/api/2.1/unity-catalog/permissions/table/main.default.t", "permissions"},
		{"/api/2.1/unity-catalog/volumes", "volumes"},
	} {
		path, want := c[0], c[1]
		if code, body := a.call("POST", path, "{}"); code != http.StatusNotImplemented || !strings.Contains(body, want) || !strings.Contains(body, `"NOT_IMPLEMENTED"`) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, body := a.call("GET", "/api/2.0/clusters/list", ""); code != 404 || !strings.Contains(body, `"error_code":"ENDPOINT_NOT_FOUND"`) {
		t.Errorf("an unknown URL: %d %s", code, body)
	}
	conn := dialGRPC(t, e)
	for method, want := range map[string]string{
		"/arrow.flight.protocol.FlightService/DoPut":                  "Arrow Flight",
		"/opentelemetry.proto.collector.trace.v1.TraceService/Export": "OTLP",
		"/databricks.zerobus.Zerobus/PersistentStream":                "PersistentStream",
		"/some.Other/Thing": "/some.Other/Thing",
	} {
		err := conn.Invoke(t.Context(), method, &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{})
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func TestAbsentTable(t *testing.T) {
	t.Parallel()
	e := Run(t, WithoutListener())
	if _, err := e.Table(t.Context(), "main.default.none"); !errors.Is(err, deltalog.ErrNotTable) {
		t.Errorf("got %v", err)
	}
	if _, err := e.Table(t.Context(), "none"); err == nil || errors.Is(err, deltalog.ErrNotTable) {
		t.Errorf("a name of one part: %v", err)
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		e, err := Start(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Stop(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStartDir starts on a new data directory.
func BenchmarkStartDir(b *testing.B) {
	for b.Loop() {
		e, err := Start(context.Background(), WithDataDir(b.TempDir()))
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Stop(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
