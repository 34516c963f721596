//go:build unix && !linux

package store

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// publishIfAbsent gives tmp its final name unless that is taken.
func publishIfAbsent(tmp, p string) error {
	err := os.Link(tmp, p)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("this file system has no hard links, which commits need: put the data directory on a local disk: %w", err)
	}
	if err != nil {
		return err
	}
	return os.Remove(tmp)
}
