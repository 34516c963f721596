package deltalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

func TestTransactionsThatNoCommitMayHold(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{PartitionColumns: []string{"p"}})
	appendRows(t, tab, `{"id":1,"p":"a"}`, `{"id":2,"p":"b"}`)
	s := tab.Cached()
	var live []*Add
	for a := range s.Files() {
		live = append(live, a)
	}
	metadata := func(change func(*Metadata)) *Metadata {
		m := *s.Metadata()
		change(&m)
		return &m
	}
	for name, c := range map[string]struct {
		tx   Transaction
		want string
	}{
		"no operation":          {Transaction{Operation: ""}, "operation"},
		"a file twice":          {Transaction{Adds: []Add{*fileNamed("x"), *fileNamed("x")}}, "twice"},
		"a file under 2 names":  {Transaction{Adds: []Add{*fileNamed("a b"), *fileNamed("a%20b")}}, "twice"},
		"added and removed":     {Transaction{Adds: []Add{*live[0]}, Removes: live[:1]}, "twice"},
		"a txn twice":           {Transaction{Txns: []Txn{{AppID: "a", Version: 1}, {AppID: "a", Version: 2}}}, "two txns"},
		"removes what is not":   {Transaction{Removes: []*Add{fileNamed("none")}}, "not in the table"},
		"schema is no JSON":     {Transaction{Metadata: metadata(func(m *Metadata) { m.SchemaString = "{" })}, "schema"},
		"another id":            {Transaction{Metadata: metadata(func(m *Metadata) { m.ID = "other" })}, "id"},
		"feed without feature":  {Transaction{Metadata: metadata(func(m *Metadata) { m.Configuration = map[string]string{propChangeDataFeed: "true"} })}, "changeDataFeed"},
		"property not honoured": {Transaction{Metadata: metadata(func(m *Metadata) { m.Configuration = map[string]string{"delta.enableRowTracking": "true"} })}, "delta.enableRowTracking"},
		"protocol not known":    {Transaction{Protocol: &Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"future"}, WriterFeatures: []string{"future"}}}, "future"},
	} {
		tx := c.tx
		tx.Base = s
		if name != "no operation" {
			tx.Operation = "TEST"
		}
		if _, err := tab.Commit(t.Context(), tx); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := tab.Commit(t.Context(), Transaction{Operation: "TEST"}); err == nil {
		t.Error("no base: committed")
	}
	if v := tab.Cached().Version(); v != 1 {
		t.Errorf("something was committed: version %d", v)
	}
}

func fileNamed(path string) *Add { return &Add{Path: path, PartitionValues: map[string]*string{}} }

func TestAppendOnly(t *testing.T) {
	t.Parallel()
	tab := createTable(t, store.NewMemory(), quiet, TableSpec{PartitionColumns: []string{"p"}})
	appendRows(t, tab, `{"id":1,"p":"a"}`)
	base := tab.Cached()
	m := *base.Metadata()
	m.Configuration = map[string]string{propAppendOnly: "true"}
	if _, err := tab.Commit(t.Context(), Transaction{Base: base, Operation: "SET TBLPROPERTIES", Metadata: &m}); err != nil {
		t.Fatal(err)
	}
	// Also for a transaction that began before: what counts is the table it would be part of.
	tx := replacing("a")(tab, base)
	if _, err := tab.Commit(t.Context(), tx); err == nil || !strings.Contains(err.Error(), "DELTA_CANNOT_MODIFY_APPEND_ONLY") {
		t.Errorf("got %v", err)
	}
	tx.NoDataChange = true
	if _, err := tab.Commit(t.Context(), tx); err != nil {
		t.Errorf("a rearrangement: %v", err)
	}
}

// TestCreateFindsWhatCleanupLeft: version 0 is gone some day; the table is not.
func TestCreateFindsWhatCleanupLeft(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	history(t, st)
	delCommits(t, st, 0, 6)
	if _, err := Create(t.Context(), st, TableSpec{Schema: testColumns(t, "a INT")}, quiet); !errors.Is(err, ErrTableExists) {
		t.Errorf("got %v", err)
	}
}

// TestCreateRace: one of many creates the table, the others are told.
func TestCreateRace(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	var won atomic.Int64
	results := make(chan error, 8)
	for range cap(results) {
		spec := TableSpec{Schema: testColumns(t, "a INT")}
		go func() {
			_, err := Create(context.Background(), st, spec, quiet)
			results <- err
		}()
	}
	for range cap(results) {
		if err := <-results; err == nil {
			won.Add(1)
		} else if !errors.Is(err, ErrTableExists) {
			t.Error(err)
		}
	}
	if won.Load() != 1 {
		t.Errorf("%d created it", won.Load())
	}
}

// TestUnclearCreateIsSettled as commits are.
func TestUnclearCreateIsSettled(t *testing.T) {
	t.Parallel()
	st := store.WithFaults(store.NewMemory(), func(op store.Op) store.Fault {
		if op.Kind == "put" {
			return store.FailAfter
		}
		return store.None
	})
	tab, err := Create(t.Context(), st, TableSpec{Schema: testColumns(t, "a INT")}, quiet)
	if err != nil || tab.Cached().Version() != 0 {
		t.Errorf("got %v", err)
	}
}

// lyingStore says that a commit's name was taken although it has just taken it, as a client that repeats a lost request does.
type lyingStore struct {
	store.Store
	lie, blind bool
}

func (l *lyingStore) Put(ctx context.Context, name string, data []byte, opts store.PutOptions) error {
	err := l.Store.Put(ctx, name, data, opts)
	if err == nil && opts.IfAbsent && l.lie {
		return fmt.Errorf("put %s: %w", name, store.ErrExist)
	}
	return err
}

func (l *lyingStore) Get(ctx context.Context, name string) ([]byte, error) {
	if l.blind {
		return nil, fmt.Errorf("get %s: %w", name, store.ErrInjected)
	}
	return l.Store.Get(ctx, name)
}

// TestOwnCommitSaidToBeTaken: it is not committed a second time.
func TestOwnCommitSaidToBeTaken(t *testing.T) {
	t.Parallel()
	st := &lyingStore{Store: store.NewMemory()}
	tab := createTable(t, st, quiet, TableSpec{})
	st.lie = true
	c := appendRows(t, tab, id(1))
	if c.Version != 1 || tab.Cached().Version() != 1 {
		t.Errorf("version %d of %d", c.Version, tab.Cached().Version())
	}
	st.blind = true
	_, err := tab.Commit(t.Context(), Transaction{Base: tab.Cached(), Operation: "WRITE", Adds: []Add{*fileNamed("x")}})
	if !errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrConflict) {
		t.Errorf("neither answer nor reading back: %v", err)
	}
	st.lie, st.blind = false, false
	if s, err := tab.Snapshot(t.Context()); err != nil || s.Version() != 2 || s.NumFiles() != 2 {
		t.Errorf("afterwards: %v, %v", s, err)
	}
}

// TestCommitWaitsNoLongerThanItsCaller: neither for its turn nor for a version.
func TestCommitWaitsNoLongerThanItsCaller(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	hold := false
	st := store.WithFaults(store.NewMemory(), func(op store.Op) store.Fault {
		if hold && op.IfAbsent {
			close(entered)
			<-release
		}
		return store.None
	})
	tab := createTable(t, st, quiet, TableSpec{})
	hold = true
	first := make(chan error)
	go func() {
		_, err := tab.Commit(context.Background(), Transaction{Base: tab.Cached(), Operation: "WRITE"})
		first <- err
	}()
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tab.Commit(ctx, Transaction{Base: tab.Cached(), Operation: "WRITE"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestRemoveOfAnOldWriter says nothing about its partition: whoever read any partition conflicts.
func TestRemoveOfAnOldWriter(t *testing.T) {
	t.Parallel()
	tx := Transaction{ReadPartitions: []map[string]string{{"p": "a"}}}
	c := &Commit{Actions: []Action{{Remove: &Remove{Path: "x", DataChange: true}}}}
	if err := tx.checkWinner(c); !errors.Is(err, ErrConflict) {
		t.Errorf("got %v", err)
	}
	if err := new(Transaction).checkWinner(c); err != nil {
		t.Errorf("a blind append: %v", err)
	}
}

// TestLogMovedOnWhileStopped: what follows the known version has been cleaned up meanwhile; neither is the table taken for unchanged, nor is a
// version committed that nobody will read.
func TestLogMovedOnWhileStopped(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(1_700_000_000_000)
	clock := func() time.Time { return time.UnixMilli(now.Load()) }
	st := store.NewMemory()
	opts := Options{CheckpointInterval: 10, Clock: clock}
	active := createTable(t, st, opts, TableSpec{Configuration: map[string]string{propLogRetention: "interval 1 hour"}})
	for _, wake := range []func(*Table) error{
		func(stopped *Table) error { _, err := stopped.Snapshot(t.Context()); return err },
		func(stopped *Table) error {
			_, err := stopped.Append(t.Context(), nil, "WRITE")
			return err
		},
	} {
		stopped, err := Open(t.Context(), st, opts)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			now.Add(int64(10 * time.Minute / time.Millisecond))
			appendRows(t, active, id(i))
			if err := active.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if ok, err := st.Stat(t.Context(), logName(stopped.Cached().Version()+1)); err == nil {
			t.Fatalf("not cleaned up: %v", ok)
		}
		if err := wake(stopped); err != nil {
			t.Fatal(err)
		}
		if got, want := stopped.Cached().Version(), active.Cached().Version(); got < want {
			t.Errorf("version %d, the table is at %d", got, want)
		}
		if _, err := active.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
