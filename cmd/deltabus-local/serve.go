package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/emulator"
)

type serveFlags struct {
	listen, tlsListen string
	tlsNames          []string
	ephemeral         bool
	auth, seed        string
	fsync             string
	commitInterval    time.Duration
	readyFile, print  string
	store, s3Endpoint string
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a workspace until a signal ends it",
		Long: "Run a workspace: Zerobus and HTTP APIs on one port, tables in --data-dir. The first SIGTERM or SIGINT lets open streams\n" +
			"finish, a second one ends it at once.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:8080", "address of the plain port (gRPC and HTTP/1.1); on 127.0.0.1 also ::1; port 0 takes a free one")
	fl.StringVar(&f.tlsListen, "tls-listen", "", "address of a TLS port, with a certificate of its own small authority (default: none)")
	fl.StringSliceVar(&f.tlsNames, "tls-name", nil, "further host names or addresses for the TLS certificate")
	fl.BoolVar(&f.ephemeral, "ephemeral", false, "keep everything in a temporary directory that is removed at the end, instead of --data-dir")
	fl.StringVar(&f.auth, "auth", "open", "open takes any credential; strict is not there yet")
	fl.StringVar(&f.seed, "seed", "", "YAML file of catalogs, schemas, tables and buses to begin with")
	fl.StringVar(&f.fsync, "fsync", "on", "off acknowledges before data is on disk: faster, and lost if the machine stops")
	fl.DurationVar(&f.commitInterval, "commit-interval", 0, "time between commits of a table's streams (default: adaptive)")
	fl.StringVar(&f.readyFile, "ready-file", "", "file to write when ready, with the addresses and credentials as JSON")
	fl.StringVar(&f.store, "store", "", "s3://BUCKET/PREFIX to keep the tables in, instead of --data-dir; credentials as S3 tools read them")
	fl.StringVar(&f.s3Endpoint, "s3-endpoint", "", "URL of the S3 server of --store (default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, else Amazon's)")
	fl.StringVar(&f.print, "print", "", "json prints the ready file's content on stdout too")
	return c
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	if err := a.refuse("serve is a workspace itself, at --listen", "host", "token"); err != nil {
		return err
	}
	if f.ephemeral {
		if err := a.refuse("--ephemeral has a directory of its own", "data-dir"); err != nil {
			return err
		}
	}
	opts, banner, err := a.serveOptions(f)
	if err != nil {
		return err
	}
	dir := a.dataDir
	if f.ephemeral {
		if dir, err = os.MkdirTemp("", "deltabus-"); err != nil {
			return fmt.Errorf("temporary directory: %w", err)
		}
		defer os.RemoveAll(dir)
	}
	e, err := emulator.Start(ctx, append(opts, emulator.WithDataDir(dir))...)
	if err != nil {
		return err
	}
	a.sayRestored(e.Workspace())
	if f.readyFile != "" {
		if err := e.Info().WriteFile(f.readyFile); err != nil {
			return errors.Join(fmt.Errorf("ready file: %w", err), e.Stop(ctx))
		}
		defer os.Remove(f.readyFile)
	}
	if f.print == "json" || a.output != "table" {
		if err := a.printJSON(e.Info(), false); err != nil {
			return errors.Join(err, e.Stop(ctx))
		}
	} else {
		a.banner(e, banner)
	}
	// The heap has what a start needs; an idle server is to be small.
	runtime.GC()
	<-ctx.Done()
	a.log.Info("stopping: open streams may finish; a second signal stops at once")
	again, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	return e.Stop(again)
}

// serveOptions turns flags into options, and lines for the banner.
func (a *app) serveOptions(f serveFlags) (opts []emulator.Option, banner [][2]string, err error) {
	switch f.auth {
	case "open":
	case "strict":
		return nil, nil, usagef("--auth strict is not implemented yet: use open")
	default:
		return nil, nil, usagef("--auth %q: use open", f.auth)
	}
	if f.print != "" && f.print != "json" {
		return nil, nil, usagef("--print %q: use json", f.print)
	}
	if f.commitInterval < 0 {
		return nil, nil, usagef("--commit-interval must not be negative")
	}
	opts = []emulator.Option{emulator.WithListen(f.listen), emulator.WithLogger(a.log), emulator.WithCommitInterval(f.commitInterval)}
	opts = append(opts, emulator.WithTableOptions(deltabus.KeepForConsumers))
	if f.tlsListen != "" {
		opts = append(opts, emulator.WithTLS(f.tlsListen, f.tlsNames...))
	} else if len(f.tlsNames) > 0 {
		return nil, nil, usagef("--tls-name needs --tls-listen")
	}
	if f.store != "" || f.s3Endpoint != "" {
		o, err := s3Options(f.store, f.s3Endpoint)
		if err != nil {
			return nil, nil, err
		}
		if f.ephemeral {
			return nil, nil, usagef("--ephemeral removes everything at the end, and --store keeps it: give one of them")
		}
		opts = append(opts, emulator.WithS3(o))
		banner = append(banner, [2]string{"store", f.store})
	}
	switch f.fsync {
	case "on":
	case "off":
		opts = append(opts, emulator.WithNoSync())
		banner = append(banner, [2]string{"fsync", "OFF: what was acknowledged is lost if the machine stops"})
	default:
		return nil, nil, usagef("--fsync %q: use on or off", f.fsync)
	}
	buses := []string{a.bus}
	if f.seed != "" {
		data, err := os.ReadFile(f.seed)
		if err != nil {
			return nil, nil, usagef("--seed: %w", err)
		}
		seed, err := emulator.ParseSeed(data)
		if err != nil {
			return nil, nil, usagef("%s: %w", f.seed, err)
		}
		opts = append(opts, emulator.WithSeed(seed))
		buses = append(buses, seed.Buses...)
	}
	opts = append(opts, emulator.WithBeforeReady(func(ctx context.Context, e *emulator.Emulator) error {
		for _, schema := range buses {
			if _, err := deltabus.Init(ctx, deltabus.Config{Workspace: e, Schema: schema}); err != nil {
				return err
			}
		}
		return nil
	}))
	return opts, banner, nil
}

func (a *app) banner(e *emulator.Emulator, extra [][2]string) {
	info := e.Info()
	lines := [][2]string{{"workspace", info.HTTP}, {"data", info.DataDir}, {"bus", a.bus}}
	if info.TLS != "" {
		lines = append(lines, [2]string{"tls", info.TLS}, [2]string{"ca", info.CA})
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, l := range append(lines, extra...) {
		fmt.Fprintf(w, "%s\t%s\n", l[0], l[1])
	}
	_ = w.Flush() // a banner that nobody reads
	fmt.Fprintf(a.out, "%s in %d ms; give SDKs %s for both addresses\n", a.bold("ready"), a.started.elapsed().Milliseconds(), info.HTTP)
}

func (a *app) envCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print the export lines that SDKs and databricks clients read",
		Long:  "Print the variables of the server of --data-dir as export lines: eval \"$(deltabus-local env)\".",
		Args:  cobra.NoArgs,
		RunE: func(_ *cobra.Command, _ []string) error {
			if err := a.refuse("env knows the credentials of the server of --data-dir alone", "host", "token"); err != nil {
				return err
			}
			info, running, err := emulator.Running(a.dataDir)
			if err != nil {
				return err
			}
			if !running {
				return fmt.Errorf("%w: no server runs on %s", errNoWorkspace, a.dataDir)
			}
			noProxy := "localhost,127.0.0.1,::1"
			vars := [][2]string{
				{"DATABRICKS_HOST", info.HTTP},
				{"DATABRICKS_TOKEN", info.Token},
				{"DATABRICKS_CLIENT_ID", info.ClientID},
				{"DATABRICKS_CLIENT_SECRET", info.ClientSecret},
				{"DATABRICKS_WAREHOUSE_ID", info.WarehouseID},
				{"ZEROBUS_ENDPOINT", info.Zerobus},
				{"NO_PROXY", noProxy},
				{"no_proxy", noProxy},
			}
			if info.CA != "" {
				vars = append(vars, [2]string{"SSL_CERT_FILE", info.CA})
			}
			if a.output != "table" {
				m := map[string]string{}
				for _, v := range vars {
					m[v[0]] = v[1]
				}
				return a.printOne(m)
			}
			for _, v := range vars {
				fmt.Fprintf(a.out, "export %s='%s'\n", v[0], v[1])
			}
			return nil
		},
	}
}
