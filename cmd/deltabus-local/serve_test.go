package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/emulator"
)

// TestServerKeepsLogForConsumers: a server's own writers do not clean up what a consumer has yet to read.
func TestServerKeepsLogForConsumers(t *testing.T) {
	t.Parallel()
	a := &app{bus: deltabus.DefaultSchema, log: slog.New(slog.DiscardHandler)}
	opts, _, err := a.serveOptions(serveFlags{auth: "open", fsync: "off"})
	if err != nil {
		t.Fatal(err)
	}
	var halfDays atomic.Int64
	start := time.Now()
	clock := func() time.Time { return start.Add(time.Duration(halfDays.Load()) * 12 * time.Hour) }
	dir := t.TempDir()
	e, err := emulator.Start(t.Context(), append(opts, emulator.WithoutListener(), emulator.WithClock(clock), emulator.WithDataDir(dir))...)
	if err != nil {
		t.Fatal(err)
	}
	b, err := deltabus.Open(t.Context(), deltabus.Config{Workspace: e, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Publisher(deltabus.WithBatches(time.Nanosecond, 1, 1))
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Consumer("c", "t", func(context.Context, deltabus.Event) error { return nil }, deltabus.UntilCurrent())
	if err == nil {
		err = c.Run(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 201 { // a Delta checkpoint, and a cleaning of the log, comes after each 100
		halfDays.Add(1)
		if _, err := p.Publish(t.Context(), deltabus.Message{Topic: "t", Payload: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "tables", "main", "deltabus", "messages", "_delta_log")
	if _, err := os.Stat(filepath.Join(log, "00000000000000000200.checkpoint.parquet")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(log, "00000000000000000001.json")); err != nil {
		t.Errorf("what the consumer has yet to read: %v", err)
	}
}
