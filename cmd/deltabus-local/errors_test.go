package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/emulator"
)

// TestErrorsEndWithWhatToDoNext runs what users get wrong, with a server and on the directory itself: the exit code, and the last line of stderr.
func TestErrorsEndWithWhatToDoNext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	e := emulator.Run(t, emulator.WithListen("127.0.0.1:0"), emulator.WithDataDir(at("served")))
	if _, err := deltabus.Init(t.Context(), deltabus.Config{Workspace: e}); err != nil {
		t.Fatal(err)
	}
	bus(t, at("plain"))
	corrupt(t, bus(t, at("corrupt")))
	if err := os.MkdirAll(at("damaged"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"damaged/catalog.db": strings.Repeat("no catalog ", 20), "file": "x", "bad.yaml": "nope: 1", "seed.yaml": "tables: 1", "list.yaml": "- a",
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0") // nobody listens there once it is closed
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	const messages = "main.deltabus.messages"
	tests := []struct {
		args string // {X} is the path of X
		in   string
		code int
		next string // in the last line
	}{
		{args: "nope", code: 2, next: "'deltabus-local --help'"},
		{args: "help nope", code: 2, next: "--help'"},
		{args: "table nope", code: 2, next: "'deltabus-local table --help'"},
		{args: "deadletters", code: 2, next: "'deltabus-local deadletters --help'"},
		{args: "conformance nope", code: 2, next: "'deltabus-local conformance --help'"},
		{args: "serve --nope", code: 2, next: "'deltabus-local serve --help'"},
		{args: "serve extra", code: 2, next: "'deltabus-local serve --help'"},
		{args: "table rows", code: 2, next: "'deltabus-local table rows --help'"},
		{args: "version -o xml", code: 2, next: "--help'"},
		{args: "version --log-level loud", code: 2, next: "--help'"},
		{args: "version --log-format xml", code: 2, next: "--help'"},
		{args: "version --config {none.yaml}", code: 2, next: "help settings"},
		{args: "version --config {bad.yaml}", code: 2, next: "help settings"},
		{args: "config --config {list.yaml}", code: 2, next: "help settings"},

		{args: "consumers --data-dir {none}", code: 3, next: "deltabus-local serve"},
		{args: "env --data-dir {none}", code: 3, next: "deltabus-local serve"},
		{args: "consumers --data-dir {file}", code: 1, next: "name a directory"},
		{args: "consumers --data-dir {damaged}", code: 1, next: "move that file away"},
		{args: "serve --data-dir {damaged} --listen 127.0.0.1:0", code: 1, next: "move that file away"},
		{args: "consumers --host " + nobody, code: 1, next: "deltabus-local serve"},
		{args: "table list --host " + nobody, code: 1, next: "deltabus-local serve"},
		{args: "consumers --host nonsense", code: 2, next: "help settings"},
		{args: "consumers --host " + nobody + " --data-dir {plain}", code: 2, next: "--help'"},
		{args: "consumers --bus nope --data-dir {plain}", code: 2, next: "--help'"},
		{args: "serve --data-dir {served} --listen 127.0.0.1:0", code: 1, next: "use that one, stop it, or choose another --data-dir"},
		{args: "serve --data-dir {other} --listen " + strings.TrimPrefix(e.URL(), "http://"), code: 1, next: "choose another port"},
		{args: "serve --data-dir {other} --listen nonsense", code: 1, next: "choose another port"},
		{args: "serve --data-dir {other} --listen 127.0.0.1:0 --ready-file {none/r.json}", code: 1, next: "its directory has to be there"},
		{args: "serve --seed {none.yaml}", code: 2, next: "--help'"},
		{args: "serve --seed {seed.yaml}", code: 2, next: "--help'"},
		{args: "serve --bus main.bad-name --data-dir {other} --listen 127.0.0.1:0", code: 1, next: "letters, digits and underscores"},
		{args: "serve --tls-name x", code: 2, next: "--help'"},
		{args: "doctor --data-dir {plain} --listen " + strings.TrimPrefix(e.URL(), "http://"), code: 1, next: "remedy"},
		{args: "conformance run nope", code: 2, next: "conformance list"},
		{args: "demo --dir {served}", code: 1, next: "choose another"},

		{args: "consumers --bus main.nope --data-dir {plain}", code: 3, next: "serve --bus"},
		{args: "consumers --bus main.nope --data-dir {served}", code: 3, next: "serve --bus"},
		{args: "publish --topic t x --bus main.nope --data-dir {plain}", code: 3, next: "serve --bus"},
		{args: "publish x --data-dir {plain}", code: 2, next: "publish --help"},
		{args: "publish --topic a..b x --data-dir {plain}", code: 2, next: "publish --help"},
		{args: "publish --topic t --data-dir {plain}", in: `{"nope":1}`, code: 2, next: "publish --help"},
		{args: "publish --topic t --data-dir {plain}", in: `{"topic":"a..b"}`, code: 2, next: "publish --help"},
		{args: "publish --topic t x --data-dir {plain} --spool {none/spool}", code: 1, next: "--spool"},
		{args: "publish --topic t x --data-dir {corrupt}", code: 1, next: "table verify"},
		{args: "consume --id c --data-dir {plain}", code: 2, next: "consume --help"},
		{args: "consume --id c --topic a..b --data-dir {plain}", code: 2, next: "consume --help"},
		{args: "consume --id c --topic t --from soon --data-dir {plain}", code: 2, next: "consume --help"},
		{args: "consume --id v --topic t --from version:99 --data-dir {plain}", code: 3, next: "table history"},
		{args: "consume --id known --topic other --data-dir {plain}", code: 5, next: "--change-filter"},
		{args: "consume --id c --topic t --data-dir {corrupt}", code: 1, next: "table verify"},
		{args: "consumers --data-dir {corrupt}", code: 1, next: "table verify"},
		{args: "deadletters show nope --data-dir {plain}", code: 3, next: "deadletters list"},
		{args: "deadletters replay nope --data-dir {served}", code: 3, next: "deadletters list"},
		{args: "deadletters discard --data-dir {plain}", code: 2, next: "discard --help"},
		{args: "deadletters replay x --to nobody --data-dir {plain}", code: 2, next: "replay --help"},
		{args: "deadletters list --status dead --data-dir {plain}", code: 2, next: "list --help"},

		{args: "table rows nope --data-dir {plain}", code: 2, next: "table rows --help"},
		{args: "table rows main.a.b --data-dir {plain}", code: 3, next: "table list"},
		{args: "table rows main.a.b --data-dir {served}", code: 3, next: "table list"},
		{args: "table verify main.a.b --data-dir {served}", code: 3, next: "table list"},
		{args: "table rows {none}", code: 3, next: "table list"},
		{args: "table rows {served}", code: 3, next: "table list"},
		{args: "table rows {served} --host " + nobody, code: 2, next: "--help'"},
		{args: "table list nope --data-dir {served}", code: 3, next: "table list"},
		{args: "table rows " + messages + " --version 99 --data-dir {plain}", code: 3, next: "table history"},
		{args: "table changes " + messages + " --data-dir {plain}", code: 2, next: "table changes --help"},
		{args: "table changes " + messages + " --from 99 --data-dir {plain}", code: 1, next: "table history"},
		{args: "table changes main.deltabus.checkpoints --from 0 --data-dir {plain}", code: 1, next: "--cdf"},
		{args: "table rows " + messages + " --data-dir {corrupt}", code: 1, next: "table verify"},
		{args: "table verify " + messages + " --data-dir {corrupt}", code: 1, next: "back from a copy"},
		{args: "table create main.default.x --data-dir {plain}", code: 2, next: "create --help"},
		{args: "table create x --column id|INT --data-dir {plain}", code: 2, next: "create --help"},
		{args: "table create main.default.bad-name --column id|INT --data-dir {served}", code: 2, next: "create --help"},
		{args: "table create main.default.x --column id|FOO --data-dir {plain}", code: 2, next: "create --help"},
		{args: "table create lab.s.x --column id|INT --data-dir {plain}", code: 3, next: "--seed"},
		{args: "table create lab.s.x --column id|INT --data-dir {served}", code: 3, next: "--seed"},
		{args: "table create " + messages + " --column id|INT --data-dir {plain}", code: 1, next: "choose another name"},
		{args: "table create " + messages + " --column id|INT --data-dir {served}", code: 1, next: "choose another name"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(test.args)
			for i, arg := range args {
				if inner, ok := strings.CutPrefix(arg, "{"); ok {
					arg = at(strings.TrimSuffix(inner, "}"))
				}
				args[i] = strings.ReplaceAll(arg, "|", " ")
			}
			var out, errOut bytes.Buffer
			code := run(args, strings.NewReader(test.in), &out, &errOut)
			lines := strings.Split(strings.TrimSpace(errOut.String()), "\n")
			if last := lines[len(lines)-1]; code != test.code || !strings.Contains(last, test.next) {
				t.Errorf("exit code %d, want %d; the last line is to have %q:\n%s", code, test.code, test.next, errOut.String())
			}
		})
	}
}

// TestEveryErrorHasAHint: what cannot be made to happen in a test, and what nobody thought of.
func TestEveryErrorHasAHint(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		next string
	}{
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, "free space"},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EROFS}, "write permission"},
		{&fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, "write permission"},
		{deltabus.ErrFenced, "do not restart"},
		{&deltabus.PositionExpiredError{Consumer: "c"}, "--reset"},
		{&deltabus.HistoryRewrittenError{Consumer: "c"}, "--reset"},
		{deltabus.ErrTableRecreated, "--reset"},
		{deltabus.ErrSpoolInUse, "--spool"},
		{fmt.Errorf("what nobody thought of"), "doctor"},
	} {
		if got := hint("deltabus-local x", fmt.Errorf("do it: %w", test.err)); !strings.Contains(got, test.next) {
			t.Errorf("%v: %q, want %q", test.err, got, test.next)
		}
	}
}

// bus makes a data directory with a bus and a consumer "known", and returns it.
func bus(t *testing.T, dir string) string {
	t.Helper()
	w, err := emulator.OpenDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deltabus.Init(t.Context(), deltabus.Config{Workspace: w}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	if code := run([]string{"consume", "--id", "known", "--topic", "t", "--data-dir", dir}, strings.NewReader(""), &out, &errOut); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	return dir
}

// corrupt makes the messages table of a bus one that cannot be read.
func corrupt(t *testing.T, dir string) {
	t.Helper()
	log := filepath.Join(dir, "tables", "main", "deltabus", "messages", "_delta_log", "00000000000000000000.json")
	if err := os.WriteFile(log, []byte(`{"add":`), 0o600); err != nil {
		t.Fatal(err)
	}
}
