package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog/store"
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

// access is what a verb does with its workspace.
type access int

const (
	reading  access = iota // works on a directory that must not be written
	writing                // is refused there, before anything is done
	creating               // makes the directory if there is none
)

// target finds the workspace: --host, else the server of --data-dir, else the directory.
func (a *app) target(ctx context.Context, to access) (*target, error) {
	if err := a.refuseBoth(); err != nil {
		return nil, err
	}
	if a.host != "" {
		if u, err := url.Parse(a.host); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return nil, advise(usagef("host %q (%s): write it as http://localhost:8080 or https://…", a.host, a.origins["host"]), seeSettings)
		}
		return serverTarget(a.host, a.token, emulator.Info{}), nil
	}
	info, running, err := emulator.Running(a.dataDir)
	if err != nil {
		return nil, err
	}
	if running {
		return serverTarget(info.HTTP, info.Token, info), nil
	}
	if to != creating && !emulator.IsDataDir(a.dataDir) {
		return nil, fmt.Errorf("%w: no server runs on %s, and it is no data directory", errNoWorkspace, a.dataDir)
	}
	dir, err := emulator.OpenDir(ctx, a.dataDir, deltabus.KeepForConsumers)
	if err != nil {
		return nil, err
	}
	a.sayRestored(dir)
	if to != reading {
		if err := dir.CheckWritable(); err != nil {
			return nil, errors.Join(err, dir.Close())
		}
	}
	return &target{workspace: dir, dir: dir}, nil
}

// sayRestored tells that a lost catalog was made anew.
func (a *app) sayRestored(w *emulator.Workspace) {
	names := w.Restored()
	if _, bucket := w.Store().(*store.S3); bucket && len(names) > 0 { // a new data directory beside a store that others have, too
		fmt.Fprintf(a.err, "deltabus-local: %s has these tables already: %s\n", w.Store().URL(""), strings.Join(names, ", "))
		return
	}
	if len(names) > 0 {
		fmt.Fprintf(a.err, "deltabus-local: the catalog of %s was lost; found by their files: %s\n", a.dataDir, strings.Join(names, ", "))
		fmt.Fprintln(a.err, "  ids and credentials are new; external tables and schemas without tables have to be made again")
	}
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
func (a *app) withBus(ctx context.Context, to access, f func(*deltabus.Bus) error) error {
	t, err := a.target(ctx, to)
	if err != nil {
		return err
	}
	b, err := a.openBus(ctx, t)
	if err == nil {
		err = f(b)
	}
	return errors.Join(err, t.close())
}
