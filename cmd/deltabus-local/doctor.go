package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
	var listen, tlsListen, storeURL, s3Endpoint string
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
			checks := checkPorts(listen, tlsListen, info, running)
			inDir, stamped := a.checkDir(cmd.Context())
			checks = append(checks, inDir...)
			checks = append(checks, checkClock(time.Now(), stamped), checkProxy(os.Getenv))
			if storeURL != "" || s3Endpoint != "" {
				inStore, err := checkStore(cmd.Context(), storeURL, s3Endpoint)
				if err != nil {
					return err
				}
				checks = append(checks, inStore...)
			}
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
	c.Flags().StringVar(&storeURL, "store", "", "store to try, s3://BUCKET/PREFIX or a directory: whether it keeps all that tables need of one")
	c.Flags().StringVar(&s3Endpoint, "s3-endpoint", "", "URL of the S3 server of --store, as for serve")
	c.Flags().StringVar(&tlsListen, "tls-listen", "", "TLS address that serve is to have (default: none)")
	return c
}

// checkPorts tries the ports that serve would take, ::1 beside 127.0.0.1 too.
func checkPorts(listen, tlsListen string, info emulator.Info, running bool) []checkJSON {
	if running {
		return []checkJSON{{Check: "port", OK: true, Found: fmt.Sprintf("a server runs at %s (pid %d)", info.HTTP, info.PID)}}
	}
	checks := []checkJSON{checkPort("port", listen, "--listen")}
	if host, port, err := net.SplitHostPort(listen); err == nil && host == "127.0.0.1" && port != "0" {
		checks = append(checks, checkPort6(port))
	}
	if tlsListen != "" {
		checks = append(checks, checkPort("tls port", tlsListen, "--tls-listen"))
	}
	return checks
}

func checkPort(name, addr, flag string) checkJSON {
	c := checkJSON{Check: name}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		c.Found, c.Remedy = err.Error(), "write "+flag+" as HOST:PORT, like 127.0.0.1:8080"
		return c
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		c.Found, c.Remedy = err.Error(), "stop what has the port, or serve "+flag+" 127.0.0.1:0 for a free one"
		return c
	}
	c.OK, c.Found = true, addr+" is free"
	if err := l.Close(); err != nil {
		c.OK, c.Found, c.Remedy = false, err.Error(), "try again, or choose another port"
	}
	return c
}

// checkPort6 tries the port of ::1, which clients may take localhost for. A machine without ::1 is fine.
func checkPort6(port string) checkJSON {
	addr := net.JoinHostPort("::1", port)
	if probe, err := net.Listen("tcp", "[::1]:0"); err != nil {
		return checkJSON{Check: "port of ::1", OK: true, Found: "no ::1 on this machine"}
	} else if err := probe.Close(); err != nil {
		return checkJSON{Check: "port of ::1", Found: err.Error(), Remedy: "give clients 127.0.0.1 instead of localhost"}
	}
	c := checkPort("port of ::1", addr, "--listen")
	if !c.OK {
		c.Remedy = "stop what has it, choose another port, or give clients 127.0.0.1 instead of localhost"
	}
	return c
}

// checkDir tries in the data directory what a commit does there. stamped is the time of a file that it made at the end, zero if it could not.
func (a *app) checkDir(ctx context.Context) (checks []checkJSON, stamped time.Time) {
	const elsewhere = "choose a --data-dir on a local disk that you may write"
	dir, remove, err := doctorDir(a.dataDir)
	if err != nil {
		return []checkJSON{{Check: "data directory", Found: err.Error(), Remedy: elsewhere}}, stamped
	}
	defer remove()
	st, err := store.NewLocal(dir, false)
	if err != nil {
		return []checkJSON{{Check: "data directory", Found: err.Error(), Remedy: elsewhere}}, stamped
	}
	for _, check := range []struct {
		name, remedy string
		try          func() (found string, err error)
	}{
		{"data directory", elsewhere, func() (string, error) { return writes(ctx, st, a.dataDir) }},
		{"commits by links", elsewhere + ": there two writers could both win a version", func() (string, error) { return links(ctx, st) }},
		{"file times", elsewhere + ": there commit times would be off", func() (string, error) { return times(ctx, st) }},
	} {
		found, err := check.try()
		if err != nil {
			c := checkJSON{Check: check.name, Found: err.Error(), Remedy: check.remedy}
			if errors.Is(err, syscall.ENOSPC) {
				c.Remedy = "free space on that disk"
			}
			return append(checks, c), stamped
		}
		checks = append(checks, checkJSON{Check: check.name, OK: true, Found: found})
	}
	if info, err := st.Stat(ctx, "f0"); err == nil {
		stamped = info.ModTime
	}
	return checks, stamped
}

// doctorDir makes a directory to try things in, and what is missing above it; remove takes that away again.
func doctorDir(dataDir string) (dir string, remove func(), err error) {
	missing := ""
	for d := filepath.Clean(dataDir); ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		missing = d
	}
	if err := os.MkdirAll(dataDir, 0o755); err != nil {
		return "", nil, err
	}
	dir, err = os.MkdirTemp(dataDir, ".doctor-")
	return dir, func() {
		_ = os.RemoveAll(dir) // what stays is named by the next ls, and harms nothing
		for d := filepath.Clean(dataDir); missing != ""; d = filepath.Dir(d) {
			if os.Remove(d) != nil || d == missing { // somebody has put something there
				return
			}
		}
	}, err
}

func writes(ctx context.Context, st store.Store, dir string) (string, error) {
	const n = 20
	start := time.Now()
	for i := range n {
		if err := st.Put(ctx, fmt.Sprintf("f%d", i), []byte("x"), store.PutOptions{}); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s is writable, a synced write takes %s", dir, (time.Since(start) / n).Round(10*time.Microsecond)), nil
}

// mark is a time to the millisecond, as commits set it.
var mark = time.UnixMilli(1_700_000_000_123)

func links(ctx context.Context, st store.Store) (string, error) {
	if err := st.Put(ctx, "v", []byte("1"), store.PutOptions{IfAbsent: true, ModTime: mark}); err != nil {
		return "", err
	}
	if err := st.Put(ctx, "v", []byte("2"), store.PutOptions{IfAbsent: true}); !errors.Is(err, store.ErrExist) {
		return "", fmt.Errorf("a second writer was not refused: %v", err)
	}
	return "a second writer of a version is refused", nil
}

func times(ctx context.Context, st store.Store) (string, error) {
	info, err := st.Stat(ctx, "v")
	if err != nil {
		return "", err
	}
	if got := info.ModTime.UnixMilli(); got != mark.UnixMilli() {
		return "", fmt.Errorf("a time was set to %d ms and is %d", mark.UnixMilli(), got)
	}
	return "kept to the millisecond", nil
}

// checkClock compares the clock with reason, and with the one that stamps files, which on a disk of the network is another machine's.
func checkClock(now, file time.Time) checkJSON {
	c := checkJSON{Check: "clock", OK: true, Found: now.UTC().Format(time.RFC3339)}
	switch skew := file.Sub(now); {
	case now.Year() < 2024 || now.Year() > 2100:
		c.OK, c.Remedy = false, "set the clock: commit times and tokens depend on it"
	case !file.IsZero() && skew.Abs() > 2*time.Second:
		c.OK, c.Found = false, fmt.Sprintf("%s, and new files are stamped %s off", c.Found, skew.Round(time.Second))
		c.Remedy = "set the clocks of this machine and of the one with the disk, or choose a --data-dir on a local disk"
	}
	return c
}

// checkProxy finds a proxy that SDKs would use for localhost too (zerobus.md 4.5). Which of NO_PROXY and no_proxy they read differs, so
// each that is set has to name the addresses.
func checkProxy(getenv func(string) string) checkJSON {
	c := checkJSON{Check: "proxy", OK: true, Found: "no proxy variable is set"}
	for _, name := range []string{"grpc_proxy", "http_proxy", "https_proxy", "all_proxy", "GRPC_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		v := getenv(name)
		if v == "" {
			continue
		}
		if u, err := url.Parse(v); err == nil { // it may hold a password
			v = u.Redacted()
		}
		c.Found = name + "=" + v
		upper, lower := getenv("NO_PROXY"), getenv("no_proxy")
		if upper == "" && lower == "" || upper != "" && !bypasses(upper) || lower != "" && !bypasses(lower) {
			c.OK, c.Remedy = false, "export NO_PROXY=localhost,127.0.0.1,::1 no_proxy=localhost,127.0.0.1,::1: SDKs ask the proxy for local addresses too"
		}
		return c
	}
	return c
}

// bypasses reports whether a list of hosts without a proxy has both names of this machine that clients use.
func bypasses(list string) bool {
	var hosts []string
	for _, h := range strings.Split(list, ",") {
		hosts = append(hosts, strings.TrimSpace(h))
	}
	return slices.Contains(hosts, "*") || slices.Contains(hosts, "localhost") && slices.Contains(hosts, "127.0.0.1")
}
