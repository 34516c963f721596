package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/deltabus/deltabus-local/deltabus"
)

// Exit codes of a command of --exec, besides 0 (done) and any other (try again).
const (
	execSkip = 65 // EX_DATAERR: a dead letter at once
	execStop = 99 // stop the consumer before this event
	// What a shell answers for a command that it cannot run, or cannot find.
	execNotRun, execNotFound = 126, 127
)

// notRunNext is what to do next about a command that could not be run.
const notRunNext = "mend --exec: no event was handled by it or given up, the next start gives them again"

// execHandler runs a command for each event.
func (a *app) execHandler(command string) deltabus.Handler {
	return func(ctx context.Context, e deltabus.Event) error {
		line, err := json.Marshal(toEventJSON(e))
		if err != nil {
			return deltabus.Skip(err)
		}
		name, args := "sh", []string{"-c", command}
		if runtime.GOOS == "windows" {
			name, args = "cmd", []string{"/c", command}
		}
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdin = bytes.NewReader(append(line, '\n'))
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = a.out, &said
		cmd.Env = append(os.Environ(), "DELTABUS_EVENT_TOPIC="+e.Topic, "DELTABUS_EVENT_ID="+e.ID, fmt.Sprintf("DELTABUS_EVENT_ATTEMPT=%d", e.Attempt))
		err = cmd.Run()
		if _, werr := a.err.Write(said.Bytes()); werr != nil {
			a.log.Debug("stderr", "error", werr)
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			if err != nil { // it could not be started: no event is to blame
				return deltabus.Stop(advise(fmt.Errorf("run %q: %w", command, err), notRunNext))
			}
			return nil
		}
		cause := fmt.Errorf("command exited with %d%s", exit.ExitCode(), lastLine(said.String()))
		switch exit.ExitCode() {
		case execSkip:
			return deltabus.Skip(cause)
		case execStop:
			return deltabus.Stop(advise(cause, "that asked to stop before the event: the next start gives it again"))
		case execNotRun, execNotFound: // no event is to blame
			return deltabus.Stop(advise(fmt.Errorf("the command of --exec could not be run: %w", cause), notRunNext))
		}
		return cause
	}
}

// lastLine is the last line that a command wrote to stderr, for the dead letter.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		s = s[i+1:]
	}
	if s == "" {
		return ""
	}
	return ": " + s[:min(len(s), 500)]
}

// tally counts what became of the events of a run.
type tally struct{ handled, retried, dead int }

func (t *tally) observer() deltabus.Observer {
	return deltabus.Observer{
		Deliver: func(e deltabus.Event) {
			if e.Attempt == 2 {
				t.retried++
			}
		},
		Outcome: func(_ deltabus.Event, err error) {
			if err == nil {
				t.handled++
			}
		},
		DeadLetter: func(deltabus.DeadLetter) { t.dead++ },
	}
}

func (t *tally) summary(consumer string) string {
	s := fmt.Sprintf("%d handled, %d tried again, %d dead letters", t.handled, t.retried, t.dead)
	if t.dead > 0 {
		s += fmt.Sprintf(": 'deltabus-local deadletters list --consumer %s' shows them", consumer)
	}
	return s
}
