package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
)

// ErrCrashed is what every operation on a Crashable fails with once its machine has crashed.
var ErrCrashed = errors.New("the machine crashed")

// Crashable is a local store on a file system in memory that forgets in a crash what was not synced, for tests of what survives. It is the code of
// NewLocal: only the operating system below is another one. Safe for concurrent use.
//
// What a crash may take, each in any subset: what was written to a file since its last sync (all, nothing or the end of it), and every change of a
// directory (a file made, linked, renamed, removed, a directory made) since that directory was synced. A rename happens wholly or not at all, and
// removals in one directory keep their order, as journals of file systems do: log cleanup, which removes in order, relies on it.
type Crashable struct {
	Store
	disk *memoryDisk
}

// NewCrashable makes an empty one.
func NewCrashable() *Crashable { return onDisk(newMemoryDisk(newDirectory())) }

func onDisk(d *memoryDisk) *Crashable {
	root := string(filepath.Separator) + "crashable"
	return &Crashable{&local{disk: d, root: root, known: map[string]bool{root: true}}, d}
}

// CrashAfter makes the machine crash as soon as n operations of its file system have been done: the next one is not done, and it and all that
// follow fail with ErrCrashed.
func (c *Crashable) CrashAfter(n int) {
	c.disk.mu.Lock()
	defer c.disk.mu.Unlock()
	c.disk.limit = n
}

// Crashed reports whether an operation has failed by the crash.
func (c *Crashable) Crashed() bool {
	c.disk.mu.Lock()
	defer c.disk.mu.Unlock()
	return c.disk.crashed
}

// Operations are those done so far that change the file system or make it durable, in order, such as "sync dir/file" and "link dir/.tmp dir/file".
func (c *Crashable) Operations() []string {
	c.disk.mu.Lock()
	defer c.disk.mu.Unlock()
	return slices.Clone(c.disk.done)
}

// Restart is what the disk holds when the machine is up again. c is gone with the crash. What of the unsynced survives is chosen by seed: nothing at
// 0, everything at 1, any subset at others.
func (c *Crashable) Restart(seed uint64) *Crashable {
	c.disk.mu.Lock()
	defer c.disk.mu.Unlock()
	c.disk.crashed = true
	keep := func() bool { return seed == 1 }
	if seed > 1 {
		rng := rand.New(rand.NewPCG(seed, 0))
		keep = func() bool { return rng.IntN(2) == 0 }
	}
	return onDisk(newMemoryDisk(c.disk.root.afterCrash(keep, map[*node]*node{})))
}

// relative is a path below the root, as Operations tells it.
func relative(p string) string {
	_, rest, _ := strings.Cut(strings.TrimPrefix(filepath.ToSlash(p), "/"), "/")
	if rest == "" {
		return "."
	}
	return rest
}

func operation(op string, paths ...string) string {
	for i := range paths {
		paths[i] = relative(paths[i])
	}
	return fmt.Sprint(op, " ", strings.Join(paths, " "))
}
