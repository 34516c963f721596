package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/deltabus/deltabus-local/emulator"
)

// TestMain makes the test binary the command itself when a script runs it: every step is a process of its own.
func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"deltabus-local": main}) }

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			for _, v := range []string{"DATABRICKS_HOST", "DATABRICKS_TOKEN", "DELTABUS_HOST", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"} {
				e.Setenv(v, "")
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "ready": ready, "field": field, "killserver": killServer, "terminate": terminate},
	})
}

// exits CODE COMMAND…: the command must end with exactly this exit code. Its output is in the files stdout and stderr.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil {
		ts.Fatalf("usage: exits CODE COMMAND…")
	}
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func readInfo(ts *testscript.TestScript, file string) emulator.Info {
	var info emulator.Info
	deadline := time.Now().Add(20 * time.Second)
	for {
		data, err := os.ReadFile(ts.MkAbs(file))
		if err == nil && json.Unmarshal(data, &info) == nil {
			return info
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no ready file %s: %v", file, err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// ready FILE: waits for a ready file, and sets URL to the address in it.
func ready(ts *testscript.TestScript, _ bool, args []string) {
	info := readInfo(ts, args[0])
	ts.Setenv("URL", info.HTTP)
	ts.Setenv("ADDR", strings.TrimPrefix(info.HTTP, "http://"))
}

// killserver FILE: kills the server of a ready file, and waits until it is gone.
func killServer(ts *testscript.TestScript, _ bool, args []string) {
	info := readInfo(ts, args[0])
	p, err := os.FindProcess(info.PID)
	ts.Check(err)
	ts.Check(p.Kill())
	for range 1000 {
		if _, running, err := emulator.Running(info.DataDir); err == nil && !running {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
	ts.Fatalf("the server does not go")
}

// terminate FILE: asks the server of a ready file to end, as a service manager does.
func terminate(ts *testscript.TestScript, _ bool, args []string) {
	p, err := os.FindProcess(readInfo(ts, args[0]).PID)
	ts.Check(err)
	ts.Check(p.Signal(syscall.SIGTERM))
}

// field NAME KEY FILE: sets NAME to a key of the first JSON object in FILE.
func field(ts *testscript.TestScript, _ bool, args []string) {
	var v map[string]any
	ts.Check(json.NewDecoder(strings.NewReader(ts.ReadFile(args[2]))).Decode(&v))
	text, ok := v[args[1]].(string)
	if !ok {
		ts.Fatalf("no text %s in %v", args[1], v)
	}
	ts.Setenv(args[0], text)
}

// TestDocsNameEveryFlag compares docs/cli.md with the real verbs and flags.
func TestDocsNameEveryFlag(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	docs := string(data)
	root := (&app{origins: map[string]string{}}).root()
	everyFlag(root, func(c *cobra.Command, f *pflag.Flag) {
		if f.Name == "help" || c.Hidden {
			return
		}
		if !strings.Contains(docs, "`--"+f.Name+"`") {
			t.Errorf("docs/cli.md does not name --%s of %q", f.Name, c.CommandPath())
		}
	})
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if path := strings.TrimPrefix(c.CommandPath(), "deltabus-local "); c.Parent() != nil && !c.Hidden && !strings.Contains(docs, "`"+path) {
			t.Errorf("docs/cli.md does not name the verb %q", path)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

// TestHelpTopicsAreTheDocs compares the help topics with docs/cli.md.
func TestHelpTopicsAreTheDocs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	docs := string(data)
	if !strings.Contains(docs, settingsText) {
		t.Error("docs/cli.md does not have the text of help settings")
	}
	want := "| code | meaning |\n|---|---|\n"
	for _, c := range exitCodes {
		want += fmt.Sprintf("| %d | %s |\n", c.code, c.meaning)
	}
	if !strings.Contains(docs, want+"\n") {
		t.Errorf("docs/cli.md does not have exactly the exit codes of help exit-codes:\n%s", want)
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)

// TestDocsLinkToWhatIsThere follows every relative link of the README and of docs/.
func TestDocsLinkToWhatIsThere(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	pages := []string{filepath.Join(root, "README.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if page == pages[0] && strings.Count(string(data), "\n") >= 200 {
			t.Error("the README has 200 lines or more")
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
	}
}
