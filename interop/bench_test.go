package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/emulator"
	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
	"github.com/deltabus/deltabus-local/zerobusfake"
)

// nothing acknowledges what it is sent and keeps none of it: what the client costs without us.
type nothing struct {
	zerobuspb.UnimplementedZerobusServer
}

func (nothing) EphemeralStream(rpc grpc.BidiStreamingServer[zerobuspb.EphemeralStreamRequest, zerobuspb.EphemeralStreamResponse]) error {
	if err := rpc.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	if _, err := rpc.Recv(); err != nil {
		return err
	}
	id := "x"
	err := rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_CreateStreamResponse{CreateStreamResponse: &zerobuspb.CreateIngestStreamResponse{StreamId: &id}}})
	var mu sync.Mutex
	got, told := int64(-1), int64(-1)
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := rpc.Recv(); err != nil {
				done <- err
				return
			}
			mu.Lock()
			got++
			mu.Unlock()
		}
	}()
	ended := false
	for err == nil {
		select {
		case <-time.After(20 * time.Millisecond): // as often as ours commits
		case e := <-done:
			if ended = true; !errors.Is(e, io.EOF) {
				return e
			}
		}
		mu.Lock()
		now := got
		mu.Unlock()
		if now > told {
			told = now
			err = rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_IngestRecordResponse{IngestRecordResponse: &zerobuspb.IngestRecordResponse{DurabilityAckUpToOffset: &now}}})
		}
		if ended {
			return err
		}
	}
	return err
}

// benchPeer runs a peer and decodes the figures that it prints last.
func benchPeer(b *testing.B, name string, words ...string) map[string]float64 {
	b.Helper()
	cmd := exec.Command(name, words...)
	cmd.Env = environment()
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	var v map[string]float64
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &v); err != nil {
		b.Fatalf("%s: %v", out, err)
	}
	return v
}

func benchPython(b *testing.B, script string, args arguments) map[string]float64 {
	b.Helper()
	return benchPeer(b, python(b), append([]string{filepath.Join("python", script)}, args.words()...)...)
}

func benchBatch(b *testing.B, s deltalog.Struct, rows int) arrow.RecordBatch {
	b.Helper()
	schema, err := deltalog.ArrowSchema(s)
	if err != nil {
		b.Fatal(err)
	}
	rb := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer rb.Release()
	for i := range rows {
		rb.Field(0).(*array.Int64Builder).Append(int64(i))
		rb.Field(1).(*array.StringBuilder).Append(strings.Repeat("x", 200))
	}
	return rb.NewRecordBatch()
}

// BenchmarkPythonSDK: see benchSDK.
func BenchmarkPythonSDK(b *testing.B) {
	benchSDK(b, []string{"json"}, func(b *testing.B, args arguments) map[string]float64 { return benchPython(b, "bench_sdk.py", args) })
}

// benchSDK runs an official client against the emulator, on disk with fsync, and against a server that does nothing, in turns.
func benchSDK(b *testing.B, formats []string, send func(*testing.B, arguments) map[string]float64) {
	e, err := emulator.Start(context.Background(), emulator.WithDataDir(b.TempDir()))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = e.Stop(context.Background()) }()
	var s deltalog.Struct
	for _, d := range []string{"id BIGINT NOT NULL", "topic STRING", "payload STRING", "at TIMESTAMP"} {
		f, err := deltalog.ParseColumn(d)
		if err != nil {
			b.Fatal(err)
		}
		s.Fields = append(s.Fields, f)
	}
	if _, err := e.CreateTable(context.Background(), "main.default.bench", deltalog.TableSpec{Schema: s}); err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	g := grpc.NewServer(zerobusfake.ServerOptions()...)
	zerobuspb.RegisterZerobusServer(g, nothing{})
	go func() { _ = g.Serve(l) }()
	defer g.Stop()
	for _, format := range formats {
		for _, batch := range []int{1, 500} {
			b.Run(fmt.Sprintf("format=%s/batch=%d", format, batch), func(b *testing.B) {
				best := map[string]float64{}
				for range 3 { // in turns, the best of each: other work only ever slows
					for name, endpoint := range map[string]string{"nothing": "http://" + l.Addr().String(), "ours": e.URL()} {
						r := send(b, arguments{
							"endpoint": endpoint, "url": e.URL(), "client_id": e.ClientID(), "client_secret": e.ClientSecret(),
							"table": "main.default.bench", "n": "100000", "format": format, "batch": fmt.Sprint(batch),
						})
						best[name] = max(best[name], r["rate"])
					}
				}
				b.ReportMetric(best["nothing"], "nothing-records/s")
				b.ReportMetric(best["ours"], "records/s")
				b.ReportMetric(best["ours"]/best["nothing"], "ratio")
			})
		}
	}
}

// BenchmarkBesideDeltaRS: commits of one row and rows of a change feed, ours (with fsync) and delta-rs (which does not sync).
func BenchmarkBesideDeltaRS(b *testing.B) {
	ctx := context.Background()
	feedDir, commitDir := b.TempDir(), b.TempDir()
	open := func(dir string) *deltalog.Table {
		st, err := store.NewLocal(dir, false)
		if err != nil {
			b.Fatal(err)
		}
		id, _ := deltalog.ParseColumn("id BIGINT")
		p, _ := deltalog.ParseColumn("p STRING")
		t, err := deltalog.Create(ctx, st, deltalog.TableSpec{
			Schema: deltalog.Struct{Fields: []deltalog.Field{id, p}}, Configuration: map[string]string{"delta.enableChangeDataFeed": "true"},
		}, deltalog.Options{})
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	feed := open(feedDir)
	for range 20 {
		if _, err := feed.Append(ctx, []arrow.RecordBatch{benchBatch(b, feed.Cached().Schema(), 50_000)}, "WRITE"); err != nil {
			b.Fatal(err)
		}
	}
	const commits = 300
	t := open(commitDir)
	one := []arrow.RecordBatch{benchBatch(b, t.Cached().Schema(), 1)}
	start := time.Now()
	for range commits {
		if _, err := t.Append(ctx, one, "WRITE"); err != nil {
			b.Fatal(err)
		}
	}
	oursCommits := commits / time.Since(start).Seconds()
	rows, first, oursFeed := 0, int64(1), 0.0
	for range 5 { // the best of five on either side: other work only ever slows
		start, rows = time.Now(), 0
		for batch, err := range cdf.Read(ctx, feed, cdf.Range{StartVersion: &first}, nil) {
			if err != nil {
				b.Fatal(err)
			}
			rows += int(batch.Rows.NumRows())
		}
		oursFeed = max(oursFeed, float64(rows)/time.Since(start).Seconds())
	}
	r := benchPython(b, "bench_deltars.py", arguments{"dir": filepath.Join(b.TempDir(), "t"), "feed": feedDir, "commits": fmt.Sprint(commits)})
	if int(r["rows"]) != rows {
		b.Fatalf("delta-rs read %v rows, we %d", r["rows"], rows)
	}
	b.ReportMetric(oursCommits, "commits/s")
	b.ReportMetric(r["commits"], "delta-rs-commits/s")
	b.ReportMetric(oursCommits/r["commits"], "commits-ratio")
	b.ReportMetric(oursFeed, "feed-rows/s")
	b.ReportMetric(r["feed"], "delta-rs-feed-rows/s")
	b.ReportMetric(oursFeed/r["feed"], "feed-ratio")
	_ = feed.Close()
	_ = t.Close()
}
