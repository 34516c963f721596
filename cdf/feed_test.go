package cdf

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestCleanedLog: versions that the log no longer has are expired, whoever asks and however.
func TestCleanedLog(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tab := newTable(t, st, 6, nil)
	c, err := tab.ReadCommit(t.Context(), 4)
	if err != nil {
		t.Fatal(err)
	}
	middle := c.Timestamp
	if err := tab.Checkpoint(t.Context(), tab.Cached()); err != nil {
		t.Fatal(err)
	}
	for v := range 4 {
		if err := st.Delete(t.Context(), fmt.Sprintf("_delta_log/%020d.json", v)); err != nil {
			t.Fatal(err)
		}
	}
	// Another process opens the table: what this one keeps in memory does not help it.
	later, err := deltalog.Open(t.Context(), st, deltalog.Options{CheckpointInterval: -1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = read(later, versions(2, -1))
	if !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("read: %v", err)
	}
	if _, err := Follow(later, 1, nil).Next(t.Context()); !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("follow: %v", err)
	}
	if got, err := read(later, versions(6, -1)); err != nil || got != "6:5" {
		t.Errorf("what is left: %q, %v", got, err)
	}
	if got, err := read(later, Range{StartTime: tab.Cached().Timestamp()}); err != nil || got != "6:5" {
		t.Errorf("what is left, by time: %q, %v", got, err)
	}
	// The commit is there, but nothing tells whether the feed was on.
	if _, err := read(later, Range{StartTime: middle}); !errors.Is(err, ErrExpired) || !strings.Contains(err.Error(), "version 4") {
		t.Errorf("by time: %v", err)
	}
}

// TestVacuumedFileIsNamed: who meets a file that is gone learns which, and of which version.
func TestVacuumedFileIsNamed(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	tab := newTable(t, st, 2, nil)
	var path string
	for a := range tab.Cached().Files() {
		path = a.Path
	}
	if err := st.Delete(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	f := Follow(tab, 0, nil)
	for range 2 {
		v, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, err = range v.Batches {
			if err != nil {
				break
			}
		}
		gone := v.Version == 2
		if gone != errors.Is(err, ErrExpired) || gone && (!strings.Contains(err.Error(), "version 2") || !strings.Contains(err.Error(), path)) {
			t.Errorf("version %d: %v", v.Version, err)
		}
	}
}

// TestFeedIsStreamed: a version is read batch by batch, and no further than is asked for.
func TestFeedIsStreamed(t *testing.T) {
	t.Parallel()
	tab := newTable(t, store.NewMemory(), 0, nil)
	ids := make([]int64, 100_000)
	for i := range ids {
		ids[i] = int64(i)
	}
	add(t, tab, ids...)
	v, err := Follow(tab, 0, nil).Next(t.Context())
	if err != nil || v.Rows != int64(len(ids)) {
		t.Fatalf("%+v, %v", v, err)
	}
	next, batches := int64(0), 0
	for b, err := range v.Batches {
		if err != nil {
			t.Fatal(err)
		}
		if n := b.Rows.NumRows(); n == 0 || n > 8192 || b.Version != 1 || b.ChangeType(0) != Insert || !b.Timestamp.Equal(v.Timestamp) {
			t.Fatalf("batch %+v of %d rows", b, n)
		}
		for _, id := range b.Rows.Column(0).(*array.Int64).Int64Values() {
			if id != next {
				t.Fatalf("row %d has id %d", next, id)
			}
			next++
		}
		batches++
	}
	if next != int64(len(ids)) || batches < 10 {
		t.Errorf("%d rows in %d batches", next, batches)
	}
	for _, err := range v.Batches { // nobody has to read on
		if err != nil {
			t.Error(err)
		}
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range Read(ctx, tab, versions(1, -1), nil) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
}

// BenchmarkFeed reads a feed of many small versions and one of few large ones, files and log in memory.
func BenchmarkFeed(b *testing.B) {
	for _, c := range []struct{ versions, rows int }{{500, 1}, {100, 100}, {10, 50_000}} {
		b.Run(fmt.Sprintf("versions=%d/rows=%d", c.versions, c.rows), func(b *testing.B) {
			tab := newTable(b, store.NewMemory(), 0, nil)
			batch := rowsOf(b, tab, make([]int64, c.rows)...)
			for range c.versions {
				if _, err := tab.Append(b.Context(), []arrow.RecordBatch{batch[0]}, "WRITE"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				f := Follow(tab, 0, nil)
				rows := int64(0)
				for {
					v, err := f.Next(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					if v == nil {
						break
					}
					for batch, err := range v.Batches {
						if err != nil {
							b.Fatal(err)
						}
						rows += batch.Rows.NumRows()
					}
				}
				if rows != int64(c.versions*c.rows) {
					b.Fatalf("%d rows", rows)
				}
			}
			b.ReportMetric(float64(c.versions*c.rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(c.versions)*float64(b.N)/b.Elapsed().Seconds(), "versions/s")
		})
	}
}
