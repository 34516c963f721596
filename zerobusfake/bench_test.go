package zerobusfake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

// nothing is a server that only parses and acknowledges: what the client and gRPC cost without us.
type nothing struct {
	zerobuspb.UnimplementedZerobusServer
}

func (nothing) EphemeralStream(rpc grpc.BidiStreamingServer[zerobuspb.EphemeralStreamRequest, zerobuspb.EphemeralStreamResponse]) error {
	if err := rpc.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	id := "x"
	for n := int64(-1); ; n++ {
		if _, err := rpc.Recv(); errors.Is(err, io.EOF) {
			return rpc.Send(ackResponse(n - 1))
		} else if err != nil {
			return err
		}
		var r *zerobuspb.EphemeralStreamResponse
		switch {
		case n < 0:
			r = &zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_CreateStreamResponse{CreateStreamResponse: &zerobuspb.CreateIngestStreamResponse{StreamId: &id}}}
		case n%1000 == 999:
			r = ackResponse(n)
		default:
			continue
		}
		if err := rpc.Send(r); err != nil {
			return err
		}
	}
}

func ackResponse(n int64) *zerobuspb.EphemeralStreamResponse {
	return &zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_IngestRecordResponse{IngestRecordResponse: &zerobuspb.IngestRecordResponse{DurabilityAckUpToOffset: &n}}}
}

// benchServer serves s on loopback and returns a client.
func benchServer(b *testing.B, register func(grpc.ServiceRegistrar)) zerobuspb.ZerobusClient {
	b.Helper()
	g := grpc.NewServer(ServerOptions()...)
	register(g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = g.Serve(l) })
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(8<<20), grpc.WithInitialConnWindowSize(16<<20))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		serving.Wait()
	})
	return zerobuspb.NewZerobusClient(conn)
}

type benchTables struct{ t *deltalog.Table }

func (t benchTables) Table(context.Context, string) (*deltalog.Table, error) { return t.t, nil }

// benchTable is a table of 1 KB records on disk, synced.
func benchTable(b *testing.B, st store.Store) *deltalog.Table {
	b.Helper()
	t, err := deltalog.Create(context.Background(), st, deltalog.TableSpec{Schema: columnsOf(b, "id BIGINT NOT NULL", "topic STRING", "payload STRING", "at TIMESTAMP")}, deltalog.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return t
}

func benchFake(b *testing.B) zerobuspb.ZerobusClient {
	b.Helper()
	st, err := store.NewLocal(b.TempDir(), false)
	if err != nil {
		b.Fatal(err)
	}
	t := benchTable(b, st)
	s := New(Config{Tables: benchTables{t}})
	c := benchServer(b, s.Register)
	b.Cleanup(func() { // before the server stops
		_ = s.Shutdown(context.Background(), 0)
		_ = t.Close()
	})
	return c
}

var filler = strings.Repeat("x", 900)

func benchJSON(i int) string {
	return fmt.Sprintf(`{"id":%d,"topic":"orders.new","payload":"%s","at":1700000000000000}`, i, filler)
}

func benchProto(i int) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(i))
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), "orders.new")
	b = protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), filler)
	return protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), 1700000000000000)
}

func benchOpen(b *testing.B, c zerobuspb.ZerobusClient, proto bool) *client {
	b.Helper()
	rpc, err := c.EphemeralStream(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	kind, desc := zerobuspb.RecordType_JSON.Enum(), []byte(nil)
	if proto {
		i64 := field("id", 1, 3)
		kind, desc = zerobuspb.RecordType_PROTO.Enum(), descriptor(b, i64, field("topic", 2, stringType), field("payload", 3, stringType), field("at", 4, 3))
	}
	if err := rpc.Send(createRequest("main.default.t", kind, desc)); err != nil {
		b.Fatal(err)
	}
	if _, err := rpc.Recv(); err != nil {
		b.Fatal(err)
	}
	return &client{nil, rpc}
}

// BenchmarkIngest sends 1 KB records over one stream, ours on disk with fsync, beside a server that does nothing.
func BenchmarkIngest(b *testing.B) {
	for _, proto := range []bool{false, true} {
		for _, batch := range []int{1, 500} {
			for _, ours := range []bool{false, true} {
				name := map[bool]string{false: "json", true: "proto"}[proto] + fmt.Sprintf("/batch=%d/", batch) + map[bool]string{false: "nothing", true: "ours"}[ours]
				b.Run(name, func(b *testing.B) {
					var c zerobuspb.ZerobusClient
					if ours {
						c = benchFake(b)
					} else {
						c = benchServer(b, func(r grpc.ServiceRegistrar) { zerobuspb.RegisterZerobusServer(r, nothing{}) })
					}
					jsons, protos := make([]string, batch), make([][]byte, batch)
					for i := range batch {
						jsons[i], protos[i] = benchJSON(i), benchProto(i)
					}
					st := benchOpen(b, c, proto)
					done := make(chan error, 1)
					go func() {
						for {
							if _, err := st.rpc.Recv(); err != nil {
								done <- err
								return
							}
						}
					}()
					b.SetBytes(int64(len(jsons[0])))
					b.ResetTimer()
					offset := int64(0)
					for n := 0; n < b.N; n += batch {
						var r *zerobuspb.EphemeralStreamRequest
						switch {
						case batch == 1 && proto:
							r = protoRecord(offset, protos[0])
						case batch == 1:
							r = jsonRecord(offset, jsons[0])
						case proto:
							r = &zerobuspb.EphemeralStreamRequest{Payload: &zerobuspb.EphemeralStreamRequest_IngestRecordBatch{IngestRecordBatch: &zerobuspb.IngestRecordBatchRequest{
								OffsetId: &offset, Batch: &zerobuspb.IngestRecordBatchRequest_ProtoEncodedBatch{ProtoEncodedBatch: &zerobuspb.ProtoEncodedRecordBatch{Records: protos}},
							}}}
						default:
							r = jsonBatch(offset, jsons...)
						}
						if err := st.rpc.Send(r); err != nil {
							b.Fatal(err)
						}
						offset++
					}
					if err := st.rpc.CloseSend(); err != nil {
						b.Fatal(err)
					}
					if err := <-done; !errors.Is(err, io.EOF) {
						b.Fatal(err)
					}
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
				})
			}
		}
	}
}

// BenchmarkAck is the time to an acknowledgement with one record in flight on each of so many streams, on disk with fsync.
func BenchmarkAck(b *testing.B) {
	for _, streams := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			c := benchFake(b)
			var mu sync.Mutex
			var all []time.Duration
			var wg sync.WaitGroup
			each := max(1, b.N/streams)
			b.ResetTimer()
			for range streams {
				st := benchOpen(b, c, false)
				wg.Go(func() {
					took := make([]time.Duration, 0, each)
					for i := range each {
						start := time.Now()
						if err := st.rpc.Send(jsonRecord(int64(i), benchJSON(i))); err != nil {
							b.Error(err)
							return
						}
						if _, err := st.rpc.Recv(); err != nil {
							b.Error(err)
							return
						}
						took = append(took, time.Since(start))
					}
					_ = st.rpc.CloseSend()
					mu.Lock()
					all = append(all, took...)
					mu.Unlock()
				})
			}
			wg.Wait()
			slices.Sort(all)
			at := func(p float64) float64 { return all[int(float64(len(all)-1)*p)].Seconds() * 1000 }
			b.ReportMetric(at(0.5), "p50-ms")
			b.ReportMetric(at(0.99), "p99-ms")
			b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "acks/s")
		})
	}
}
