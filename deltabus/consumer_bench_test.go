package deltabus

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// BenchmarkConsume reads 1 KB events from a synced disk, with the default checkpoints, from versions of so many rows.
func BenchmarkConsume(b *testing.B) {
	for _, rows := range []int{100, 10_000} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			const total = 20_000
			st, err := store.NewLocal(b.TempDir(), false)
			if err != nil {
				b.Fatal(err)
			}
			bus, err := Init(b.Context(), Config{Workspace: OnStore(st)})
			if err != nil {
				b.Fatal(err)
			}
			payload := make([]byte, 1000)
			for at := 0; at < total; at += rows {
				snap := bus.messages.Cached()
				rec, err := buildRows(snap.Schema(), messageColumns, func(rb *array.RecordBuilder) {
					for i := range rows {
						e := event(fmt.Sprint(at+i), "orders.new", int64(at+i))
						e.Payload = payload
						appendMessage(rb, 0, &e.Message, e.ProducerID, e.ProducerSeq, e.PublishedAt)
					}
				})
				if err != nil {
					b.Fatal(err)
				}
				adds, err := bus.messages.WriteFiles(b.Context(), snap, []arrow.RecordBatch{rec})
				if err == nil {
					_, err = bus.messages.Commit(b.Context(), deltalog.Transaction{Base: snap, Operation: "WRITE", Adds: adds})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			n := 0
			for b.Loop() {
				n++
				handled := 0
				c, err := bus.Consumer(fmt.Sprint("c", n), "orders.*", func(context.Context, Event) error { handled++; return nil }, UntilCurrent())
				if err != nil {
					b.Fatal(err)
				}
				if err := c.Run(b.Context()); err != nil || handled != total {
					b.Fatal(handled, err)
				}
			}
			b.ReportMetric(float64(total*n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
