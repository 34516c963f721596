// Package zerobusfake is the Zerobus endpoint: the gRPC service that official SDKs speak to. It decodes records
// straight into Arrow builders, checks them against the table, commits what all streams of a table have waiting
// as one Delta version, and only then acknowledges.
package zerobusfake

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/deltabus/deltabus-local/deltalog"
)

// ErrTableNotFound is what Tables.Table wraps for a name that does not exist.
var ErrTableNotFound = errors.New("table not found")

// Tables finds tables by catalog.schema.table.
type Tables interface {
	// Table opens a table. An absent one is an error that matches deltalog.ErrNotTable.
	Table(ctx context.Context, fullName string) (*deltalog.Table, error)
}

// Config of a Server.
type Config struct {
	Tables Tables
	// Clock; default time.Now.
	Clock func() time.Time
	// CommitInterval spaces the commits of a busy table; 0: adaptive, commit at once when idle, at most some 50 commits a second when busy
	// (design.md, decision 8).
	CommitInterval time.Duration
	Logger         *slog.Logger
}

// Server serves the Zerobus gRPC service. Safe for concurrent use.
type Server struct{ _ int }

// New makes a server. Register it, and Shutdown it at the end.
func New(cfg Config) *Server { panic("pending") }

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { panic("pending") }

// ServerOptions are the gRPC options that the service needs: message size, keepalive leniency, windows.
func ServerOptions() []grpc.ServerOption { panic("pending") }

// Shutdown announces CloseStreamSignal to every stream, goes on acknowledging until each client has half-closed or grace is
// over, then ends streams with UNAVAILABLE 6002 and stops the committers.
func (s *Server) Shutdown(ctx context.Context, grace time.Duration) error { panic("pending") }
