package interop

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// cli runs a verb of the binary to its end and returns what it prints.
func cli(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = environment()
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("deltabus-local %s: %v\n%s\n%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.String()
}

// lines are the lines of a text, without the last line's end.
func lines(s string) []string {
	s = strings.TrimRight(s, "\n")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}
