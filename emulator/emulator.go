// Package emulator is one whole Databricks workspace in a process: Zerobus endpoint, OAuth, Unity Catalog, over real
// Delta tables in a directory or in memory. Start runs it; Run is the same for Go tests.
package emulator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/zerobusfake"
)

// TB is the part of testing.TB that Run needs; this package does not link testing.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Emulator is a running workspace. Safe for concurrent use.
type Emulator struct {
	cfg       settings
	workspace *Workspace
	zerobus   *zerobusfake.Server
	grpc      *grpc.Server
	health    *health.Server
	http      *http.Server
	plain     *splitListener
	tls       net.Listener
	info      Info
	lock      *dirLock
	caDir     string // a temporary directory for the CA of an emulator in memory
	ready     atomic.Bool
	serving   sync.WaitGroup

	stopOnce  sync.Once
	hurryOnce sync.Once
	stopped   chan struct{}
	hurry     chan struct{}
	stopErr   error
}

// Start starts an emulator and returns when it is ready. With no options: memory store, a free port of 127.0.0.1. ctx
// bounds the start, not the life: Stop ends that.
func Start(ctx context.Context, opts ...Option) (*Emulator, error) {
	s := settings{listen: "127.0.0.1:0", logger: slog.New(slog.DiscardHandler), clock: time.Now, grace: 2 * time.Second}
	for _, o := range opts {
		o.apply(&s)
	}
	e := &Emulator{cfg: s, stopped: make(chan struct{}), hurry: make(chan struct{})}
	if err := e.start(ctx); err != nil {
		e.abort()
		return nil, fmt.Errorf("start emulator: %w", err)
	}
	return e, nil
}

// Run is Start for a test: it fails tb on error and stops the emulator when tb ends.
func Run(tb TB, opts ...Option) *Emulator {
	tb.Helper()
	e, err := Start(context.Background(), opts...)
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	tb.Cleanup(func() {
		// Tests that still have streams open are over: nobody listens for a signal to close.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := e.Stop(ctx); err != nil {
			tb.Errorf("stop emulator: %v", err)
		}
	})
	return e
}

func (e *Emulator) start(ctx context.Context) error {
	if e.cfg.dataDir != "" {
		var err error
		if e.lock, err = waitForLock(ctx, e.cfg.dataDir); err != nil {
			return err
		}
		// What a killed server left would name the wrong one.
		if err := ignoreNotExist(os.Remove(serverFile(e.cfg.dataDir))); err != nil {
			return err
		}
	}
	var err error
	if e.workspace, err = openWorkspace(ctx, e.cfg); err != nil {
		return err
	}
	if err := e.identity(ctx); err != nil {
		return err
	}
	if e.lock != nil {
		if err := e.workspace.emptyTrash(); err != nil { // of a server that was killed while it dropped a table
			return err
		}
	}
	e.zerobus = zerobusfake.New(zerobusfake.Config{Tables: e.workspace, CommitInterval: e.cfg.commitInterval, Logger: e.cfg.logger})
	e.workspace.ending = e.zerobus.Drop
	e.grpc = grpc.NewServer(append(zerobusfake.ServerOptions(), grpc.UnknownServiceHandler(unknownService))...)
	e.zerobus.Register(e.grpc)
	e.health = health.NewServer()
	healthpb.RegisterHealthServer(e.grpc, e.health)
	e.setReady(false)
	e.http = &http.Server{
		Handler: e.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 3 * time.Minute, MaxHeaderBytes: 1 << 20,
		ErrorLog: slog.NewLogLogger(e.cfg.logger.Handler(), slog.LevelDebug),
	}
	if err := e.listen(); err != nil {
		return err
	}
	if e.cfg.seed != nil {
		if err := e.workspace.seed(ctx, e.cfg.seed); err != nil {
			return err
		}
	}
	for _, f := range e.cfg.beforeReady {
		if err := f(ctx, e); err != nil {
			return err
		}
	}
	if e.lock != nil {
		if err := writeJSON(serverFile(e.cfg.dataDir), e.info); err != nil {
			return err
		}
	}
	e.setReady(true)
	return nil
}

func (e *Emulator) setReady(ready bool) {
	e.ready.Store(ready)
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	e.health.SetServingStatus("", status)
	e.health.SetServingStatus("databricks.zerobus.Zerobus", status)
}

// listen opens the ports and serves them; readiness says no until the start is over.
func (e *Emulator) listen() error {
	var err error
	if e.plain, err = listenPlain(e.cfg.listen, e.cfg.logger); err != nil {
		return err
	}
	e.info.HTTP = "http://" + e.plain.address()
	e.info.Zerobus = e.info.HTTP
	e.serving.Go(func() { _ = e.grpc.Serve(e.plain.grpc) })  // ends with the server
	e.serving.Go(func() { _ = e.http.Serve(e.plain.plain) }) // ends with the server
	if e.cfg.tlsListen == "" {
		return nil
	}
	cert, caFile, err := e.certificate()
	if err != nil {
		return err
	}
	if e.tls, err = listenTLS(e.cfg.tlsListen, cert); err != nil {
		return err
	}
	e.info.TLS, e.info.CA = "https://"+reachable(e.tls.Addr()), caFile
	e.serving.Go(func() { _ = e.http.Serve(e.tls) }) // ends with the server
	return nil
}

// abort takes down what a failed start has put up.
func (e *Emulator) abort() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = e.Stop(ctx) // the start's own error says more
}

// URL is the address to give to an SDK, for both of its arguments: http://127.0.0.1:PORT. Without a listener it is an address that
// only DialContext reaches.
func (e *Emulator) URL() string { return e.info.HTTP }

// DialContext connects to the plain port without a network, whatever network and addr say: for http.Transport.DialContext, and for
// grpc.WithContextDialer. It works with WithoutListener too.
func (e *Emulator) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return e.plain.dial(ctx)
}

// ZerobusEndpoint is URL: one port serves everything.
func (e *Emulator) ZerobusEndpoint() string { return e.info.Zerobus }

// TLSURL is the address of the TLS port, or "".
func (e *Emulator) TLSURL() string { return e.info.TLS }

// CAFile is the PEM file of the authority that signed the TLS certificate, or "".
func (e *Emulator) CAFile() string { return e.info.CA }

// Info is everything that a client needs to know.
func (e *Emulator) Info() Info { return e.info }

// Token is a bearer token that the emulator takes.
func (e *Emulator) Token() string { return e.info.Token }

// ClientID and ClientSecret are credentials for its token endpoint.
func (e *Emulator) ClientID() string { return e.info.ClientID }

// ClientSecret belongs to ClientID.
func (e *Emulator) ClientSecret() string { return e.info.ClientSecret }

// WorkspaceID is the workspace's id.
func (e *Emulator) WorkspaceID() string { return e.info.WorkspaceID }

// WarehouseID is the id of its one SQL warehouse.
func (e *Emulator) WarehouseID() string { return e.info.WarehouseID }

// DataDir is the data directory, or "" in memory.
func (e *Emulator) DataDir() string { return e.info.DataDir }

// Workspace is the catalog and its tables.
func (e *Emulator) Workspace() *Workspace { return e.workspace }

// Store is where the tables live: catalog.schema.table is at catalog/schema/table.
func (e *Emulator) Store() store.Store { return e.workspace.Store() }

// Table opens catalog.schema.table: the one shared handle of this process.
func (e *Emulator) Table(ctx context.Context, fullName string) (*deltalog.Table, error) {
	return e.workspace.Table(ctx, fullName)
}

// CreateTable makes catalog.schema.table as a managed table, with its schema if that is missing.
func (e *Emulator) CreateTable(ctx context.Context, fullName string, spec deltalog.TableSpec) (*deltalog.Table, error) {
	return e.workspace.CreateTable(ctx, fullName, spec)
}

// Stop announces the end to open streams (CloseStreamSignal), finishes their acknowledgements, and stops. A second call, or the end
// of ctx, stops at once. Every call returns when everything has stopped.
func (e *Emulator) Stop(ctx context.Context) error {
	first := false
	e.stopOnce.Do(func() {
		first = true
		go func() {
			defer close(e.stopped)
			e.stopErr = e.stop()
		}()
	})
	if first {
		select {
		case <-e.stopped:
			return e.stopErr
		case <-ctx.Done():
		}
	}
	e.hurryOnce.Do(func() { close(e.hurry) })
	<-e.stopped
	return e.stopErr
}

func (e *Emulator) stop() error {
	var errs []error
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-e.hurry:
			cancel()
		case <-ctx.Done():
		}
	}()
	if e.health != nil {
		e.setReady(false)
	}
	if e.lock != nil {
		errs = append(errs, ignoreNotExist(os.Remove(serverFile(e.cfg.dataDir))))
	}
	if e.zerobus != nil {
		errs = append(errs, e.zerobus.Shutdown(ctx, e.cfg.grace))
	}
	if e.grpc != nil {
		e.grpc.Stop() // the streams are gone; idle connections are cut
	}
	if e.http != nil {
		// Requests in flight have as long as streams had; a TLS connection that says nothing must not hold up the end.
		patience, enough := context.WithTimeout(ctx, e.cfg.grace)
		if err := e.http.Shutdown(patience); err != nil {
			errs = append(errs, ignoreClosed(e.http.Close()))
		}
		enough()
	}
	if e.plain != nil {
		errs = append(errs, e.plain.Close())
	}
	if e.tls != nil {
		errs = append(errs, ignoreClosed(e.tls.Close()))
	}
	e.serving.Wait()
	if e.workspace != nil {
		errs = append(errs, e.workspace.Close())
	}
	if e.caDir != "" {
		errs = append(errs, os.RemoveAll(e.caDir))
	}
	if e.lock != nil {
		errs = append(errs, e.lock.unlock())
	}
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func ignoreNotExist(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
