package store

import (
	"io"
	"io/fs"
	"os"
	"time"
)

// disk is what a local store asks of a file system: that of the machine, or the one in memory that can crash. Paths are those of the
// machine; errors match those of package fs.
type disk interface {
	readFile(p string) ([]byte, error)
	open(p string) (diskFile, error)
	stat(p string) (fs.FileInfo, error)
	readDir(p string) ([]fs.DirEntry, error)

	// create makes a file that is not there yet.
	create(p string) (newFile, error)
	// publishIfAbsent gives tmp its final name unless that is taken; tmp may or may not be left behind.
	publishIfAbsent(tmp, p string) error
	// rename replaces p.
	rename(tmp, p string) error
	// remove deletes a file, or an empty directory.
	remove(p string) error
	mkdir(p string) error
	// syncDir makes the entries of a directory durable.
	syncDir(p string) error
}

// diskFile is a file open for reading.
type diskFile interface {
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
}

// newFile is a file being written. What Sync has not confirmed may be lost.
type newFile interface {
	io.WriteCloser
	setModTime(mod time.Time) error
	Sync() error
}

// osDisk is the machine's.
type osDisk struct{}

func (osDisk) readFile(p string) ([]byte, error)       { return os.ReadFile(p) }
func (osDisk) stat(p string) (fs.FileInfo, error)      { return os.Stat(p) }
func (osDisk) readDir(p string) ([]fs.DirEntry, error) { return os.ReadDir(p) }
func (osDisk) publishIfAbsent(tmp, p string) error     { return publishIfAbsent(tmp, p) }
func (osDisk) rename(tmp, p string) error              { return os.Rename(tmp, p) }
func (osDisk) remove(p string) error                   { return os.Remove(p) }
func (osDisk) mkdir(p string) error                    { return os.Mkdir(p, 0o755) }
func (osDisk) syncDir(p string) error                  { return syncDirectory(p) }

func (osDisk) open(p string) (diskFile, error) {
	f, err := os.Open(p)
	if err != nil {
		return nil, err // not f, which would be no nil interface
	}
	return f, nil
}

func (osDisk) create(p string) (newFile, error) {
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

type osFile struct{ *os.File }

func (f osFile) setModTime(mod time.Time) error { return setModTime(f.File, mod) }
