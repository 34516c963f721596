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
	err := link(tmp, p)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("this file system has no hard links, which commits need: put the data directory on a local disk: %w", err)
	}
	if err != nil {
		return err
	}
	_ = os.Remove(tmp) // it is published: what is left of it is a spare name, no failure
	return nil
}
