package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildDir holds what the whole run shares: the binary, generated code.
var buildDir string

func TestMain(m *testing.M) {
	if os.Getenv(consumerWorkerEnv) != "" {
		consumerWorker()
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	buildDir = dir
	defer stopJudges()
	return m.Run()
}

// peer is the path of something that install.sh installs. A missing one fails the test.
func peer(t testing.TB, path ...string) string {
	t.Helper()
	p, err := filepath.Abs(filepath.Join(append([]string{"..", ".interop"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p); err != nil {
		t.Fatalf("peer is missing: %v; run interop/install.sh, with the argument rust for the Rust SDK", err)
	}
	return p
}

func python(t testing.TB) string { return peer(t, "venv", "bin", "python") }

func source(t *testing.T, path ...string) string {
	t.Helper()
	p, err := filepath.Abs(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// environment is what every peer gets: no proxy to loopback, no chatter on stdout, UTC.
func environment(extra ...string) []string {
	return append(append(os.Environ(), "NO_PROXY=localhost,127.0.0.1", "no_proxy=localhost,127.0.0.1", "RUST_LOG=error", "TZ=UTC", "PYTHONUNBUFFERED=1"), extra...)
}

// arguments are key=value words, which every language can read without a parser.
type arguments map[string]any

func (a arguments) words() []string {
	var out []string
	for k, v := range a {
		out = append(out, fmt.Sprintf("%s=%v", k, v))
	}
	return out
}

// answer is the last line that a peer prints.
type answer struct {
	Sent  int    `json:"sent"`
	Error string `json:"error"`
	Kind  string `json:"kind"`
}

// worker is a peer that runs and prints JSON lines.
type worker struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{}

	mu    sync.Mutex
	lines [][]byte
	grown chan struct{} // closed and replaced with each line
	errs  bytes.Buffer
	err   error
}

// startWorker starts a peer. It is killed at the end of the test if it still runs.
func startWorker(t *testing.T, name string, args ...string) *worker {
	t.Helper()
	w := &worker{t: t, name: filepath.Base(name), cmd: exec.Command(name, args...), done: make(chan struct{}), grown: make(chan struct{})}
	w.cmd.Env = environment()
	w.cmd.Stderr = &w.errs
	var err error
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		in := bufio.NewScanner(out)
		in.Buffer(nil, 64<<20)
		for in.Scan() {
			w.mu.Lock()
			w.lines = append(w.lines, bytes.Clone(in.Bytes()))
			close(w.grown)
			w.grown = make(chan struct{})
			w.mu.Unlock()
		}
		err := w.cmd.Wait()
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		close(w.done)
	}()
	t.Cleanup(func() {
		_ = w.cmd.Process.Kill()
		<-w.done
	})
	return w
}

// printed is the lines so far.
func (w *worker) printed() [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines
}

// until waits until the lines so far satisfy ok.
func (w *worker) until(d time.Duration, ok func(lines [][]byte) bool) {
	w.t.Helper()
	timeout := time.After(d)
	for {
		w.mu.Lock()
		lines, grown := w.lines, w.grown
		w.mu.Unlock()
		if ok(lines) {
			return
		}
		select {
		case <-grown:
		case <-w.done:
			if lines = w.printed(); ok(lines) {
				return
			}
			w.t.Fatalf("%s ended too early: %v\n%s\n%s", w.name, w.err, bytes.Join(lines, []byte("\n")), w.errs.Bytes())
		case <-timeout:
			w.t.Fatalf("%s: not within %v; %d lines so far, the last %s", w.name, d, len(lines), last(lines))
		}
	}
}

func last(lines [][]byte) []byte {
	if len(lines) == 0 {
		return nil
	}
	return lines[len(lines)-1]
}

// wait waits for the end and returns all lines. A failure of the process fails the test.
func (w *worker) wait(d time.Duration) [][]byte {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(d):
		w.t.Fatalf("%s did not end within %v", w.name, d)
	}
	if w.err != nil {
		w.t.Fatalf("%s: %v\n%s\n%s", w.name, w.err, bytes.Join(w.lines, []byte("\n")), w.errs.Bytes())
	}
	return w.lines
}

// answer waits for the end and decodes the last line.
func (w *worker) answer(d time.Duration) answer {
	w.t.Helper()
	lines := w.wait(d)
	var a answer
	if err := json.Unmarshal(last(lines), &a); err != nil {
		w.t.Fatalf("%s printed %q: %v\n%s", w.name, last(lines), err, w.errs.Bytes())
	}
	return a
}

// command runs a peer to its end and returns what it prints.
func command(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = environment()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s\n%s", filepath.Base(name), strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}
