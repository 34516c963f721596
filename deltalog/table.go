package deltalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// Table is one Delta table. It keeps the newest snapshot it has seen in memory, and refreshes it by trying the
// next version, never by listing. Safe for concurrent use; other processes may commit too.
type Table struct {
	st   store.Store
	opts Options

	// committing is held by the one commit in progress: this process racing itself for a version would only cost retries.
	committing chan struct{}
	// poison is the failed sync after which this table writes no more.
	poison atomic.Pointer[error]
	// seen is when a commit of the log was last seen to be there, in ms since the epoch.
	seen atomic.Int64
	// first is the first version that was in the log when it was last looked at.
	first atomic.Int64

	// mu guards the advance of newest; reading it needs no lock.
	mu     sync.Mutex
	newest atomic.Pointer[Snapshot]
	recent ring
	// fileTimes are of commits that are not recent.
	fileTimes timeCache

	// held is what the last log cleanup was held up at by KeepFrom.
	held atomic.Int64
	// open ends with Close: what the background waits for may itself wait for Close.
	open  context.Context
	close context.CancelFunc

	backgroundMu   sync.Mutex // parts starting work from waiting for its end
	background     sync.WaitGroup
	checkpointing  atomic.Bool
	lastCheckpoint atomic.Int64
	writers        sync.Pool // of data files
	changeWriters  sync.Pool // of change files
}

// Create makes a table in st (rooted at the table's directory): protocol (1,7) with appendOnly, invariants and, when the
// configuration asks for it, changeDataFeed; (3,7) with timestampNtz when the schema needs it (design.md, decision 6).
func Create(ctx context.Context, st store.Store, spec TableSpec, opts Options) (*Table, error) {
	fail := func(err error) (*Table, error) { return nil, fmt.Errorf("create table %s: %w", st.URL(""), err) }
	opts = opts.withDefaults()
	if err := spec.validate(); err != nil {
		return fail(err)
	}
	schema, err := spec.Schema.MarshalJSON() // json.Marshal would escape <, > and & of metadata
	if err != nil {
		return fail(err)
	}
	for info, err := range st.List(ctx, logDir, "") {
		if err != nil {
			return fail(err)
		}
		if parseLogName(info.Name).kind.makesTable() { // version 0 alone does not tell: cleanup removes it some day
			return fail(ErrTableExists)
		}
	}
	ts := opts.Clock().Truncate(time.Millisecond)
	created := ts.UnixMilli()
	config := spec.Configuration
	if config == nil {
		config = map[string]string{}
	}
	meta := &Metadata{
		ID: uuid.NewString(), Name: spec.Name, Description: spec.Description,
		Format:       Format{Provider: "parquet", Options: map[string]string{}},
		SchemaString: string(schema), PartitionColumns: append([]string{}, spec.PartitionColumns...),
		Configuration: config, CreatedTime: &created,
	}
	protocol := newProtocol(spec.Schema, config)
	if err := checkWritable(protocol, meta, spec.Schema); err != nil {
		return fail(err)
	}
	txnID := uuid.NewString()
	info := newCommitInfo(opts, ts, Transaction{Operation: "CREATE TABLE", Parameters: createParameters(spec)}, true, txnID)
	c := &Commit{Timestamp: ts, modified: ts, Actions: []Action{{CommitInfo: info}, {Protocol: protocol}, {Metadata: meta}}}
	t := newTable(st, opts)
	err = t.publish(ctx, c, txnID)
	if errors.Is(err, errTaken) {
		err = ErrTableExists
	}
	if err != nil {
		return fail(err)
	}
	if err := t.advance(&Snapshot{version: -1, set: newFileSet()}, c); err != nil {
		return fail(err)
	}
	return t, nil
}

// validate checks what a table is asked to be.
func (spec TableSpec) validate() error {
	if len(spec.Schema.Fields) == 0 {
		return errors.New("a table needs a column")
	}
	if err := spec.Schema.validate(); err != nil {
		return err
	}
	if _, err := ArrowSchema(spec.Schema); err != nil {
		return err
	}
	for i, c := range spec.PartitionColumns {
		f, ok := spec.Schema.field(c)
		if !ok || f.Name != c {
			return fmt.Errorf("partition column %s is not a column", c)
		}
		switch f.Type.(type) {
		case Array, Map, Struct:
			return fmt.Errorf("partition column %s: type %s cannot partition a table", c, f.Type.SQL())
		}
		if slices.Contains(spec.PartitionColumns[:i], c) {
			return fmt.Errorf("partition column %s is named twice", c)
		}
	}
	if len(spec.PartitionColumns) == len(spec.Schema.Fields) {
		return errors.New("a table needs a column that is no partition column")
	}
	if strings.EqualFold(spec.Configuration[propChangeDataFeed], "true") {
		if err := checkFeedColumns(spec.Schema); err != nil {
			return err
		}
	}
	return validateProperties(spec.Configuration)
}

// validateProperties refuses table properties that this package would not honour.
func validateProperties(config map[string]string) error {
	for _, key := range []string{propLogRetention, propDeletedFileRetention, propTxnRetention} {
		if v, ok := config[key]; ok {
			if _, err := parseInterval(v); err != nil {
				return fmt.Errorf("property %s: %w", key, err)
			}
		}
	}
	for _, key := range unsupportedProperties {
		if v, ok := config[key]; ok && !strings.EqualFold(v, "false") && !strings.EqualFold(v, "none") {
			return fmt.Errorf("property %s: %w", key, ErrUnsupported)
		}
	}
	return nil
}

// unsupportedProperties switch on features that this package does not write: refused rather than ignored.
var unsupportedProperties = []string{
	"delta.columnMapping.mode", "delta.enableDeletionVectors", "delta.enableRowTracking", propICT, "delta.enableTypeWidening",
	"delta.dataSkippingStatsColumns", "delta.randomizeFilePrefixes", "delta.universalFormat.enabledFormats",
}

func createParameters(spec TableSpec) map[string]any {
	text := func(v any) string { b, _ := json.Marshal(v); return string(b) } // strings and maps of strings cannot fail
	partitions := spec.PartitionColumns
	if partitions == nil {
		partitions = []string{}
	}
	config := spec.Configuration
	if config == nil {
		config = map[string]string{}
	}
	return map[string]any{"partitionBy": text(partitions), "properties": text(config), "isManaged": "true"}
}

// Open opens the table in st and loads its newest snapshot.
func Open(ctx context.Context, st store.Store, opts Options) (*Table, error) {
	t := newTable(st, opts.withDefaults())
	snap, err := t.load(ctx, -1)
	if err != nil {
		return nil, fmt.Errorf("open table %s: %w", st.URL(""), err)
	}
	t.newest.Store(snap)
	t.sawLog()
	if _, err := t.Snapshot(ctx); err != nil {
		return nil, fmt.Errorf("open table: %w", err)
	}
	return t, nil
}

func newTable(st store.Store, opts Options) *Table {
	t := &Table{st: st, opts: opts, committing: make(chan struct{}, 1)}
	t.held.Store(math.MinInt64)
	t.open, t.close = context.WithCancel(context.Background())
	return t
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.EngineInfo == "" {
		o.EngineInfo = DefaultEngineInfo
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Store is where the table lives.
func (t *Table) Store() store.Store { return t.st }

// Cached returns the newest snapshot in memory, without I/O.
func (t *Table) Cached() *Snapshot { return t.newest.Load() }

// Snapshot refreshes and returns the newest snapshot. With nothing new it costs one Stat.
func (t *Table) Snapshot(ctx context.Context) (*Snapshot, error) {
	s, err := t.refresh(ctx)
	if err != nil {
		return nil, fmt.Errorf("refresh table %s: %w", t.st.URL(""), err)
	}
	return s, nil
}

func (t *Table) refresh(ctx context.Context) (*Snapshot, error) {
	if err := t.stillThere(ctx); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for first := true; ; first = false {
		cur := t.newest.Load()
		c, err := t.fetch(ctx, cur.version+1, cur.timestamp, nil)
		if errors.Is(err, ErrVersionNotFound) {
			return cur, nil
		}
		if first { // the next version may be another table's
			now, err := t.look(ctx, cur.version)
			if err != nil {
				return nil, err
			}
			if now != nil {
				t.adopt(now)
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if err := t.advance(cur, c); err != nil {
			return nil, err
		}
	}
}

// advance makes the snapshot of c's version the newest. The caller holds mu.
func (t *Table) advance(cur *Snapshot, c *Commit) error {
	next, err := cur.next(c)
	if err != nil {
		return err
	}
	t.recent.add(c)
	t.newest.Store(next)
	t.sawLog()
	return nil
}

func (t *Table) sawLog() { t.seen.Store(t.opts.Clock().UnixMilli()) }

// stillThere makes sure that the log has not moved on without us. Cleanup elsewhere may have removed what follows the newest version known here
// once that is older than the log's retention (a process that was stopped, a laptop that slept): the next version would seem not to be there yet.
// So after half of the retention without news the log is looked at, which otherwise costs nothing.
func (t *Table) stillThere(ctx context.Context) error {
	cur := t.Cached()
	if t.opts.Clock().UnixMilli()-t.seen.Load() < cur.metadata.interval(propLogRetention, defaultLogRetention).Milliseconds()/2 {
		return nil
	}
	return t.sameLog(ctx)
}

// next is the snapshot after c. Only the newest snapshot of a table may be advanced.
func (s *Snapshot) next(c *Commit) (*Snapshot, error) {
	n := *s
	n.version, n.timestamp, n.modified = c.Version, c.Timestamp, c.modified
	for i := range c.Actions {
		switch a := &c.Actions[i]; {
		case a.Protocol != nil:
			n.protocol = a.Protocol
		case a.Metadata != nil:
			n.metadata = a.Metadata
		case a.DomainMetadata != nil:
			n.setDomain(a.DomainMetadata)
		}
	}
	if n.protocol != s.protocol || n.metadata != s.metadata {
		if err := n.settle(); err != nil {
			return nil, fmt.Errorf("version %d: %w", c.Version, err)
		}
	}
	var expired int64
	if n.metadata != nil {
		expired = c.Timestamp.Add(-n.metadata.interval(propDeletedFileRetention, defaultDeletedFileRetention)).UnixMilli()
	}
	n.set.apply(c.Version, c.Actions, expired)
	n.set.mu.RLock()
	n.entries, n.live, n.bytes = n.set.entries[:len(n.set.entries):len(n.set.entries)], n.set.live, n.set.bytes
	n.set.mu.RUnlock()
	return &n, nil
}

// setDomain gives the snapshot in the making a list of domains of its own, as earlier ones keep theirs.
func (s *Snapshot) setDomain(d *DomainMetadata) {
	domains := maps.Clone(s.domains)
	if domains == nil {
		domains = map[string]*DomainMetadata{}
	}
	if d.Removed {
		delete(domains, d.Domain)
	} else {
		domains[d.Domain] = d
	}
	s.domains = domains
}

// settle derives what follows from metadata and protocol, and refuses what cannot be read.
func (s *Snapshot) settle() error {
	if s.protocol == nil || s.metadata == nil {
		return nil // still replaying
	}
	if err := checkReadable(s.protocol, s.metadata); err != nil {
		return err
	}
	schema, err := MappedSchema(s.metadata)
	if err != nil {
		return err
	}
	s.schema = schema
	s.writable = checkWritable(s.protocol, s.metadata, schema)
	s.set.setColumns(schema.storedNames(s.metadata.PartitionColumns), s.version)
	return nil
}

// Close waits for background work (checkpoints) to end.
func (t *Table) Close() error {
	t.close()
	t.backgroundMu.Lock()
	defer t.backgroundMu.Unlock()
	t.background.Wait()
	return nil
}
