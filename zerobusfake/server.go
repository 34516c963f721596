// Package zerobusfake is the Zerobus endpoint: the gRPC service that official SDKs speak to. It decodes records
// straight into columns, checks them against the table, commits what all streams of a table have waiting
// as one Delta version, and only then acknowledges.
package zerobusfake

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

// Tables finds tables by catalog.schema.table.
type Tables interface {
	// Table opens a table; the same name gives the same handle for as long as the table is there. An absent one is an
	// error that matches deltalog.ErrNotTable.
	Table(ctx context.Context, fullName string) (*deltalog.Table, error)
}

// Config of a Server.
type Config struct {
	Tables Tables
	// CommitInterval spaces the commits of a table; 0: an idle table commits at once, a busy one at most some 50 times
	// a second (docs/design.md, decision 8).
	CommitInterval time.Duration
	// Logger; default: nothing.
	Logger *slog.Logger
}

// Server serves the Zerobus gRPC service. Safe for concurrent use.
type Server struct {
	zerobuspb.UnimplementedZerobusServer
	cfg    Config
	limits limits

	closing  chan struct{} // closed: streams are told to go
	deadline chan struct{} // closed: streams end now

	mu         sync.Mutex
	shutting   bool
	ended      bool
	grace      time.Duration
	streams    sync.WaitGroup
	committers map[*deltalog.Table]*committer
	running    sync.WaitGroup // committers
}

// New makes a server. Register it, and Shutdown it at the end.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		cfg: cfg, limits: defaultLimits, closing: make(chan struct{}), deadline: make(chan struct{}),
		committers: map[*deltalog.Table]*committer{},
	}
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { zerobuspb.RegisterZerobusServer(r, s) }

// maxRecord is the limit of a record, and of a batch, in bytes (zerobus.md 8.5).
const maxRecord = 10 << 20

// maxMessage is the limit of a whole gRPC message, in bytes. Batches up to it are refused by this package, with INVALID_ARGUMENT and after the
// acknowledgement of what came before; gRPC refuses larger ones at once, with RESOURCE_EXHAUSTED, which clients try again.
const maxMessage = 256 << 20

// ServerOptions are the gRPC options that the service needs: messages far larger than a record, and a codec, so that this package and not
// gRPC refuses what is too large or no message; pings as often as old Java clients send them; large windows. The codec serves other services
// on the same server as gRPC's own does.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.InitialWindowSize(8 << 20),
		grpc.InitialConnWindowSize(16 << 20),
		grpc.ReadBufferSize(256 << 10),
		grpc.WriteBufferSize(32 << 10),
	}
}

// enter counts a stream, unless the server is going.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shutting {
		return false
	}
	s.streams.Add(1)
	return true
}

func errShuttingDown() error {
	return status.Error(codes.Unavailable, "the server is shutting down")
}

// Shutdown announces CloseStreamSignal to every stream, goes on storing and acknowledging until each client has half-closed or
// grace is over, then ends streams with UNAVAILABLE 6002 and stops the committers. The end of ctx ends the grace. A second
// call waits for the same end.
func (s *Server) Shutdown(ctx context.Context, grace time.Duration) error {
	s.mu.Lock()
	if !s.shutting {
		s.shutting, s.grace = true, grace
		close(s.closing)
	}
	s.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.streams.Wait()
	}()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-gone:
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	if !s.ended {
		s.ended = true
		close(s.deadline)
	}
	s.mu.Unlock()
	<-gone // streams end at once now
	s.mu.Lock()
	for _, c := range s.committers {
		c.stop()
	}
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// Drop ends the streams to a table that is about to be removed with NOT_FOUND, and returns when nothing is written to it any more:
// what was acknowledged is in the table until then. Config.Tables must not give this handle for new streams by then, or must
// block until the table is gone.
func (s *Server) Drop(t *deltalog.Table) {
	s.mu.Lock()
	c := s.committers[t]
	delete(s.committers, t)
	s.mu.Unlock()
	if c != nil {
		c.refuse(notFound(c.name))
	}
}

func notFound(table string) error {
	return status.Errorf(codes.NotFound, "Table %q cannot be found.", table)
}

// PersistentStream is in development in the official SDKs; not here yet.
func (s *Server) PersistentStream(grpc.BidiStreamingServer[zerobuspb.PersistentStreamRequest, zerobuspb.PersistentStreamResponse]) error {
	return unimplemented("PersistentStream")
}

// RetireStream belongs to persistent streams.
func (s *Server) RetireStream(context.Context, *zerobuspb.RetireStreamRequest) (*zerobuspb.RetireStreamResponse, error) {
	return nil, unimplemented("RetireStream")
}
