package cdf

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// manyRows is n rows from first on.
func manyRows(first, n int64) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = first + int64(i)
	}
	return ids
}

// addFiles commits one version of so many files of so many rows, whose ids go on from file to file.
func addFiles(t testing.TB, tab *deltalog.Table, files int, rows int64) {
	t.Helper()
	tx := deltalog.Transaction{Base: tab.Cached(), Operation: "WRITE"}
	for i := range files {
		adds, err := tab.WriteFiles(t.Context(), tab.Cached(), rowsOf(t, tab, manyRows(int64(i)*rows, rows)...))
		if err != nil {
			t.Fatal(err)
		}
		tx.Adds = append(tx.Adds, adds...)
	}
	if _, err := tab.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
}

// TestAheadKeepsOrder: whatever is decoded first, versions and the rows of each come in order.
func TestAheadKeepsOrder(t *testing.T) {
	t.Parallel()
	tab := newTable(t, store.NewMemory(), 0, nil)
	next := int64(0)
	for v := range int64(30) { // the large ones take longer than those behind them
		n := []int64{1, 40_000, 3}[v%3]
		add(t, tab, manyRows(next, n)...)
		next += n
	}
	want, version := int64(0), int64(0)
	for b, err := range Read(t.Context(), tab, versions(0, -1), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Version < version {
			t.Fatalf("version %d after %d", b.Version, version)
		}
		version = b.Version
		for _, id := range ids(b.Rows) {
			if id != want {
				t.Fatalf("version %d: row %d has id %d", version, want, id)
			}
			want++
		}
	}
	if want != next || version != 30 {
		t.Errorf("%d of %d rows, up to version %d", want, next, version)
	}
}

// TestErrorComesInItsPlace: what stands before a broken file is delivered, then its error, and nothing more.
func TestErrorComesInItsPlace(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, make := range map[string]func(tab *deltalog.Table){
		"five versions": func(tab *deltalog.Table) {
			for i := range int64(5) {
				add(t, tab, manyRows(i*20_000, 20_000)...)
			}
		},
		"one version": func(tab *deltalog.Table) { addFiles(t, tab, 5, 20_000) },
	} {
		st := store.NewMemory()
		tab := newTable(t, st, 0, nil)
		make(tab)
		var third string
		n := 0
		for v := int64(1); v <= tab.Cached().Version(); v++ {
			c, err := tab.ReadCommit(ctx, v)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range c.Actions {
				if a.Add != nil {
					if n++; n == 3 {
						third = a.Add.Path
					}
				}
			}
		}
		if err := st.Delete(ctx, third); err != nil {
			t.Fatal(err)
		}
		rows, errs := 0, 0
		for b, err := range Read(ctx, tab, versions(0, -1), nil) {
			if err == nil {
				rows += int(b.Rows.NumRows())
				continue
			}
			errs++
			if !errors.Is(err, ErrExpired) || !errors.Is(err, store.ErrNotExist) || !strings.Contains(err.Error(), third) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if rows != 40_000 || errs != 1 {
			t.Errorf("%s: %d rows, %d errors", name, rows, errs)
		}
	}
}

// TestCancelledInMidRead: once the context is done no batch follows, only its error; and who breaks off leaves nothing running (goleak).
func TestCancelledInMidRead(t *testing.T) {
	t.Parallel()
	tab := newTable(t, store.NewMemory(), 0, nil)
	addFiles(t, tab, 6, 50_000)
	addFiles(t, tab, 6, 50_000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	batches, errs := 0, 0
	for _, err := range Read(ctx, tab, versions(0, -1), nil) {
		if err == nil {
			if batches++; batches == 3 {
				cancel()
			}
			continue
		}
		if errs++; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if batches != 3 || errs != 1 {
		t.Errorf("%d batches, %d errors", batches, errs)
	}
	for _, err := range Read(t.Context(), tab, versions(0, -1), nil) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	func() {
		defer func() {
			if r := recover(); r != "mine" {
				t.Errorf("the reader's own panic came as %v", r)
			}
		}()
		for _, err := range Read(t.Context(), tab, versions(0, -1), nil) {
			if err == nil {
				panic("mine")
			}
		}
	}()
}

// TestCancelledWhileStoreHangs: a store that does not answer does not hold up the reader for longer than its own cancellation.
func TestCancelledWhileStoreHangs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var reads atomic.Int64
	hanging := func(_ context.Context, name string) bool {
		return strings.HasSuffix(name, ".parquet") && reads.Add(1) > 2
	}
	tab := newTable(t, hangingStore{store.NewMemory(), hanging, cancel}, 5, nil)
	got, err := "", error(nil)
	for b, e := range Read(ctx, tab, versions(0, -1), nil) {
		if err = e; e == nil {
			got += fmt.Sprint(ids(b.Rows))
		}
	}
	if !errors.Is(err, context.Canceled) || strings.Contains(got, "2") {
		t.Errorf("%s, %v", got, err)
	}
}

// hangingStore opens some files never: it cancels who waits instead.
type hangingStore struct {
	store.Store
	hangs  func(context.Context, string) bool
	cancel func()
}

func (h hangingStore) Open(ctx context.Context, name string) (store.File, error) {
	if h.hangs(ctx, name) {
		h.cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Store.Open(ctx, name)
}

// TestAheadIsBounded: a version of many files is read in little memory, however slowly it is taken: files wait to be opened.
func TestAheadIsBounded(t *testing.T) {
	t.Parallel()
	var opened atomic.Int64
	tab := newTable(t, countingStore{store.NewMemory(), &opened}, 0, nil)
	addFiles(t, tab, 60, 2_000)
	limit := int64(min(runtime.GOMAXPROCS(0), 8))
	file := int64(0)
	for b, err := range Read(t.Context(), tab, versions(0, -1), nil) {
		if err != nil {
			t.Fatal(err)
		}
		file = ids(b.Rows)[0]/2_000 + 1
		for range 100 {
			runtime.Gosched() // let those run that read ahead
		}
		if n := opened.Load(); n > file+limit {
			t.Fatalf("%d files opened while file %d is taken", n, file)
		}
	}
	if file != 60 {
		t.Errorf("file %d was the last", file)
	}
}

type countingStore struct {
	store.Store
	opened *atomic.Int64
}

func (c countingStore) Open(ctx context.Context, name string) (store.File, error) {
	if strings.HasSuffix(name, ".parquet") {
		c.opened.Add(1)
	}
	return c.Store.Open(ctx, name)
}

// BenchmarkRead reads a million rows of 200 bytes in 20 versions, files on disk.
func BenchmarkRead(b *testing.B) {
	const versionsRead, rows = 20, 50_000
	var fields []deltalog.Field
	for _, d := range []string{"id BIGINT", "p STRING"} {
		f, err := deltalog.ParseColumn(d)
		if err != nil {
			b.Fatal(err)
		}
		fields = append(fields, f)
	}
	st, err := store.NewLocal(b.TempDir(), false)
	if err != nil {
		b.Fatal(err)
	}
	tab, err := deltalog.Create(b.Context(), st, deltalog.TableSpec{
		Schema:        deltalog.Struct{Fields: fields},
		Configuration: map[string]string{"delta.enableChangeDataFeed": "true"},
	}, deltalog.Options{})
	if err != nil {
		b.Fatal(err)
	}
	schema, err := deltalog.ArrowSchema(tab.Cached().Schema())
	if err != nil {
		b.Fatal(err)
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := range rows {
		rb.Field(0).(*array.Int64Builder).Append(int64(i))
		rb.Field(1).(*array.StringBuilder).Append(strings.Repeat("x", 200))
	}
	batch := rb.NewRecordBatch()
	for range versionsRead {
		if _, err := tab.Append(b.Context(), []arrow.RecordBatch{batch}, "WRITE"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		n := int64(0)
		for batch, err := range Read(b.Context(), tab, versions(1, -1), nil) {
			if err != nil {
				b.Fatal(err)
			}
			n += batch.Rows.NumRows()
		}
		if n != versionsRead*rows {
			b.Fatalf("%d rows", n)
		}
	}
	b.ReportMetric(versionsRead*rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// TestHugeVersionInBoundedMemory: what lives while a version of many files is read does not grow with the version.
func TestHugeVersionInBoundedMemory(t *testing.T) { // alone: it measures the heap
	const files, rows = 60, 250_000 // 2 MB each
	st := store.NewMemory()
	tab := newTable(t, st, 0, nil)
	adds, err := tab.WriteFiles(t.Context(), tab.Cached(), rowsOf(t, tab, manyRows(0, rows)...))
	if err != nil {
		t.Fatal(err)
	}
	data, err := st.Get(t.Context(), adds[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	tx := deltalog.Transaction{Base: tab.Cached(), Operation: "WRITE"}
	for i := range files {
		a := adds[0]
		a.Path = fmt.Sprintf("copy-%d.parquet", i)
		if err := st.Put(t.Context(), a.Path, data, store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		tx.Adds = append(tx.Adds, a)
	}
	if _, err := tab.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most, n := live(), int64(0), int64(0)
	for b, err := range Read(t.Context(), tab, versions(0, -1), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if n += b.Rows.NumRows(); n/8192%64 == 0 {
			most = max(most, live()-before)
		}
	}
	limit := int64(min(runtime.GOMAXPROCS(0), 8)+1)*(4<<20) + 8<<20 // of 120 MB
	if n != files*rows || most == 0 || most > limit {
		t.Errorf("%d rows; %d bytes were alive at once, more than %d", n, most, limit)
	}
}
