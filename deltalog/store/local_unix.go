//go:build unix

package store

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func setModTime(f *os.File, mod time.Time) error {
	tv := unix.NsecToTimeval(mod.UnixNano())
	return unix.Futimes(int(f.Fd()), []unix.Timeval{tv, tv})
}

// link gives the content of tmp a second name, p, unless that is taken.
func link(tmp, p string) error {
	err := os.Link(tmp, p)
	if err != nil && sameFile(tmp, p) {
		return nil // over a network the answer may be lost and the repeated request refused: what counts is what is there
	}
	return err
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
