package emulator

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// holder is a server process on a data directory.
func holder(t *testing.T, dir string) (cmd *exec.Cmd, kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self)
	cmd.Env = append(os.Environ(), holdEnv+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dead := false
	kill = func() {
		if !dead {
			dead = true
			_ = cmd.Process.Kill() // Wait says how it ended
			_ = cmd.Wait()
			_ = in.Close()
		}
	}
	t.Cleanup(kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		rest, _ := io.ReadAll(out)
		t.Fatalf("the server says %q %s, %v", line, rest, err)
	}
	return cmd, kill
}

// A data directory has one server, and is free as soon as that is dead, however it died.
func TestOneServerADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, running, err := Running(filepath.Join(dir, "none")); err != nil || running {
		t.Errorf("no directory: %v, %v", running, err)
	}
	cmd, kill := holder(t, dir)
	info, running, err := Running(dir)
	if err != nil || !running || info.PID != cmd.Process.Pid || info.HTTP == "" || info.Token == "" {
		t.Fatalf("running: %+v, %v, %v", info, running, err)
	}
	_, err = Start(t.Context(), WithDataDir(dir))
	var locked *LockedError
	if !errors.As(err, &locked) || locked.Holder != info || locked.Dir != dir {
		t.Fatalf("a second server: %v", err)
	}
	kill()
	if _, err := os.Stat(serverFile(dir)); err != nil {
		t.Errorf("a killed server leaves its server.json: %v", err)
	}
	if info, running, err := Running(dir); err != nil || running {
		t.Errorf("after its death: %+v, %v, %v", info, running, err)
	}
	e := Run(t, WithDataDir(dir))
	if e.Token() != info.Token || e.ClientSecret() != info.ClientSecret || e.WorkspaceID() != info.WorkspaceID {
		t.Error("the credentials changed")
	}
	if now, running, err := Running(dir); err != nil || !running || now != e.Info() {
		t.Errorf("running: %+v, %v, %v", now, running, err)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, running, err := Running(dir); err != nil || running {
		t.Errorf("after its end: %v, %v", running, err)
	}
}

// Who looks whether a server is running does not keep one from starting.
func TestLookingDoesNotLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				if _, _, err := Running(dir); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	for range 10 {
		e, err := Start(t.Context(), WithDataDir(dir), WithoutListener())
		if err != nil {
			t.Error(err)
			break
		}
		if err := e.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	<-done
}
