// Package emulator is one whole Databricks workspace in a process: Zerobus endpoint, OAuth, Unity Catalog, over real
// Delta tables in a directory or in memory. Start runs it; Run is the same for Go tests.
package emulator

import (
	"context"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TB is the part of testing.TB that Run needs; this package does not link testing.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Emulator is a running workspace. Safe for concurrent use.
type Emulator struct{ _ int }

// Start starts an emulator and returns when it is ready. With no options: memory store, a free port of 127.0.0.1.
func Start(ctx context.Context, opts ...Option) (*Emulator, error) { panic("pending") }

// Run is Start for a test: it fails tb on error and stops the emulator when tb ends.
func Run(tb TB, opts ...Option) *Emulator { panic("pending") }

// URL is the address to give to an SDK, for both of its arguments: http://127.0.0.1:PORT.
func (e *Emulator) URL() string { panic("pending") }

// Store is where the tables live: NAME of catalog.schema.table is at catalog/schema/table.
func (e *Emulator) Store() store.Store { panic("pending") }

// Table opens catalog.schema.table: the one shared handle of this process.
func (e *Emulator) Table(ctx context.Context, fullName string) (*deltalog.Table, error) {
	panic("pending")
}

// CreateTable makes catalog.schema.table as a managed table, with its schema if that is missing.
func (e *Emulator) CreateTable(ctx context.Context, fullName string, spec deltalog.TableSpec) (*deltalog.Table, error) {
	panic("pending")
}

// Stop announces the end to open streams, finishes their acknowledgements, and stops. A second call, or the end of ctx, stops at once.
func (e *Emulator) Stop(ctx context.Context) error { panic("pending") }

// Option configures Start.
type Option interface{ apply(*struct{}) }
