package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/emulator"
)

// errNoWorkspace: there is neither a server nor a directory.
var errNoWorkspace = errors.New("no workspace here")

// target is the workspace that a verb works on.
type target struct {
	workspace deltabus.Workspace
	// zerobus is the endpoint of a server, nil without one.
	zerobus *deltabus.ZerobusConfig
	// dir is set where the verb works on the directory itself.
	dir *emulator.Workspace
	// host is set where there is a server; info too, if it is the one of --data-dir.
	host, token string
	info        emulator.Info
}

// target finds the workspace: --host, else the server of --data-dir, else the directory. With create a directory is made if there is
// none.
func (a *app) target(ctx context.Context, create bool) (*target, error) {
	if err := a.refuseBoth(); err != nil {
		return nil, err
	}
	if a.host != "" {
		return serverTarget(a.host, a.token, emulator.Info{}), nil
	}
	info, running, err := emulator.Running(a.dataDir)
	if err != nil {
		return nil, err
	}
	if running {
		return serverTarget(info.HTTP, info.Token, info), nil
	}
	if _, err := os.Stat(filepath.Join(a.dataDir, "catalog.db")); err != nil && !create {
		return nil, fmt.Errorf("%w: no server runs on %s, and it is no data directory", errNoWorkspace, a.dataDir)
	}
	dir, err := emulator.OpenDir(ctx, a.dataDir, deltabus.KeepForConsumers)
	if err != nil {
		return nil, err
	}
	return &target{workspace: dir, dir: dir}, nil
}

// refuseBoth refuses two flags that each say which workspace is meant.
func (a *app) refuseBoth() error {
	if a.origins["host"] == "flag" && a.origins["data-dir"] == "flag" {
		return usagef("--host and --data-dir name two workspaces: give one of them")
	}
	return nil
}

func serverTarget(host, token string, info emulator.Info) *target {
	z := &deltabus.ZerobusConfig{Endpoint: host, UnityCatalogURL: host, Token: token}
	if token == "" {
		z.Token = "none"
	}
	return &target{workspace: deltabus.OnHost(host, token), zerobus: z, host: host, token: token, info: info}
}

func (t *target) close() error {
	if t.dir != nil {
		return t.dir.Close()
	}
	return nil
}

// openBus opens the bus of a verb.
func (a *app) openBus(ctx context.Context, t *target) (*deltabus.Bus, error) {
	return deltabus.Open(ctx, deltabus.Config{Workspace: t.workspace, Schema: a.bus, Zerobus: t.zerobus, Logger: a.log})
}

// withBus runs f with the bus of --bus.
func (a *app) withBus(ctx context.Context, f func(*deltabus.Bus) error) error {
	t, err := a.target(ctx, false)
	if err != nil {
		return err
	}
	b, err := a.openBus(ctx, t)
	if err == nil {
		err = f(b)
	}
	return errors.Join(err, t.close())
}
