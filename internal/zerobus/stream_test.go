package zerobus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/deltabus/deltabus-local/internal/zerobus/zerobuspb"
)

func rows(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	return out
}

func ingest(t *testing.T, s *Stream, rows []string) {
	t.Helper()
	for _, r := range rows {
		if _, err := s.Ingest(t.Context(), []byte(r)); err != nil {
			t.Fatalf("ingest: %v", err)
		}
	}
}

// TestRecovers: each fault is survived, every record arrives in order, nothing acknowledged is sent again.
func TestRecovers(t *testing.T) {
	all := rows(6)
	for _, tc := range []struct {
		name   string
		script []func(*call) error
		want   []string      // what arrives, in order
		within time.Duration // on the fake clock
	}{
		{"no fault", []func(*call) error{good}, all, 0},
		{"one late cumulative ack", []func(*call) error{do(take(0, 6), ack(5), ackAll(6))}, all, 0},
		{"repeated ack", []func(*call) error{do(take(0, 6), ack(2), ack(2), ack(5), ackAll(6))}, all, 0},
		{"unavailable before any ack", []func(*call) error{do(take(0, 6), fail(codes.Unavailable, "gone")), good}, slices.Concat(all, all), 0},
		{"partial ack then error", []func(*call) error{do(take(0, 6), ack(1), fail(codes.Internal, "x")), good}, slices.Concat(all, all[2:]), 0},
		{"clean end without signal", []func(*call) error{do(take(0, 6), ack(3)), good}, slices.Concat(all, all[4:]), 0},
		{"retryable at setup after a loss", []func(*call) error{do(take(0, 6), fail(codes.Unavailable, "x")), fail(codes.Unavailable, "y"), good}, slices.Concat(all, all), 2 * time.Second},
		{"never acked once", []func(*call) error{do(take(0, 6), hang), good}, slices.Concat(all, all), time.Minute},
		{"close signal, acked at once", []func(*call) error{do(take(0, 6), signal(time.Hour), ack(5), ackAll(6)), good}, all, 0},
		{"close signal, acks stay away", []func(*call) error{do(take(0, 6), ack(0), signal(3*time.Second), hang), good}, slices.Concat(all, all[1:]), 3*time.Second + drainTime},
		{"close signal without a duration", []func(*call) error{do(take(0, 6), signal(0), ackAll(6)), good}, slices.Concat(all, all), 0},
		{"close signal, then an error", []func(*call) error{do(take(0, 6), signal(time.Hour), fail(codes.Unavailable, "Error Code: 6002")), good}, slices.Concat(all, all), 0},
		{"close signal, ack after half-close", []func(*call) error{do(take(0, 6), signal(time.Second), func(c *call) error { _ = c.take(6, 1); return c.ack(5) }), good}, all, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, stop := startMock(tc.script...)
				defer stop()
				start := time.Now()
				cfg := m.config()
				last := int64(-1)
				cfg.OnAck = func(acked int64) {
					if acked <= last {
						t.Errorf("OnAck(%d) after %d", acked, last)
					}
					last = acked
				}
				s, err := Open(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				ingest(t, s, all)
				if err := s.Flush(t.Context()); err != nil {
					t.Fatalf("flush: %v", err)
				}
				if took := time.Since(start); took != tc.within {
					t.Errorf("took %s, want %s", took, tc.within)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Fatalf("close: %v", err)
				}
				if got := m.received(); !slices.Equal(got, tc.want) {
					t.Errorf("received %v\nwant %v", got, tc.want)
				}
				if got := s.Acked(); got != 5 || last != 5 {
					t.Errorf("acked %d (told %d), want 5", got, last)
				}
				if u := s.Unacked(); len(u) != 0 {
					t.Errorf("unacked %v", u)
				}
			})
		})
	}
}

// TestEnds: each fault ends the stream with the right error, and what is not durable can be read back.
func TestEnds(t *testing.T) {
	for _, tc := range []struct {
		name      string
		script    []func(*call) error
		options   Options
		code      codes.Code
		retryable bool
		unacked   int
		opens     int
	}{
		{"invalid argument", []func(*call) error{do(take(0, 6), ack(3), fail(codes.InvalidArgument, "bad. Error Code: 4044"))}, Options{}, codes.InvalidArgument, false, 2, 1},
		{"ack beyond what was sent", []func(*call) error{do(take(0, 6), ack(6), hang)}, Options{}, codes.Internal, false, 6, 1},
		{"ack goes back", []func(*call) error{do(take(0, 6), ack(3), ack(2), hang)}, Options{}, codes.Internal, false, 2, 1},
		{"negative ack", []func(*call) error{do(take(0, 6), ack(-1), hang)}, Options{}, codes.Internal, false, 6, 1},
		{"ack without offset", []func(*call) error{do(take(0, 6), func(c *call) error {
			return c.rpc.Send(&zerobuspb.EphemeralStreamResponse{Payload: &zerobuspb.EphemeralStreamResponse_IngestRecordResponse{IngestRecordResponse: &zerobuspb.IngestRecordResponse{}}})
		}, hang)}, Options{}, codes.Internal, false, 6, 1},
		{"retries exhausted", []func(*call) error{do(take(0, 6), fail(codes.Unavailable, "x"))}, Options{}, codes.Unavailable, true, 6, 6},
		{"unauthenticated mid-stream", []func(*call) error{do(take(0, 6), fail(codes.Unauthenticated, "x"))}, Options{}, codes.Unauthenticated, false, 6, 1},
		{"no recovery", []func(*call) error{do(take(0, 6), ack(4), fail(codes.Unavailable, "x"))}, Options{NoRecovery: true}, codes.Unavailable, true, 1, 1},
		{"no recovery, announced close", []func(*call) error{do(take(0, 6), ack(4), signal(time.Second), ackAll(6))}, Options{NoRecovery: true}, codes.OK, true, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, stop := startMock(tc.script...)
				defer stop()
				cfg := m.config()
				cfg.Options = tc.options
				s, err := Open(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				ingest(t, s, rows(6))
				err = s.Flush(t.Context())
				var e *Error
				if !errors.As(err, &e) || e.Code != tc.code || e.Retryable() != tc.retryable {
					t.Errorf("flush: %v (%+v), want code %s, retryable %v", err, e, tc.code, tc.retryable)
				}
				if _, err := s.Ingest(t.Context(), []byte("{}")); !errors.As(err, &e) {
					t.Errorf("ingest after the end: %v", err)
				}
				if err := s.Close(t.Context()); !errors.As(err, &e) {
					t.Errorf("close: %v", err)
				}
				if u := s.Unacked(); len(u) != tc.unacked {
					t.Errorf("%d unacked, want %d", len(u), tc.unacked)
				}
				if got := len(m.opened()); got != tc.opens {
					t.Errorf("%d opens, want %d", got, tc.opens)
				}
			})
		})
	}
}

func TestOpenFails(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script []func(*call) error
		code   codes.Code
		opens  int
		within time.Duration
	}{
		{"not found", []func(*call) error{fail(codes.NotFound, `Table "c.s.t" cannot be found.`)}, codes.NotFound, 1, 0},
		{"retryable, for ever", []func(*call) error{fail(codes.Unavailable, "x")}, codes.Unavailable, 5, 8 * time.Second},
		{"no answer", []func(*call) error{hang}, codes.DeadlineExceeded, 5, 5*15*time.Second + 8*time.Second},
		{"wrong first answer", []func(*call) error{func(c *call) error { _ = c.ack(0); return c.hang() }}, codes.Internal, 1, 0},
		{"permission denied", []func(*call) error{fail(codes.PermissionDenied, "x")}, codes.PermissionDenied, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, stop := startMock(tc.script...)
				defer stop()
				start := time.Now()
				_, err := Open(t.Context(), m.config())
				var e *Error
				if !errors.As(err, &e) || e.Code != tc.code {
					t.Errorf("open: %v, want %s", err, tc.code)
				}
				if took := time.Since(start); took != tc.within {
					t.Errorf("took %s, want %s", took, tc.within)
				}
				if got := len(m.opened()); got != tc.opens {
					t.Errorf("%d opens, want %d", got, tc.opens)
				}
			})
		})
	}
}

func TestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, stop := startMock(good)
		defer stop()
		s, err := Open(t.Context(), m.config())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		md := m.mds[0]
		if got := md.Get("x-databricks-zerobus-table-name"); !slices.Equal(got, []string{"c.s.t"}) {
			t.Errorf("table header %v", got)
		}
		if got := md.Get("authorization"); !slices.Equal(got, []string{"Bearer secret"}) {
			t.Errorf("authorization %v", got)
		}
		if got := md.Get("user-agent"); len(got) != 1 || !strings.HasPrefix(got[0], "deltabus ") {
			t.Errorf("user agent %v", got)
		}
	})
}

// TestIngestWaitsForRoom: the in-flight bound holds, and a cancelled wait queues nothing.
func TestIngestWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		m, stop := startMock(do(take(0, 2), func(*call) error { <-release; return nil }, ack(1), ackAll(2)))
		defer stop()
		cfg := m.config()
		cfg.MaxInFlightRecords = 2
		s, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		ingest(t, s, rows(2))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Ingest(ctx, []byte("{}")); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("ingest beyond the bound: %v", err)
		}
		close(release)
		if offset, err := s.Ingest(t.Context(), []byte("{}")); err != nil || offset != 2 {
			t.Fatalf("ingest = %d, %v", offset, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestBatchesKeepTheirGrouping: a batch has one offset and is sent again as a batch.
func TestBatchesKeepTheirGrouping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, stop := startMock(do(take(0, 3), ack(0), fail(codes.Unavailable, "x")), do(take(0, 2), ack(1), ackAll(2)))
		defer stop()
		s, err := Open(t.Context(), m.config())
		if err != nil {
			t.Fatal(err)
		}
		for i, batch := range [][]string{{"a", "b"}, {"c"}, {"d", "e"}} {
			var recs [][]byte
			for _, r := range batch {
				recs = append(recs, []byte(r))
			}
			if offset, err := s.IngestBatch(t.Context(), recs); err != nil || offset != int64(i) {
				t.Fatalf("batch %d: offset %d, %v", i, offset, err)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Join(m.received(), ""), "abcdecde"; got != want {
			t.Errorf("received %s, want %s", got, want)
		}
	})
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, stop := startMock(do(take(0, 3), ack(0), hang))
		defer stop()
		s, err := Open(t.Context(), m.config())
		if err != nil {
			t.Fatal(err)
		}
		ingest(t, s, rows(3))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		if u := s.Unacked(); len(u) != 2 || u[0].Offset != 1 || !u[0].Sent {
			t.Errorf("unacked %+v", u)
		}
		if err := s.Close(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("second close: %v", err)
		}
	})
}

// TestIdleRotation: a server that ends idle streams again and again does not use up the retries.
func TestIdleRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, stop := startMock(do(func(c *call) error {
			select {
			case <-time.After(15 * time.Minute):
			case <-c.rpc.Context().Done():
			}
			return nil
		}, fail(codes.Unavailable, "Stream timeout reached. Error Code: 6002, Error State: 0.")))
		defer stop()
		s, err := Open(t.Context(), m.config())
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Hour)
		synctest.Wait()
		if err := s.Err(); err != nil {
			t.Errorf("idle stream ended: %v", err)
		}
		if got := len(m.opened()); got < 20 {
			t.Errorf("%d opens, want 20", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
}

func TestRefusesBadInput(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no scheme":         func(c *Config) { c.Endpoint = "localhost:8080" },
		"two-part table":    func(c *Config) { c.Table = "s.t" },
		"no record type":    func(c *Config) { c.RecordType = 0 },
		"proto, no schema":  func(c *Config) { c.RecordType = Proto },
		"token and OAuth":   func(c *Config) { c.OAuth = NewOAuth("http://x", "a", "b", nil) },
		"unreadable scheme": func(c *Config) { c.Endpoint = "http://%" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Endpoint: "http://127.0.0.1:1", Table: "c.s.t", RecordType: JSON, Token: "x"}
			change(&cfg)
			if _, err := Open(t.Context(), cfg); err == nil {
				t.Error("accepted")
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		m, stop := startMock(good)
		defer stop()
		s, err := Open(t.Context(), m.config())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Ingest(t.Context(), make([]byte, MaxPayload+1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("too large: %v", err)
		}
		if _, err := s.Ingest(t.Context(), []byte("\xff")); err == nil {
			t.Error("bad UTF-8 accepted")
		}
		if _, err := s.IngestBatch(t.Context(), nil); err == nil {
			t.Error("empty batch accepted")
		}
		if _, err := s.Ingest(t.Context(), make([]byte, MaxPayload)); err != nil {
			t.Errorf("at the limit: %v", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := s.Ingest(t.Context(), []byte("{}")); !errors.Is(err, ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	})
}
