package main

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/emulator"
)

// every check that fails has a remedy, and every one that does not has none.
func judge(t *testing.T, what string, c checkJSON, ok bool) {
	t.Helper()
	if c.OK != ok || c.Found == "" || (c.Remedy == "") != ok {
		t.Errorf("%s: %+v, want ok %v", what, c, ok)
	}
}

func TestDoctorPorts(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range checkPorts(taken.Addr().String(), "127.0.0.1:0", emulator.Info{}, false) {
		judge(t, c.Check, c, c.Check != "port")
	}
	judge(t, "no port", checkPorts("nonsense", "", emulator.Info{}, false)[0], false)
	judge(t, "a free port", checkPorts("127.0.0.1:0", "", emulator.Info{}, false)[0], true)
	judge(t, "a server", checkPorts(taken.Addr().String(), "", emulator.Info{HTTP: "http://x", PID: 1}, true)[0], true)
	if six, err := net.Listen("tcp", "[::1]:0"); err == nil {
		_, port, err := net.SplitHostPort(six.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		judge(t, "a port of ::1 that is taken", checkPort6(port), false)
		if err := six.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The directory is tried, and left as it was.
func TestDoctorDirectory(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	if err := os.WriteFile(filepath.Join(top, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, ok := range map[string]bool{"new/below": true, ".": true, "file": false, "file/below": false} {
		checks, stamped := (&app{dataDir: filepath.Join(top, dir)}).checkDir(t.Context())
		if want := map[bool]int{true: 3, false: 1}[ok]; len(checks) != want || stamped.IsZero() == ok {
			t.Errorf("%s: %d checks, stamped %s", dir, len(checks), stamped)
		}
		for _, c := range checks {
			judge(t, dir+" "+c.Check, c, ok)
		}
	}
	var left []string
	err := filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		left = append(left, path)
		return err
	})
	if err != nil || len(left) != 2 {
		t.Errorf("left: %q, %v", left, err)
	}
}

func TestDoctorClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		now, file time.Time
		ok        bool
	}{
		{now, now.Add(time.Second), true},
		{now, time.Time{}, true},
		{now, now.Add(-time.Hour), false},
		{time.Unix(0, 0), time.Unix(0, 0), false},
	} {
		judge(t, test.file.String(), checkClock(test.now, test.file), test.ok)
	}
}

func TestDoctorProxy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env string
		ok  bool
	}{
		{"", true},
		{"NO_PROXY=x", true},
		{"HTTP_PROXY=http://p:1", false},
		{"https_proxy=http://user:secret@p:1 NO_PROXY=localhost,127.0.0.1", true},
		{"all_proxy=socks5://p:1 no_proxy=*", true},
		{"HTTP_PROXY=http://p:1 NO_PROXY=localhost", false},
		{"HTTP_PROXY=http://p:1 NO_PROXY=notlocalhost,127.0.0.1", false},
		{"HTTP_PROXY=http://p:1 NO_PROXY=localhost,127.0.0.1 no_proxy=corp", false},
	} {
		env := map[string]string{}
		for _, v := range strings.Fields(test.env) {
			k, v, _ := strings.Cut(v, "=")
			env[k] = v
		}
		c := checkProxy(func(k string) string { return env[k] })
		judge(t, test.env, c, test.ok)
		if strings.Contains(c.Found, "secret") {
			t.Errorf("%s: the password is shown", test.env)
		}
	}
}
