package conformance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/emulator"
)

// InProcess is the emulator in this process, on a temporary directory. A killed worker is one whose every access to the tables fails from
// then on and that records nothing more; a killed server is stopped without its grace.
func InProcess() Target { return inProcess{} }

type inProcess struct{}

func (inProcess) Name() string { return "inprocess" }

func (inProcess) Start(ctx context.Context) (Instance, error) {
	dir, err := os.MkdirTemp("", "deltabus-conformance-")
	if err != nil {
		return nil, err
	}
	i := &inProcessInstance{dir: dir, listen: "127.0.0.1:0"}
	if err := i.StartServer(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	st, err := store.NewLocal(filepath.Join(dir, "tables"), true)
	if err == nil {
		i.bus, err = deltabus.Open(ctx, deltabus.Config{Workspace: deltabus.OnStore(st)})
	}
	if err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

type inProcessInstance struct {
	dir, listen string
	bus         *deltabus.Bus
	e           *emulator.Emulator
	workers     sync.WaitGroup
}

func (i *inProcessInstance) Bus() *deltabus.Bus { return i.bus }

func (i *inProcessInstance) StartServer(ctx context.Context) error {
	e, err := emulator.Start(ctx, emulator.WithDataDir(i.dir), emulator.WithListen(i.listen), emulator.WithNoSync(),
		emulator.WithBeforeReady(func(ctx context.Context, e *emulator.Emulator) error {
			_, err := deltabus.Init(ctx, deltabus.Config{Workspace: e})
			return err
		}))
	if err != nil {
		return err
	}
	i.e, i.listen = e, e.URL()[len("http://"):]
	return nil
}

func (i *inProcessInstance) KillServer(context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return i.e.Stop(ctx)
}

func (i *inProcessInstance) Close() error {
	i.workers.Wait()
	return errors.Join(i.KillServer(context.Background()), os.RemoveAll(i.dir))
}

func (i *inProcessInstance) Spawn(ctx context.Context, spec WorkerSpec, record func(Record)) (Worker, error) {
	st, err := store.NewLocal(filepath.Join(i.dir, "tables"), true)
	if err != nil {
		return nil, err
	}
	w := &inProcessWorker{done: make(chan struct{})}
	ctx, w.cancel = context.WithCancel(ctx)
	doomed := store.WithFaults(st, func(store.Op) store.Fault {
		if w.dead.Load() {
			return store.FailBefore
		}
		return store.None
	})
	cfg := deltabus.Config{Workspace: deltabus.OnStore(doomed)}
	if spec.Produce != nil && spec.Produce.Zerobus {
		cfg.Zerobus = &deltabus.ZerobusConfig{Endpoint: "http://" + i.listen, Token: "t"}
	}
	bus, err := deltabus.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	i.workers.Go(func() {
		defer close(w.done)
		w.err = RunWorker(ctx, spec, bus, func(r Record) {
			if !w.dead.Load() {
				record(r)
			}
		}, func() { w.die() })
	})
	return w, nil
}

type inProcessWorker struct {
	dead   atomic.Bool
	cancel func()
	done   chan struct{}
	err    error
}

func (w *inProcessWorker) die() {
	w.dead.Store(true)
	w.cancel()
}

func (w *inProcessWorker) Kill() error {
	w.die()
	<-w.done
	return nil
}

func (w *inProcessWorker) Wait() error {
	<-w.done
	w.cancel()
	if w.dead.Load() {
		return errKilled
	}
	return w.err
}

// errKilled is what Wait gives for a worker that was killed, also by itself.
var errKilled = errors.New("killed")
