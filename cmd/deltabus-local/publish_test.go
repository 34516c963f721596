package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
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
