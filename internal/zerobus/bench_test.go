package zerobus

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

// doNothing parses and acknowledges.
type doNothing struct {
	zerobuspb.UnimplementedZerobusServer
}

func (doNothing) EphemeralStream(rpc zerobuspb.Zerobus_EphemeralStreamServer) error {
	c := &call{rpc: rpc}
	if err := c.accept(); err != nil {
		return err
	}
	for {
		req, err := rpc.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if b := req.GetIngestRecordBatch(); b != nil {
			err = c.ack(b.GetOffsetId())
		} else if n := req.GetIngestRecord().GetOffsetId(); n%64 == 63 {
			err = c.ack(n)
		}
		if err != nil {
			return err
		}
	}
}

// BenchmarkIngest is one stream of 1 KB records against a server that does nothing, over loopback.
func BenchmarkIngest(b *testing.B) {
	for _, tc := range []struct {
		name string
		size int
	}{{"single", 1}, {"batch500", 500}} {
		b.Run(tc.name, func(b *testing.B) {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			srv := grpc.NewServer(grpc.InitialWindowSize(8<<20), grpc.InitialConnWindowSize(16<<20))
			zerobuspb.RegisterZerobusServer(srv, doNothing{})
			served := make(chan struct{})
			go func() { defer close(served); _ = srv.Serve(lis) }()
			defer func() { srv.Stop(); <-served }()
			s, err := Open(b.Context(), Config{Endpoint: "http://" + lis.Addr().String(), Token: "t", Table: "c.s.t", RecordType: JSON})
			if err != nil {
				b.Fatal(err)
			}
			record := bytes.Repeat([]byte("x"), 1000)
			batch := make([][]byte, tc.size)
			for i := range batch {
				batch[i] = record
			}
			records := 0
			b.SetBytes(int64(len(record) * tc.size))
			start := time.Now()
			for b.Loop() {
				if tc.size == 1 {
					_, err = s.Ingest(b.Context(), record)
				} else {
					_, err = s.IngestBatch(b.Context(), batch)
				}
				if err != nil {
					b.Fatal(err)
				}
				records += tc.size
			}
			for records%64 != 0 && tc.size == 1 { // the server acknowledges every 64th
				if _, err := s.Ingest(b.Context(), record); err != nil {
					b.Fatal(err)
				}
				records++
			}
			if err := s.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(records)/time.Since(start).Seconds(), "records/s")
			if err := s.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
