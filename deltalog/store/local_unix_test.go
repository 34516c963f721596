//go:build unix

package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestLinkWhoseAnswerWasLost: over a network link(2) may be done and reported as refused; what is there decides.
func TestLinkWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tmp, p, other := filepath.Join(dir, ".tmp"), filepath.Join(dir, "p"), filepath.Join(dir, "other")
	for _, name := range []string{tmp, other} {
		if err := os.WriteFile(name, []byte("same content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := link(tmp, p); err != nil {
			t.Errorf("own link: %v", err)
		}
	}
	if err := link(tmp, other); !errors.Is(err, ErrExist) {
		t.Errorf("another file of the same content: %v", err)
	}
}
