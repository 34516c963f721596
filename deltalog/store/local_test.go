package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLocalMakesItsRoot: with the directories above it, and refuses what is a file.
func TestLocalMakesItsRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newLocal(t, filepath.Join(dir, "a", "b", "c"), false)
	put(t, s, "x", []byte("1"), PutOptions{})
	if data, err := os.ReadFile(filepath.Join(dir, "a", "b", "c", "x")); err != nil || string(data) != "1" {
		t.Errorf("%q, %v", data, err)
	}
	if got := get(t, newLocal(t, filepath.Join(dir, "a"), false), "b/c/x"); got != "1" {
		t.Errorf("through another store: %q", got)
	}
	if _, err := NewLocal(filepath.Join(dir, "a", "b", "c", "x"), false); err == nil {
		t.Error("a file was opened as a store")
	}
}

// TestLocalAfterItsDirectoryWasRemoved: a table dropped by another process can be made again.
func TestLocalAfterItsDirectoryWasRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newLocal(t, dir, false)
	put(t, s, "t/_delta_log/0.json", []byte("1"), PutOptions{IfAbsent: true})
	if err := os.RemoveAll(filepath.Join(dir, "t")); err != nil {
		t.Fatal(err)
	}
	put(t, s, "t/_delta_log/0.json", []byte("2"), PutOptions{IfAbsent: true})
	if got := get(t, s, "t/_delta_log/0.json"); got != "2" {
		t.Errorf("got %q", got)
	}
}

// TestLocalMakesNoDirectories: NoDirs writes where the directory is, whoever made it, and nowhere else.
func TestLocalMakesNoDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newLocal(t, dir, false)
	refused := func(name string) {
		t.Helper()
		if err := s.Put(t.Context(), name, []byte("1"), PutOptions{NoDirs: true}); !errors.Is(err, ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
	refused("a/b/x")
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a/b/x", []byte("1"), PutOptions{NoDirs: true})
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	refused("a/b/x")
	put(t, s, "x", []byte("1"), PutOptions{NoDirs: true})
}

// TestLocalFailureLeavesNothing: a Put that cannot be published removes its temporary file.
func TestLocalFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newLocal(t, dir, false)
	if err := os.Mkdir(filepath.Join(dir, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "x", []byte("1"), PutOptions{}); err == nil {
		t.Error("replaced a directory")
	}
	if err := s.Put(t.Context(), "x", []byte("1"), PutOptions{IfAbsent: true}); !errors.Is(err, ErrExist) {
		t.Errorf("put if absent on a directory: %v", err)
	}
	if got := list(t, s, "", ""); got != "" {
		t.Errorf("left behind: %s", got)
	}
}

// TestLocalTemporaryFilesAreKnown: by their names, so that readers pass over them and maintenance finds them.
func TestLocalTemporaryFilesAreKnown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := &local{disk: osDisk{}, root: dir, known: map[string]bool{dir: true}}
	var seen []string
	for range 3 {
		tmp := tempName(filepath.Join(dir, "00000000000000000000.json"))
		if base := filepath.Base(tmp); filepath.Dir(tmp) != dir || !strings.HasPrefix(base, ".") || !strings.HasSuffix(base, ".tmp") {
			t.Errorf("temporary file %s", tmp)
		}
		if err := l.writeTemp(tmp, []byte("x"), time.Time{}); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, tmp)
	}
	if seen[0] == seen[1] || seen[1] == seen[2] {
		t.Errorf("names repeat: %v", seen)
	}
	if err := l.writeTemp(seen[0], []byte("y"), time.Time{}); !errors.Is(err, ErrExist) {
		t.Errorf("a temporary file was overwritten: %v", err)
	}
}

// TestLocalSyncFailureIsNamed: a directory that cannot be synced fails the Put with ErrSyncFailed.
func TestLocalSyncFailureIsNamed(t *testing.T) {
	t.Parallel()
	l := &local{disk: osDisk{}, root: t.TempDir(), known: map[string]bool{}}
	if err := l.syncDir(filepath.Join(l.root, "none")); !errors.Is(err, ErrSyncFailed) {
		t.Errorf("got %v", err)
	}
	l.noSync = true
	if err := l.syncDir(filepath.Join(l.root, "none")); err != nil {
		t.Errorf("without sync: %v", err)
	}
}
