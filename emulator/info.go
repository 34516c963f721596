package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// Info is what a client needs to know of a running emulator: the content of serve's ready file.
type Info struct {
	HTTP    string `json:"http"`
	Zerobus string `json:"zerobus"`
	// TLS and CA are empty without a TLS port.
	TLS string `json:"tls"`
	CA  string `json:"ca"`
	// DataDir is empty in memory.
	DataDir      string `json:"data_dir"`
	PID          int    `json:"pid"`
	WorkspaceID  string `json:"workspace_id"`
	WarehouseID  string `json:"warehouse_id"`
	Token        string `json:"token"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
}

// identity gives the workspace its ids and credentials: made once, kept in the catalog, so that what clients were given before a
// restart is good after it.
func (e *Emulator) identity(ctx context.Context) error {
	e.info.PID = os.Getpid()
	e.info.DataDir = e.workspace.dir
	digits := func() string { return fmt.Sprintf("%016d", uuid.New().ID()) }
	hex := func() string { return strings.ReplaceAll(uuid.NewString(), "-", "") }
	values, err := e.workspace.catalog.Settings(ctx, map[string]func() string{
		"workspace_id": digits, "warehouse_id": func() string { return hex()[:16] },
		"token":     func() string { return "dapi" + hex() },
		"client_id": uuid.NewString, "client_secret": func() string { return "dose" + hex() },
	})
	if err != nil {
		return err
	}
	e.info.WorkspaceID, e.info.WarehouseID = values["workspace_id"], values["warehouse_id"]
	e.info.Token, e.info.ClientID, e.info.ClientSecret = values["token"], values["client_id"], values["client_secret"]
	return nil
}

func serverFile(dataDir string) string { return filepath.Join(dataDir, "server.json") }

// WriteFile writes i to path as JSON, atomically and readable by its owner only: a reader finds nothing or everything.
func (i Info) WriteFile(path string) error { return writeJSON(path, i) }

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Running tells whether an emulator is running on a data directory, and what its clients need to know.
func Running(dataDir string) (Info, bool, error) {
	if _, err := os.Stat(filepath.Join(dataDir, lockName)); errors.Is(err, os.ErrNotExist) {
		return Info{}, false, nil
	}
	lock, err := lockDir(dataDir)
	if isReadOnly(err) {
		lock, err = lockReadOnly(dataDir)
		if isReadOnly(err) { // not even its owner's files may be read: no server that this user could use
			return Info{}, false, nil
		}
	}
	if err == nil {
		return Info{}, false, lock.unlock()
	}
	var locked *LockedError
	if !errors.As(err, &locked) {
		return Info{}, false, err
	}
	return locked.Holder, locked.Holder.HTTP != "", nil
}

// LockedError says that another emulator has the data directory.
type LockedError struct {
	Dir string
	// Holder is the other one, as far as it has said; it has not while it starts.
	Holder Info
}

func (e *LockedError) Error() string {
	who := "another server that is starting"
	if e.Holder.HTTP != "" {
		who = fmt.Sprintf("the server at %s (pid %d)", e.Holder.HTTP, e.Holder.PID)
	}
	return fmt.Sprintf("data directory %s is in use by %s: use that one, stop it, or choose another --data-dir", e.Dir, who)
}

const lockName = "lock"

// dirLock holds a data directory. The system releases it when the process ends, however it ends.
type dirLock struct{ f *os.File }

func lockDir(dir string) (*dirLock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return lockFile(f, dir)
}

// isReadOnly reports whether err says that a file must not be written.
func isReadOnly(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// lockReadOnly is lockDir where nothing can be written: what is locked is the file, not its content.
func lockReadOnly(dir string) (*dirLock, error) {
	f, err := os.Open(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	return lockFile(f, dir)
}

func lockFile(f *os.File, dir string) (*dirLock, error) {
	taken, err := tryLock(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock data directory %s: %w", dir, err), f.Close())
	}
	if !taken {
		locked := &LockedError{Dir: dir}
		if data, err := os.ReadFile(serverFile(dir)); err == nil {
			_ = json.Unmarshal(data, &locked.Holder) // it may be writing it just now
		}
		return nil, errors.Join(locked, f.Close())
	}
	return &dirLock{f}, nil
}

// waitForLock is lockDir, patient with who only looks whether a server is running: that holds the lock for a moment, and a server.json
// that is there then may be of a server that was killed.
func waitForLock(ctx context.Context, dir string) (*dirLock, error) {
	for range 5 {
		lock, err := lockDir(dir)
		var locked *LockedError
		if !errors.As(err, &locked) {
			return lock, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return lockDir(dir)
}

func (l *dirLock) unlock() error { return l.f.Close() }
