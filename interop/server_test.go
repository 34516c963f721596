package interop

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/emulator"
)

// binary is the deltabus-local that is tested: DELTABUS_LOCAL, else built from this tree.
var binary = sync.OnceValues(func() (string, error) {
	if b := os.Getenv("DELTABUS_LOCAL"); b != "" {
		return filepath.Abs(b)
	}
	b := filepath.Join(buildDir, "deltabus-local")
	cmd := exec.Command("go", "build", "-o", b, "./cmd/deltabus-local")
	cmd.Dir = ".."
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return b, cmd.Run()
})

// server is the real binary, serving a data directory. It can be killed and started again on the same port.
type server struct {
	t   *testing.T
	dir string
	// args and env are further ones of the process.
	args, env []string
	emulator.Info

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

// serve starts the binary on a data directory of the test's own.
func serve(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, dir: filepath.Join(t.TempDir(), "data")}
	t.Cleanup(s.terminate)
	s.start("127.0.0.1:0")
	return s
}

// start starts the binary and waits until it is ready.
func (s *server) start(listen string) {
	s.t.Helper()
	path, err := binary()
	if err != nil {
		s.t.Fatalf("build deltabus-local: %v", err)
	}
	ready := filepath.Join(filepath.Dir(s.dir), "ready.json")
	_ = os.Remove(ready)
	cmd := exec.Command(path, "serve", "--listen", listen, "--data-dir", s.dir, "--ready-file", ready)
	cmd.Args = append(cmd.Args, s.args...)
	cmd.Env = environment(s.env...)
	cmd.Stderr = testWriter{s.t, "serve: "}
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("serve: %v", err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	s.mu.Lock()
	s.cmd, s.exited = cmd, exited
	s.mu.Unlock()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(ready); err == nil {
			if err := json.Unmarshal(b, &s.Info); err != nil {
				s.t.Fatalf("ready file: %v", err)
			}
			return
		}
		select {
		case <-exited:
			s.t.Fatalf("serve ended before it was ready: %v", cmd.ProcessState)
		default:
		}
		if time.Now().After(deadline) {
			s.t.Fatal("serve was not ready within 30 s")
		}
	}
}

// kill is SIGKILL, and waits until the process is gone.
func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// restart starts it again on the same port.
func (s *server) restart() {
	s.t.Helper()
	u, err := url.Parse(s.HTTP)
	if err != nil {
		s.t.Fatalf("address %q: %v", s.HTTP, err)
	}
	s.start(u.Host)
}

func (s *server) terminate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(15 * time.Second):
		s.t.Error("serve did not end within 15 s of SIGTERM")
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

// createTable makes a table in the server's workspace from another process: this one.
func (s *server) createTable(name string, columns []string, partitionBy []string, properties map[string]string) string {
	s.t.Helper()
	ctx := context.Background()
	w, err := emulator.OpenDir(ctx, s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	defer w.Close()
	spec := deltalog.TableSpec{Name: name, PartitionColumns: partitionBy, Configuration: properties}
	for _, c := range columns {
		f, err := deltalog.ParseColumn(c)
		if err != nil {
			s.t.Fatal(err)
		}
		spec.Schema.Fields = append(spec.Schema.Fields, f)
	}
	if _, err := w.CreateTable(ctx, name, spec); err != nil {
		s.t.Fatal(err)
	}
	info, err := w.Info(ctx, name)
	if err != nil {
		s.t.Fatal(err)
	}
	u, err := url.Parse(info.Location)
	if err != nil {
		s.t.Fatal(err)
	}
	return u.Path
}

// openTable opens a table by its directory, as a process that knows nothing but its files.
func openTable(t *testing.T, dir string) *deltalog.Table {
	t.Helper()
	st, err := store.NewLocal(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	table, err := deltalog.Open(context.Background(), st, deltalog.Options{})
	if err != nil {
		t.Fatalf("open %s: %v", dir, err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return table
}

// testWriter logs a process's lines to a test.
type testWriter struct {
	t      *testing.T
	prefix string
}

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s%s", w.prefix, b)
	return len(b), nil
}
