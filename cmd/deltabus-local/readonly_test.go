//go:build unix

package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/emulator"
)

// TestReadOnlyDirectory: verbs that only read work on a directory that must not be written, with its catalog and without; the others say
// at once that they do not.
func TestReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	id := deadLetter(t, data)
	run := asNobody(t, dir)
	protect := func(mode fs.FileMode) {
		t.Helper()
		err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				return os.Chmod(path, mode)
			}
			return os.Chmod(path, mode&0o666)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { protect(0o755) })
	const messages = "main.deltabus.messages"
	for _, catalog := range []string{"there", "lost"} {
		if catalog == "lost" {
			protect(0o755)
			if err := os.Remove(filepath.Join(data, "catalog.db")); err != nil {
				t.Fatal(err)
			}
		}
		protect(0o555)
		for _, verb := range []struct{ args, want string }{
			{"table list", messages},
			{"table show " + messages, "payload_bytes"},
			{"table rows " + messages, "poison"},
			{"table changes " + messages + " --from 1", "poison"},
			{"table verify " + messages, "rows"},
			{"table history " + messages, "CREATE TABLE"},
			{"table files " + messages, ".parquet"},
			{"consumers", "c "},
			{"deadletters list", id},
			{"deadletters show " + id, "poison"},
		} {
			out, err := run(append(strings.Fields(verb.args), "--data-dir", data)...)
			if err != nil || !strings.Contains(out, verb.want) {
				t.Errorf("catalog %s: %s: %v\n%s", catalog, verb.args, err, out)
			}
		}
		for _, args := range [][]string{
			{"consume", "--id", "c", "--topic", "t"},
			{"publish", "--topic", "t", "x"},
			{"deadletters", "discard", id},
			{"deadletters", "replay", id},
			{"table", "create", "main.default.x", "--column", "id INT"},
			{"serve", "--listen", "127.0.0.1:0"},
		} {
			out, err := run(append(args, "--data-dir", data)...)
			if err == nil || !strings.Contains(out, "data directory") || !strings.Contains(out, "write permission") || strings.Contains(out, "trying again") {
				t.Errorf("catalog %s: %s: %v\n%s", catalog, args, err, out)
			}
		}
	}
}

// deadLetter makes a workspace with a bus that has one dead letter.
func deadLetter(t *testing.T, data string) (id string) {
	t.Helper()
	w, err := emulator.OpenDir(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	b, err := deltabus.Init(t.Context(), deltabus.Config{Workspace: w})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"publish", "--topic", "t", "poison"}, {"consume", "--id", "c", "--topic", "t", "--exec", "exit 65"}} {
		if out, err := exec.Command("deltabus-local", append(args, "--data-dir", data)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	all, err := b.DeadLetters().List(t.Context(), deltabus.DeadLetterFilter{})
	if err != nil || len(all) != 1 {
		t.Fatalf("%d dead letters, %v", len(all), err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return all[0].ID
}

// asNobody runs the command as a user that file modes bind: the one that runs the tests, or nobody instead of root.
func asNobody(t *testing.T, dir string) func(args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("deltabus-local")
	if err != nil {
		t.Fatal(err)
	}
	var who *syscall.SysProcAttr
	if os.Geteuid() == 0 {
		const nobody = 65534
		who = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		for d := dir; strings.Contains(d, t.Name()); d = filepath.Dir(d) { // nobody has to get through to it
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		binary, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(dir, "deltabus-local")
		if err := os.WriteFile(path, binary, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return func(args ...string) (string, error) {
		cmd := exec.Command(path, args...)
		cmd.Dir, cmd.SysProcAttr = dir, who
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}
