//go:build rust

package interop

import "testing"

// startRust starts the Rust SDK's program, which interop/install.sh rust builds.
func startRust(t *testing.T, verb string, args arguments) *worker {
	t.Helper()
	return startWorker(t, rustPeer(t), append([]string{verb}, args.words()...)...)
}

func rustPeer(t testing.TB) string { return peer(t, "rust", "target", "release", "peer") }

// ingestRust starts the Rust SDK's program for a table.
func (s *server) ingestRust(table, input string, extra arguments) *worker {
	s.t.Helper()
	args := s.arguments(table, input)
	for k, v := range extra {
		args[k] = v
	}
	return startRust(s.t, "ingest", args)
}

// TestRustSDK: what the official Rust SDK sends is in the table, row for row.
func TestRustSDK(t *testing.T) {
	s := serve(t)
	s.everyRow(map[string]ingester{"rust": s.ingestRust}, handwrittenClass(t, everything))
}

// TestServerAwayFromRust: TestServerAway for the Rust SDK.
func TestServerAwayFromRust(t *testing.T) {
	serverAway(t, "rust", func(s *server) ingester { return s.ingestRust })
}

// TestBadInputFromRust: TestBadInput for the Rust SDK, whose errors have more kinds.
func TestBadInputFromRust(t *testing.T) {
	badInput(t, func(args arguments) *worker { return startRust(t, "send", args) }, "InvalidArgument", "StreamClosedError", "CreateStreamError")
}

// BenchmarkRustSDK: see benchSDK.
func BenchmarkRustSDK(b *testing.B) {
	benchSDK(b, []string{"json", "proto"}, func(b *testing.B, args arguments) map[string]float64 {
		return benchPeer(b, rustPeer(b), append([]string{"bench"}, args.words()...)...)
	})
}
