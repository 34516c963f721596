package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/emulator"
)

type checkJSON struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

func (a *app) doctorCommand() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check what a workspace needs of this machine, with a remedy for what is wrong",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.refuse("the doctor looks at this machine and --data-dir", "host", "token", "bus"); err != nil {
				return err
			}
			info, running, err := emulator.Running(a.dataDir)
			if err != nil {
				return err
			}
			checks := []checkJSON{checkPort(listen, info, running)}
			checks = append(checks, a.checkDir(cmd.Context())...)
			checks = append(checks, checkClock(time.Now()), checkProxy())
			t := a.table("CHECK", "RESULT", "FOUND", "REMEDY")
			failed := 0
			for _, k := range checks {
				result := "ok"
				if !k.OK {
					result = "FAILED"
					failed++
				}
				t.row(k, k.Check, result, k.Found, orDash(k.Remedy))
			}
			if err := t.flush(); err != nil {
				return err
			}
			if failed > 0 {
				return advise(fmt.Errorf("%d of %d checks failed", failed, len(checks)), "each has its remedy beside it")
			}
			return nil
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address that serve is to have")
	return c
}

func checkPort(listen string, info emulator.Info, running bool) checkJSON {
	c := checkJSON{Check: "port"}
	if running {
		c.OK, c.Found = true, fmt.Sprintf("a server runs at %s (pid %d)", info.HTTP, info.PID)
		return c
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		c.Found, c.Remedy = err.Error(), "stop what has the port, or serve --listen 127.0.0.1:0 for a free one"
		return c
	}
	c.OK, c.Found = true, listen+" is free"
	if err := l.Close(); err != nil {
		c.OK, c.Found = false, err.Error()
	}
	return c
}

// checkDir tries in the data directory what a commit does there.
func (a *app) checkDir(ctx context.Context) []checkJSON {
	write := checkJSON{Check: "data directory"}
	link := checkJSON{Check: "commits by put-if-absent"}
	fail := func(c checkJSON, err error, remedy string) []checkJSON {
		c.Found, c.Remedy = err.Error(), remedy
		return []checkJSON{c}
	}
	const elsewhere = "choose a --data-dir on a local disk that you may write"
	_, statErr := os.Stat(a.dataDir)
	dir := filepath.Join(a.dataDir, ".doctor")
	st, err := store.NewLocal(dir, false)
	if err != nil {
		return fail(write, err, elsewhere)
	}
	defer func() {
		_ = os.RemoveAll(dir)
		if errors.Is(statErr, os.ErrNotExist) {
			_ = os.Remove(a.dataDir) // it was not there before
		}
	}()
	const n = 20
	start := time.Now()
	for i := range n {
		if err := st.Put(ctx, fmt.Sprintf("f%d", i), []byte("x"), store.PutOptions{}); err != nil {
			return fail(write, err, elsewhere)
		}
	}
	write.OK = true
	write.Found = fmt.Sprintf("%s is writable, a synced write takes %s", a.dataDir, (time.Since(start) / n).Round(10*time.Microsecond))
	mod := time.UnixMilli(1_700_000_000_123)
	if err := st.Put(ctx, "v", []byte("1"), store.PutOptions{IfAbsent: true, ModTime: mod}); err != nil {
		return append([]checkJSON{write}, fail(link, err, elsewhere)...)
	}
	if err := st.Put(ctx, "v", []byte("2"), store.PutOptions{IfAbsent: true}); !errors.Is(err, store.ErrExist) {
		return append([]checkJSON{write}, fail(link, fmt.Errorf("a second writer was not refused: %v", err), elsewhere)...)
	}
	link.OK, link.Found = true, "a second writer of a version is refused"
	times := checkJSON{Check: "file times"}
	info, err := st.Stat(ctx, "v")
	if err != nil {
		return append([]checkJSON{write, link}, fail(times, err, elsewhere)...)
	}
	if got := info.ModTime.UnixMilli(); got != mod.UnixMilli() {
		times.Found, times.Remedy = fmt.Sprintf("a time was set to %d ms and is %d", mod.UnixMilli(), got), "commit times of tables there will be off: "+elsewhere
	} else {
		times.OK, times.Found = true, "kept to the millisecond"
	}
	return []checkJSON{write, link, times}
}

func checkClock(now time.Time) checkJSON {
	c := checkJSON{Check: "clock", OK: true, Found: now.UTC().Format(time.RFC3339)}
	if now.Year() < 2024 || now.Year() > 2100 {
		c.OK, c.Remedy = false, "set the clock: commit times and tokens depend on it"
	}
	return c
}

// checkProxy finds a proxy that SDKs would use for localhost too (zerobus.md 4.5).
func checkProxy() checkJSON {
	c := checkJSON{Check: "proxy", OK: true, Found: "no proxy variable is set"}
	for _, name := range []string{"grpc_proxy", "http_proxy", "https_proxy", "GRPC_PROXY", "HTTP_PROXY", "HTTPS_PROXY"} {
		v := os.Getenv(name)
		if v == "" {
			continue
		}
		if u, err := url.Parse(v); err == nil { // it may hold a password
			v = u.Redacted()
		}
		c.Found = name + "=" + v
		bypass := os.Getenv("no_proxy") + "," + os.Getenv("NO_PROXY")
		if !strings.Contains(bypass, "localhost") && !strings.Contains(bypass, "*") {
			c.OK, c.Remedy = false, "export NO_PROXY=localhost,127.0.0.1: SDKs ask the proxy for local addresses too"
			return c
		}
	}
	return c
}
