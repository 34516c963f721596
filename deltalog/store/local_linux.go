package store

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// publishIfAbsent gives tmp its final name unless that is taken: by link(2), or by renameat2 where a file system has no hard links.
func publishIfAbsent(tmp, p string) error {
	err := link(tmp, p)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
		if err := unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, p, unix.RENAME_NOREPLACE); err != nil {
			if errors.Is(err, unix.EEXIST) {
				return err
			}
			return fmt.Errorf("this file system has neither hard links nor rename without replacing, one of which commits need: put the data directory on a local disk: %w", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	_ = os.Remove(tmp) // it is published: what is left of it is a spare name, no failure
	return nil
}
