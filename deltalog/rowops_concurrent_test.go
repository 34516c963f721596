package deltalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestConcurrentUpdatesLoseNothing: writers that add one to a row and try again after a conflict leave as many as they added, and every addition is
// in a change file.
func TestConcurrentUpdatesLoseNothing(t *testing.T) {
	t.Parallel()
	const writers, each, rows = 4, 8, 3
	st := store.NewMemory()
	tab := createTable(t, st, quiet, TableSpec{Configuration: withFeed}, "id BIGINT NOT NULL", "n BIGINT NOT NULL")
	for i := range rows {
		appendRows(t, tab, fmt.Sprintf(`{"id":%d,"n":0}`, i))
	}
	plusOne := func(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		for i := range int(rec.NumRows()) {
			b.Append(rec.Column(1).(*array.Int64).Value(i) + 1)
		}
		return array.NewRecordBatch(rec.Schema(), []arrow.Array{rec.Column(0), b.NewArray()}, rec.NumRows()), nil
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			own, err := Open(context.Background(), st, quiet) // as another process
			if err != nil {
				t.Error(err)
				return
			}
			defer own.Close()
			for i := range each {
				for {
					_, err := own.Update(context.Background(), Condition{Where: ids(int64((w + i) % rows))}, plusOne)
					if err == nil {
						break
					}
					if !errors.Is(err, ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	s, err := tab.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum, found := int64(0), 0
	for rec, err := range tab.Scan(t.Context(), s, nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			sum += rec.Column(1).(*array.Int64).Value(i)
			found++
		}
	}
	if sum != writers*each || found != rows {
		t.Errorf("%d additions of %d in %d rows of %d", sum, writers*each, found, rows)
	}
	updates := 0
	for c, err := range tab.History(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Info().String("operation") != "UPDATE" {
			continue
		}
		updates++
		if got := actionsOf(c); got != "add=1 cdc=1 remove=1" {
			t.Errorf("version %d: %s", c.Version, got)
		}
	}
	if updates != writers*each {
		t.Errorf("%d updates of %d", updates, writers*each)
	}
}
