package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/emulator"
)

// Served is the binary at path: the server and every worker are processes of their own, and killed by SIGKILL.
func Served(path string) Target { return served{path} }

type served struct{ path string }

func (served) Name() string { return "served" }

func (s served) Start(ctx context.Context) (Instance, error) {
	dir, err := os.MkdirTemp("", "deltabus-conformance-")
	if err != nil {
		return nil, err
	}
	i := &servedInstance{path: s.path, dir: dir, listen: "127.0.0.1:0"}
	if err := i.StartServer(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	st, err := store.NewLocal(filepath.Join(dir, "data", "tables"), false)
	if err == nil {
		i.bus, err = deltabus.Open(ctx, deltabus.Config{Workspace: deltabus.OnStore(st)})
	}
	if err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

type servedInstance struct {
	path, dir, listen string
	bus               *deltabus.Bus
	info              emulator.Info
	server            *exec.Cmd
	said              *bytes.Buffer
	exited            chan struct{}
}

func (i *servedInstance) Bus() *deltabus.Bus { return i.bus }

// clean is the environment without this project's own variables, which would change what is tested.
func clean() []string {
	var out []string
	for _, v := range os.Environ() {
		if !bytes.HasPrefix([]byte(v), []byte("DELTABUS_")) && !bytes.HasPrefix([]byte(v), []byte("DATABRICKS_")) {
			out = append(out, v)
		}
	}
	return out
}

func (i *servedInstance) StartServer(ctx context.Context) error {
	ready := filepath.Join(i.dir, "ready.json")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	cmd := exec.Command(i.path, "serve", "--listen", i.listen, "--data-dir", filepath.Join(i.dir, "data"), "--ready-file", ready)
	cmd.Dir, cmd.Env = i.dir, clean()
	i.said = &bytes.Buffer{}
	cmd.Stderr = i.said
	if err := cmd.Start(); err != nil {
		return err
	}
	i.server, i.exited = cmd, make(chan struct{})
	go func() {
		defer close(i.exited)
		_ = cmd.Wait() // it is killed
	}()
	for {
		data, err := os.ReadFile(ready)
		if err == nil && json.Unmarshal(data, &i.info) == nil {
			break
		}
		select {
		case <-i.exited:
			return fmt.Errorf("the server did not start: %s", i.said)
		case <-ctx.Done():
			return errors.Join(ctx.Err(), i.KillServer(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
	u, err := url.Parse(i.info.HTTP)
	if err != nil {
		return err
	}
	i.listen = u.Host
	return nil
}

func (i *servedInstance) KillServer(context.Context) error {
	err := i.server.Process.Kill()
	<-i.exited
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (i *servedInstance) Close() error {
	return errors.Join(i.KillServer(context.Background()), os.RemoveAll(i.dir))
}

func (i *servedInstance) Spawn(_ context.Context, spec WorkerSpec, record func(Record)) (Worker, error) {
	spec.Host, spec.Token, spec.Schema = i.info.HTTP, i.info.Token, i.bus.Schema()
	task, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	w := &servedWorker{cmd: exec.Command(i.path, "conformance", "worker", "--data-dir", filepath.Join(i.dir, "data")), done: make(chan struct{})}
	w.cmd.Dir, w.cmd.Env = i.dir, clean()
	w.cmd.Stdin = bytes.NewReader(task)
	w.cmd.Stderr = &w.said
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(w.done)
		readErr := ReadRecords(out, record)
		w.err = errors.Join(readErr, w.cmd.Wait())
	}()
	return w, nil
}

type servedWorker struct {
	cmd    *exec.Cmd
	said   bytes.Buffer
	done   chan struct{}
	once   sync.Once
	killed bool
	err    error
}

func (w *servedWorker) Kill() error {
	w.once.Do(func() { w.killed = true })
	err := w.cmd.Process.Kill()
	<-w.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (w *servedWorker) Wait() error {
	<-w.done
	var exit *exec.ExitError
	if errors.As(w.err, &exit) && exit.ExitCode() == -1 {
		return errKilled
	}
	if w.err != nil {
		return fmt.Errorf("%w: %s", w.err, bytes.TrimSpace(w.said.Bytes()))
	}
	return nil
}
