package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/emulator"
)

// TestPublishFromAPipeThatStaysOpen: who writes a line at a time gets each receipt before the next line, and a signal ends the
// command though its input does not end.
func TestPublishFromAPipeThatStaysOpen(t *testing.T) {
	t.Parallel()
	e := emulator.Run(t, emulator.WithListen("127.0.0.1:0"), emulator.WithDataDir(t.TempDir()))
	if _, err := deltabus.Init(t.Context(), deltabus.Config{Workspace: e}); err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath("deltabus-local")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "publish", "--host", e.URL(), "--token", e.Token(), "--topic", "t")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer hung.Stop()
	receipts := bufio.NewReader(out)
	for range 3 {
		if _, err := io.WriteString(in, `{"payload":"x"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := receipts.ReadString('\n'); err != nil || !strings.Contains(got, "  t  ") {
			t.Fatalf("receipt %q, %v", got, err)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(receipts); err != nil || len(rest) > 0 {
		t.Errorf("after the signal: %q, %v", rest, err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) {
		t.Errorf("exit code %d after a signal, want 0", exit.ExitCode())
	} else if err != nil {
		t.Fatal(err)
	}
}

// TestPublishOnAFullDiskEndsBySignal, the first one, and says what did not make it and what is kept.
func TestPublishOnAFullDiskEndsBySignal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args  []string
		in    string
		spool bool
		want  []string
	}{
		"a payload":  {args: []string{"x"}, want: []string{"not durable: ", "  t"}},
		"lines":      {in: `{"message_id":"one","payload":"1"}` + "\n" + `{"message_id":"two","payload":"2"}` + "\n", want: []string{"not durable: one  t", "not durable: two  t"}},
		"on a spool": {in: `{"message_id":"one","payload":"1"}` + "\n", spool: true, want: []string{"not durable: one  t  (kept on the spool)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, signal := context.WithCancel(t.Context())
			var full atomic.Bool
			in := &drained{Reader: strings.NewReader(test.in)}
			in.empty.Store(test.in == "")
			st := store.WithFaults(store.NewMemory(), func(op store.Op) store.Fault {
				if !full.Load() || op.Kind != "put" {
					return store.None
				}
				if in.empty.Load() {
					signal() // while the publisher is trying
				}
				return store.FailBefore
			})
			b, err := deltabus.Init(t.Context(), deltabus.Config{Workspace: deltabus.OnStore(st)})
			if err != nil {
				t.Fatal(err)
			}
			full.Store(true)
			var out, errOut bytes.Buffer
			a := &app{in: in, out: &out, err: &errOut, output: "table", patience: 50 * time.Millisecond}
			spool := ""
			if test.spool {
				spool = filepath.Join(t.TempDir(), "spool.db")
			}
			err = a.publish(ctx, b, "t", spool, test.args)
			var u *deltabus.UndeliveredError
			if !errors.As(err, &u) || !errors.Is(err, store.ErrInjected) || exitCode(err) != exitFailed {
				t.Errorf("error %v", err)
			}
			if spool := strings.Contains(hint("deltabus-local publish", err), "are kept"); spool != test.spool {
				t.Errorf("hint %q", hint("deltabus-local publish", err))
			}
			for _, want := range test.want {
				if !strings.Contains(errOut.String(), want) {
					t.Errorf("report %q lacks %q", errOut.String(), want)
				}
			}
			if out.Len() > 0 {
				t.Errorf("receipts %q", out.String())
			}
			full.Store(false)
			if !test.spool {
				return
			}
			a.in = strings.NewReader("")
			if err := a.publish(t.Context(), b, "t", spool, nil); err != nil {
				t.Fatal(err)
			}
			if n := b.Messages().Cached().NumFiles(); n != 1 {
				t.Errorf("%d files after the spool was published", n)
			}
		})
	}
}

// drained knows when all was read.
type drained struct {
	io.Reader
	empty atomic.Bool
}

func (d *drained) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		d.empty.Store(true)
	}
	return n, err
}
