package emulator

import (
	"context"
	"log/slog"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Option changes how Start starts.
type Option interface{ apply(*settings) }

type settings struct {
	listen         string
	tlsListen      string
	tlsNames       []string
	dataDir        string
	noSync         bool
	commitInterval time.Duration
	logger         *slog.Logger
	clock          func() time.Time
	seed           *Seed
	beforeReady    []func(context.Context, *Emulator) error
	grace          time.Duration
	tableOptions   []TableOptions
	s3             *store.S3Options
}

type optionFunc func(*settings)

func (f optionFunc) apply(s *settings) { f(s) }

// WithListen sets the address of the plain port, which speaks gRPC (HTTP/2 without TLS) and HTTP/1.1. Default
// 127.0.0.1:0, a free port. On 127.0.0.1 the same port of ::1 is served too, where there is one.
func WithListen(addr string) Option { return optionFunc(func(s *settings) { s.listen = addr }) }

// WithoutListener opens no plain port: the emulator is reached by DialContext only, within the process.
func WithoutListener() Option { return optionFunc(func(s *settings) { s.listen = "" }) }

// WithTLS serves TLS on addr too, with a certificate of a small authority of its own (CAFile) for localhost, 127.0.0.1,
// ::1, host.docker.internal and names. Default: no TLS.
func WithTLS(addr string, names ...string) Option {
	return optionFunc(func(s *settings) { s.tlsListen, s.tlsNames = addr, names })
}

// WithDataDir keeps everything in a directory, which is made if missing. One emulator at a time may have it: a second
// one gets a *LockedError. Default: memory.
func WithDataDir(dir string) Option { return optionFunc(func(s *settings) { s.dataDir = dir }) }

// WithS3 keeps the managed tables in a bucket: catalog.schema.table is below PREFIX/catalog/schema/table. The rest (names, credentials) stays in the
// data directory, which remembers the bucket. A start fails if the bucket does not honour If-None-Match (store.ErrDishonest), or if the directory has
// tables elsewhere (ErrStorage). Tables that are in the bucket already belong to a new data directory, too. Default: in the data directory.
func WithS3(o store.S3Options) Option { return optionFunc(func(s *settings) { s.s3 = &o }) }

// WithMemory keeps everything in memory: the default, named for the sake of tests that choose. It undoes WithDataDir.
func WithMemory() Option { return optionFunc(func(s *settings) { s.dataDir = "" }) }

// WithNoSync never syncs files: faster, and what was acknowledged may be lost if the machine stops (not if the process
// does). Default: everything acknowledged is synced.
func WithNoSync() Option { return optionFunc(func(s *settings) { s.noSync = true }) }

// WithCommitInterval spaces the commits of each table's Zerobus streams. Default: adaptive, see zerobusfake.
func WithCommitInterval(d time.Duration) Option {
	return optionFunc(func(s *settings) { s.commitInterval = d })
}

// WithLogger sets where logs go. Default: nowhere.
func WithLogger(l *slog.Logger) Option { return optionFunc(func(s *settings) { s.logger = l }) }

// WithClock sets the clock that commit times are taken from. Default time.Now.
func WithClock(now func() time.Time) Option { return optionFunc(func(s *settings) { s.clock = now }) }

// WithSeed makes what the seed names before the emulator is ready; what exists already must agree with it.
func WithSeed(seed *Seed) Option { return optionFunc(func(s *settings) { s.seed = seed }) }

// WithBeforeReady runs f after the seed and before the emulator reports itself ready; an error stops the start.
func WithBeforeReady(f func(context.Context, *Emulator) error) Option {
	return optionFunc(func(s *settings) { s.beforeReady = append(s.beforeReady, f) })
}

// WithGrace sets how long Stop lets open streams finish. Default 2 s: SDKs that are told go within that, and they bear a
// restart of some 7 s.
func WithGrace(d time.Duration) Option { return optionFunc(func(s *settings) { s.grace = d }) }

// TableOptions changes the options of a table that a workspace opens, by its full name. open opens another table of the workspace for reading,
// apart from the shared handles and their locks, so that work in the background may use it; the caller closes it. An absent table is an
// error that matches deltalog.ErrNotTable.
type TableOptions func(fullName string, open func(context.Context, string) (*deltalog.Table, error), o *deltalog.Options)

// WithTableOptions lets f change the options of every table. A bus wants deltabus.KeepForConsumers here, so that the log keeps what its
// consumers still need.
func WithTableOptions(f TableOptions) Option {
	return optionFunc(func(s *settings) { s.tableOptions = append(s.tableOptions, f) })
}
