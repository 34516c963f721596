package cdf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type clock struct{ at time.Time }

func (c *clock) now() time.Time { c.at = c.at.Add(time.Second); return c.at }

// newTable makes a table with the feed; version i+1 holds row i.
func newTable(t testing.TB, st store.Store, rows int, config map[string]string) *deltalog.Table {
	t.Helper()
	f, err := deltalog.ParseColumn("id BIGINT NOT NULL")
	if err != nil {
		t.Fatal(err)
	}
	c := &clock{time.UnixMilli(1_700_000_000_000)}
	if config == nil {
		config = map[string]string{"delta.enableChangeDataFeed": "true"}
	}
	tab, err := deltalog.Create(context.Background(), st, deltalog.TableSpec{Schema: deltalog.Struct{Fields: []deltalog.Field{f}}, Configuration: config},
		deltalog.Options{CheckpointInterval: -1, Clock: c.now})
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		add(t, tab, int64(i))
	}
	return tab
}

func rowsOf(t testing.TB, tab *deltalog.Table, ids ...int64) []arrow.RecordBatch {
	t.Helper()
	schema, err := deltalog.ArrowSchema(tab.Cached().Schema())
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	b.Field(0).(*array.Int64Builder).AppendValues(ids, nil)
	return []arrow.RecordBatch{b.NewRecordBatch()}
}

func add(t testing.TB, tab *deltalog.Table, ids ...int64) *deltalog.Commit {
	t.Helper()
	c, err := tab.Append(context.Background(), rowsOf(t, tab, ids...), "WRITE")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// read is the feed as "version:id version:id …", or its error.
func read(tab *deltalog.Table, r Range) (string, error) {
	var out []string
	for b, err := range Read(context.Background(), tab, r, nil) {
		if err != nil {
			return "", err
		}
		for _, id := range b.Rows.Column(0).(*array.Int64).Int64Values() {
			out = append(out, fmt.Sprintf("%d:%d", b.Version, id))
		}
	}
	return strings.Join(out, " "), nil
}

func versions(start, end int64) Range {
	r := Range{StartVersion: &start}
	if end >= 0 {
		r.EndVersion = &end
	}
	return r
}

func TestRanges(t *testing.T) {
	t.Parallel()
	tab := newTable(t, store.NewMemory(), 4, nil)
	at := make([]time.Time, 5)
	for v := range at {
		c, err := tab.ReadCommit(t.Context(), int64(v))
		if err != nil {
			t.Fatal(err)
		}
		at[v] = c.Timestamp
	}
	ms := time.Millisecond
	negative := int64(-1)
	tests := []struct {
		name string
		r    Range
		want string
		err  string
	}{
		{"all", versions(0, -1), "1:0 2:1 3:2 4:3", ""},
		{"the newest alone", versions(4, 4), "4:3", ""},
		{"end beyond the newest", versions(3, 99), "3:2 4:3", ""},
		{"start beyond the newest", versions(5, -1), "", "DELTA_CDC_START_VERSION_AFTER_LATEST"},
		{"backwards", versions(3, 2), "", "DELTA_INVALID_CDC_RANGE"},
		{"negative", Range{StartVersion: &negative}, "", "DELTA_VERSION_INVALID"},
		{"no start", Range{}, "", "DELTA_NO_START_FOR_CDC_READ"},
		{"two starts", Range{StartVersion: new(int64), StartTime: at[0]}, "", "DELTA_MULTIPLE_CDC_BOUNDARY"},
		{"times", Range{StartTime: at[1], EndTime: at[2]}, "1:0 2:1", ""},
		{"time between commits", Range{StartTime: at[1].Add(ms), EndTime: at[3].Add(-ms)}, "2:1", ""},
		{"both between the same commits", Range{StartTime: at[1].Add(ms), EndTime: at[1].Add(2 * ms)}, "", ""},
		{"before the first", Range{StartTime: at[0].Add(-time.Hour)}, "1:0 2:1 3:2 4:3", ""},
		{"after the newest", Range{StartTime: at[4].Add(ms)}, "", "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"},
		{"end after the newest", Range{StartVersion: new(int64), EndTime: at[4].Add(ms)}, "", "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"},
		{"end before the first", Range{StartVersion: new(int64), EndTime: at[0].Add(-ms)}, "", "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION"},
	}
	for _, tt := range tests {
		got, err := read(tab, tt.r)
		if tt.err == "" && err != nil || tt.err != "" && (!errors.Is(err, ErrRange) || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRearrangementsGiveNothing(t *testing.T) {
	t.Parallel()
	tab := newTable(t, store.NewMemory(), 3, nil)
	tx := deltalog.Transaction{Base: tab.Cached(), Operation: "OPTIMIZE", NoDataChange: true, ReadTable: true}
	for a := range tab.Cached().Files() {
		tx.Removes = append(tx.Removes, a)
	}
	var err error
	if tx.Adds, err = tab.WriteFiles(t.Context(), tab.Cached(), rowsOf(t, tab, 0, 1, 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := tab.Commit(t.Context(), tx); err != nil {
		t.Fatal(err)
	}
	add(t, tab, 9)
	if got, err := read(tab, versions(0, -1)); err != nil || got != "1:0 2:1 3:2 5:9" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFeedMustBeOn(t *testing.T) {
	t.Parallel()
	tab := newTable(t, store.NewMemory(), 2, map[string]string{})
	if _, err := read(tab, versions(1, -1)); !errors.Is(err, ErrNotEnabled) || !strings.Contains(err.Error(), "DELTA_MISSING_CHANGE_DATA") {
		t.Errorf("never on: %v", err)
	}
	// On from version 3, off from version 5.
	alter := func(on string) {
		m := *tab.Cached().Metadata()
		m.Configuration = map[string]string{"delta.enableChangeDataFeed": on}
		p := *tab.Cached().Protocol()
		p.WriterFeatures = []string{"appendOnly", "invariants", "changeDataFeed"}
		if _, err := tab.Commit(t.Context(), deltalog.Transaction{Base: tab.Cached(), Operation: "SET TBLPROPERTIES", Metadata: &m, Protocol: &p}); err != nil {
			t.Fatal(err)
		}
	}
	alter("true")
	add(t, tab, 7)
	if got, err := read(tab, versions(3, -1)); err != nil || got != "4:7" {
		t.Errorf("from when it was on: %q, %v", got, err)
	}
	if _, err := read(tab, versions(2, -1)); !errors.Is(err, ErrNotEnabled) || !strings.Contains(err.Error(), "[2]") {
		t.Errorf("from before: %v", err)
	}
	alter("false")
	if _, err := read(tab, versions(3, -1)); !errors.Is(err, ErrNotEnabled) || !strings.Contains(err.Error(), "[5]") {
		t.Errorf("over when it was off: %v", err)
	}
}

func TestWhatIsGoneIsSaid(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tab := newTable(t, st, 3, nil)
	for a := range tab.Cached().Files() {
		if err := st.Delete(t.Context(), a.Path); err != nil {
			t.Fatal(err)
		}
		break
	}
	if _, err := read(tab, versions(0, -1)); !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), "version 1") {
		t.Errorf("a vacuumed file: %v", err)
	}
	if got, err := read(tab, versions(2, -1)); err != nil || got != "2:1 3:2" {
		t.Errorf("behind it: %q, %v", got, err)
	}
}

func TestFollowerCostsOneStatWhenIdle(t *testing.T) {
	t.Parallel()
	var ops []string
	tab := newTable(t, store.WithFaults(store.NewMemory(), func(op store.Op) store.Fault {
		ops = append(ops, op.Kind)
		return store.None
	}), 3, nil)
	f := Follow(tab, 0, nil)
	for want := int64(1); want <= 3; want++ {
		v, err := f.Next(t.Context())
		if err != nil || v == nil || v.Version != want || v.Rows != 1 {
			t.Fatalf("got %+v, %v", v, err)
		}
		for b, err := range v.Batches {
			if err != nil || b.ChangeType(0) != Insert || b.Rows.NumRows() != 1 {
				t.Errorf("batch %+v, %v", b, err)
			}
		}
	}
	ops = nil
	for range 5 {
		if v, err := f.Next(t.Context()); v != nil || err != nil {
			t.Errorf("got %+v, %v", v, err)
		}
	}
	if fmt.Sprint(ops) != "[stat stat stat stat stat]" {
		t.Errorf("idle polls cost %v", ops)
	}
	add(t, tab, 5)
	if v, err := f.Next(t.Context()); err != nil || v == nil || v.Version != 4 {
		t.Errorf("got %+v, %v", v, err)
	}
}

func ids(rec arrow.RecordBatch) []int64 { return rec.Column(0).(*array.Int64).Int64Values() }
