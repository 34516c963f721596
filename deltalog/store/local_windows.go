package store

import (
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// publishIfAbsent gives tmp its final name unless that is taken: MoveFileEx without MOVEFILE_REPLACE_EXISTING.
func publishIfAbsent(tmp, p string) error {
	from, err := windows.UTF16PtrFromString(tmp)
	if err != nil {
		return err
	}
	to, err := windows.UTF16PtrFromString(p)
	if err != nil {
		return err
	}
	if err := windows.MoveFileEx(from, to, windows.MOVEFILE_WRITE_THROUGH); err != nil {
		return &os.LinkError{Op: "rename", Old: tmp, New: p, Err: err}
	}
	return nil
}

// syncDirectory does nothing: Windows has no sync of directories; MOVEFILE_WRITE_THROUGH is what there is.
func syncDirectory(string) error { return nil }

func setModTime(f *os.File, mod time.Time) error {
	t := windows.NsecToFiletime(mod.UnixNano())
	return windows.SetFileTime(windows.Handle(f.Fd()), nil, &t, &t)
}
