package deltabus_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/emulator"
)

// TestBusOnAHost makes, fills and reads a bus whose tables a served emulator names.
func TestBusOnAHost(t *testing.T) {
	e := emulator.Run(t, emulator.WithDataDir(t.TempDir()), emulator.WithNoSync())
	cfg := deltabus.Config{Workspace: deltabus.OnHost(e.URL(), e.Token()), Schema: "main.events"}
	if _, err := deltabus.Open(t.Context(), cfg); !errors.Is(err, deltabus.ErrNoBus) {
		t.Errorf("before init: %v", err)
	}
	for range 2 {
		if _, err := deltabus.Init(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	b, err := deltabus.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	// The emulator's own view of the tables has the very same shape.
	for name, spec := range deltabus.TableSpecs() {
		table, err := e.Table(t.Context(), "main.events."+name)
		if err != nil {
			t.Fatal(err)
		}
		snap := table.Cached()
		if got, want := fmt.Sprint(snap.Schema(), snap.Metadata().PartitionColumns, snap.Metadata().Configuration), fmt.Sprint(spec.Schema, spec.PartitionColumns, spec.Configuration); got != want {
			t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
		}
	}
	p, err := b.Publisher(deltabus.WithBatches(time.Millisecond, 100, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(t.Context(), deltabus.Message{Topic: "t", Payload: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := ""
	c, err := b.Consumer("c", "t", func(_ context.Context, e deltabus.Event) error { got += string(e.Payload); return nil }, deltabus.UntilCurrent())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil || got != "x" {
		t.Errorf("consumed %q, %v", got, err)
	}
	w := cfg.Workspace
	if _, err := w.CreateTable(t.Context(), "main.events.messages", deltabus.TableSpecs()["messages"]); !errors.Is(err, deltalog.ErrTableExists) {
		t.Errorf("made twice: %v", err)
	}
	if _, err := w.Table(t.Context(), "main.events.none"); !errors.Is(err, deltalog.ErrNotTable) {
		t.Errorf("absent: %v", err)
	}
	if _, err := w.CreateTable(t.Context(), "messages", deltalog.TableSpec{}); err == nil || !strings.Contains(err.Error(), "catalog.schema.table") {
		t.Errorf("bad name: %v", err)
	}
}

func TestOpenLocation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, location := range []string{dir, "file://" + filepath.ToSlash(dir), "file://localhost" + filepath.ToSlash(dir)} {
		if filepath.Separator == '\\' && strings.HasPrefix(location, "file:") {
			location = strings.Replace(location, dir[:2], "/"+dir[:2], 1)
		}
		st, err := deltabus.OpenLocation(location)
		if err != nil {
			t.Errorf("%s: %v", location, err)
		} else if got := strings.TrimSuffix(st.URL(""), "/"); !strings.HasSuffix(got, filepath.ToSlash(dir)) {
			t.Errorf("%s is at %s", location, got)
		}
	}
	for _, location := range []string{"s3://bucket/x", "abfss://c@a/x", "file://elsewhere/x", "memory:///1"} {
		if _, err := deltabus.OpenLocation(location); err == nil || !strings.Contains(err.Error(), location) {
			t.Errorf("%s: %v", location, err)
		}
	}
}

// TestDroppedTableOnAHost ends a publisher that goes through Zerobus, one that writes batches, and a consumer.
func TestDroppedTableOnAHost(t *testing.T) {
	t.Parallel()
	for name, zerobus := range map[string]bool{"zerobus": true, "batches": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := emulator.Run(t, emulator.WithDataDir(t.TempDir()), emulator.WithNoSync())
			cfg := deltabus.Config{Workspace: deltabus.OnHost(e.URL(), e.Token())}
			if zerobus {
				cfg.Zerobus = &deltabus.ZerobusConfig{Endpoint: e.URL(), Token: e.Token()}
			}
			b, err := deltabus.Init(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			p, err := b.Publisher(deltabus.WithBatches(time.Millisecond, 100, 1<<20), deltabus.WithRecovery(100*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			if r, err := p.Publish(t.Context(), deltabus.Message{Topic: "t"}); err != nil || (r[0].Path == deltabus.PathZerobus) != zerobus {
				t.Fatalf("receipts %v, %v", r, err)
			}
			handling, dropped := make(chan struct{}), make(chan struct{})
			c, err := b.Consumer("c", "t", func(context.Context, deltabus.Event) error {
				close(handling)
				<-dropped
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.Run(t.Context()) }()
			<-handling
			if err := e.Workspace().DropTable(t.Context(), "main.deltabus.messages"); err != nil {
				t.Fatal(err)
			}
			close(dropped)
			_, err = p.Publish(t.Context(), deltabus.Message{ID: "lost", Topic: "t"})
			var u *deltabus.UndeliveredError
			if !errors.Is(err, deltabus.ErrTableDropped) || !errors.As(err, &u) || len(u.Messages) != 1 || u.Messages[0].Message.ID != "lost" {
				t.Errorf("publish: %v", err)
			}
			if err := p.Close(t.Context()); err != nil {
				t.Errorf("close: %v", err)
			}
			if err := <-ended; !errors.Is(err, deltabus.ErrTableDropped) {
				t.Errorf("consume: %v", err)
			}
		})
	}
}
