package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// judge is an independent reader and writer of Delta tables: a long-lived Python process that is shared by all tests, since
// starting Spark costs more than asking it. Requests and answers are JSON lines.
type judge struct {
	script string
	start  sync.Once
	err    error
	cmd    *exec.Cmd
	errs   bytes.Buffer
	stdin  io.WriteCloser

	mu  sync.Mutex // one request at a time
	out *bufio.Reader
}

var (
	deltaRS = &judge{script: "deltars.py"}
	spark   = &judge{script: "spark.py"}
)

// stopJudges ends the judges that were started.
func stopJudges() {
	for _, j := range []*judge{deltaRS, spark} {
		if j.cmd == nil {
			continue
		}
		_ = j.stdin.Close()
		timer := time.AfterFunc(10*time.Second, func() { _ = j.cmd.Process.Kill() })
		_ = j.cmd.Wait()
		timer.Stop()
	}
}

func (j *judge) run(t *testing.T) {
	t.Helper()
	python, jars := python(t), peer(t, "spark-jars")
	script := source(t, "python", j.script)
	j.start.Do(func() {
		j.cmd = exec.Command(python, script, "jars="+jars, "scratch="+filepath.Join(buildDir, j.script))
		j.cmd.Env = environment()
		j.cmd.Stderr = &j.errs
		j.stdin, _ = j.cmd.StdinPipe()
		out, _ := j.cmd.StdoutPipe()
		j.out = bufio.NewReaderSize(out, 1<<20)
		if j.err = j.cmd.Start(); j.err != nil {
			j.cmd = nil
		}
	})
	if j.err != nil {
		t.Fatalf("start %s: %v", j.script, j.err)
	}
}

// ask sends one request and decodes the result into v. An error of the judge is returned.
func (j *judge) ask(t *testing.T, op string, args map[string]any, v any) error {
	t.Helper()
	j.run(t)
	request := map[string]any{"op": op}
	maps.Copy(request, args)
	b, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	// A judge that hangs is killed, which ends the read.
	timer := time.AfterFunc(3*time.Minute, func() { _ = j.cmd.Process.Kill() })
	defer timer.Stop()
	if _, err := j.stdin.Write(append(b, '\n')); err != nil {
		t.Fatalf("%s: %v\n%s", j.script, err, j.errs.Bytes())
	}
	line, err := j.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", j.script, op, err, j.errs.Bytes())
	}
	var reply struct {
		Result json.RawMessage `json:"result"`
		Error  string          `json:"error"`
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		t.Fatalf("%s printed %q: %v", j.script, line, err)
	}
	if reply.Error != "" {
		return errors.New(reply.Error)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal(reply.Result, v)
}

// must is ask where an error fails the test.
func (j *judge) must(t *testing.T, op string, args map[string]any, v any) {
	t.Helper()
	if err := j.ask(t, op, args, v); err != nil {
		t.Fatalf("%s %s %v: %v", j.script, op, args, err)
	}
}

// rows reads a table at a version, -1 for the newest.
func (j *judge) rows(t *testing.T, dir string, version int64) []string {
	t.Helper()
	args := map[string]any{"path": dir}
	if version >= 0 {
		args["version"] = version
	}
	var out []string
	j.must(t, "rows", args, &out)
	return out
}

// changes reads a table's change feed, both ends included.
func (j *judge) changes(t *testing.T, dir string, from, to int64) []string {
	t.Helper()
	var out []string
	j.must(t, "changes", map[string]any{"path": dir, "start": from, "end": to}, &out)
	return out
}

func (j *judge) String() string { return fmt.Sprint("judge ", j.script) }
