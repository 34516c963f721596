package deltalog

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// discardStore keeps what Put was given last, so that benchmarks measure encoding, not disks.
type discardStore struct{ store.Store }

func (d discardStore) Put(ctx context.Context, name string, data []byte, opts store.PutOptions) error {
	if strings.HasPrefix(name, logDir) {
		return d.Store.Put(ctx, name, data, opts)
	}
	return nil
}

var benchSchema = Struct{Fields: []Field{
	{Name: "id", Type: String},
	{Name: "topic", Type: String, Nullable: true},
	{Name: "payload", Type: String, Nullable: true},
	{Name: "at", Type: Timestamp, Nullable: true},
	{Name: "seq", Type: Long, Nullable: true},
}}

// benchRows is n rows of benchSchema with payloads of that many bytes.
func benchRows(tb testing.TB, n, payload int) arrow.RecordBatch {
	tb.Helper()
	schema, err := ArrowSchema(benchSchema)
	if err != nil {
		tb.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	filler := strings.Repeat(`{"k":"some text of a message",`, payload/30+1)
	for i := range n {
		b.Field(0).(*array.StringBuilder).Append(fmt.Sprintf("018f3c2e-%04x-7%03x-9abc-%012x", i%65536, i%4096, i*2654435761))
		b.Field(1).(*array.StringBuilder).Append([]string{"orders.created", "orders.paid", "users.seen"}[i%3])
		p := fmt.Sprintf(`{"n":%d,"x":%x,`, i, i*2654435761)
		b.Field(2).(*array.StringBuilder).Append(p + filler[:max(payload-len(p), 0)])
		b.Field(3).(*array.TimestampBuilder).Append(arrow.Timestamp(1_700_000_000_000_000 + int64(i)*137))
		b.Field(4).(*array.Int64Builder).Append(int64(i))
	}
	return b.NewRecordBatch()
}

func benchTable(tb testing.TB, st store.Store) (*Table, *Snapshot) {
	tb.Helper()
	t, err := Create(context.Background(), st, TableSpec{Name: "bench", Schema: benchSchema}, Options{CheckpointInterval: -1})
	if err != nil {
		tb.Fatal(err)
	}
	return t, t.Cached()
}

func BenchmarkWriteFile(b *testing.B) {
	for _, c := range []struct{ rows, payload int }{{1, 200}, {100, 200}, {8192, 200}, {100_000, 200}, {20_000, 1024}} {
		b.Run(fmt.Sprintf("rows=%d/payload=%d", c.rows, c.payload), func(b *testing.B) {
			t, snap := benchTable(b, discardStore{store.NewMemory()})
			defer t.Close()
			batch := []arrow.RecordBatch{benchRows(b, c.rows, c.payload)}
			var raw int64
			for _, col := range batch[0].Columns() {
				raw += int64(col.Data().SizeInBytes())
			}
			b.SetBytes(raw)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.WriteFiles(context.Background(), snap, batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(c.rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkReadFile(b *testing.B) {
	for _, c := range []struct{ rows, payload int }{{1, 200}, {100_000, 200}, {20_000, 1024}} {
		b.Run(fmt.Sprintf("rows=%d/payload=%d", c.rows, c.payload), func(b *testing.B) {
			t, snap := benchTable(b, store.NewMemory())
			defer t.Close()
			batch := benchRows(b, c.rows, c.payload)
			adds, err := t.WriteFiles(context.Background(), snap, []arrow.RecordBatch{batch})
			if err != nil {
				b.Fatal(err)
			}
			var raw int64
			for _, col := range batch.Columns() {
				raw += int64(col.Data().SizeInBytes())
			}
			b.SetBytes(raw)
			b.ReportAllocs()
			for b.Loop() {
				var n int64
				for rec, err := range t.ReadFile(context.Background(), snap, adds[0].DataFile(), nil) {
					if err != nil {
						b.Fatal(err)
					}
					n += rec.NumRows()
				}
				if n != int64(c.rows) {
					b.Fatalf("%d rows", n)
				}
			}
			b.ReportMetric(float64(c.rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
