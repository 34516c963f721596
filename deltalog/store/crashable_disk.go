package store

import (
	"bytes"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// memoryDisk is a file system in memory that knows what is durable.
type memoryDisk struct {
	mu      sync.Mutex
	root    *node
	done    []string
	limit   int // operations until the crash; negative: none
	crashed bool
}

func newMemoryDisk(root *node) *memoryDisk { return &memoryDisk{root: root, limit: -1} }

// node is a file or a directory.
type node struct {
	// Of a file: what it is now, and what a crash leaves of it.
	now, durable content
	// Of a directory: likewise, and the changes between the two. nil for a file.
	entries, durableEntries map[string]*node
	pending                 []change
}

type content struct {
	data []byte
	mod  time.Time
}

// change is what happens to some entries of a directory at once; nil: an entry goes.
type change map[string]*node

// removes reports whether c only takes something away.
func (c change) removes() bool {
	for _, to := range c {
		if to != nil {
			return false
		}
	}
	return true
}

func newDirectory() *node {
	return &node{entries: map[string]*node{}, durableEntries: map[string]*node{}}
}

func (n *node) isDir() bool { return n.entries != nil }

func (n *node) change(c change) {
	n.pending = append(n.pending, c)
	apply(n.entries, c)
}

func apply(entries map[string]*node, c change) {
	for name, to := range c {
		if to == nil {
			delete(entries, name)
		} else {
			entries[name] = to
		}
	}
}

// afterCrash is what is left of n, a new node for each old one: two links to a file stay links to one.
func (n *node) afterCrash(keep func() bool, known map[*node]*node) *node {
	if again := known[n]; again != nil {
		return again
	}
	if !n.isDir() {
		left := n.durable
		if keep() {
			left = n.now
		} else if keep() { // torn
			left = content{n.now.data[:len(n.now.data)/2], n.now.mod}
			if len(n.durable.data) == len(n.now.data) { // it was synced whole
				left = n.durable
			}
		}
		known[n] = &node{now: left, durable: left}
		return known[n]
	}
	out := newDirectory()
	known[n] = out
	entries := maps.Clone(n.durableEntries)
	removed := true
	for _, c := range n.pending {
		if c.removes() {
			if removed = removed && keep(); removed {
				apply(entries, c)
			}
		} else if keep() {
			apply(entries, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) { // in order, so that a seed means the same in every run
		out.entries[name] = entries[name].afterCrash(keep, known)
	}
	out.durableEntries = maps.Clone(out.entries)
	return out
}

// find follows a path. The caller holds mu.
func (d *memoryDisk) find(op, p string) (*node, error) {
	if d.crashed {
		return nil, &fs.PathError{Op: op, Path: p, Err: ErrCrashed}
	}
	n := d.root
	for part := range strings.SplitSeq(relative(p), "/") {
		if part == "." {
			continue
		}
		if n = n.entries[part]; n == nil {
			return nil, &fs.PathError{Op: op, Path: p, Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

// alter does an operation that counts, unless the crash comes first. f gets the directory of p, and makes the change or says why not.
func (d *memoryDisk) alter(op string, f func(dir *node) error, p string, others ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limit == 0 {
		d.crashed = true
	}
	dir, err := d.find(op, filepath.Dir(p))
	if err != nil {
		return err
	}
	if !dir.isDir() {
		return &fs.PathError{Op: op, Path: p, Err: fs.ErrNotExist}
	}
	if err := f(dir); err != nil {
		return &fs.PathError{Op: op, Path: p, Err: err}
	}
	d.did(operation(op, append([]string{p}, others...)...))
	return nil
}

func (d *memoryDisk) did(op string) {
	d.done = append(d.done, op)
	if d.limit > 0 {
		d.limit--
	}
}

func (d *memoryDisk) create(p string) (newFile, error) {
	f := &node{}
	err := d.alter("create", func(dir *node) error {
		if dir.entries[filepath.Base(p)] != nil {
			return fs.ErrExist
		}
		dir.change(change{filepath.Base(p): f})
		return nil
	}, p)
	if err != nil {
		return nil, err
	}
	return &memoryDiskFile{d, f, p}, nil
}

func (d *memoryDisk) mkdir(p string) error {
	return d.alter("mkdir", func(dir *node) error {
		if dir.entries[filepath.Base(p)] != nil {
			return fs.ErrExist
		}
		dir.change(change{filepath.Base(p): newDirectory()})
		return nil
	}, p)
}

// publishIfAbsent is link(2), then the removal of the spare name: two operations.
func (d *memoryDisk) publishIfAbsent(tmp, p string) error {
	err := d.alter("link", func(dir *node) error {
		f := dir.entries[filepath.Base(tmp)]
		switch {
		case f == nil:
			return fs.ErrNotExist
		case dir.entries[filepath.Base(p)] != nil:
			return fs.ErrExist
		}
		dir.change(change{filepath.Base(p): f})
		return nil
	}, tmp, p)
	if err != nil {
		return err
	}
	_ = d.remove(tmp) // as on the machine's disk: no failure
	return nil
}

func (d *memoryDisk) rename(tmp, p string) error {
	return d.alter("rename", func(dir *node) error {
		f, old := dir.entries[filepath.Base(tmp)], dir.entries[filepath.Base(p)]
		switch {
		case f == nil:
			return fs.ErrNotExist
		case old != nil && old.isDir():
			return fs.ErrExist
		}
		dir.change(change{filepath.Base(tmp): nil, filepath.Base(p): f})
		return nil
	}, tmp, p)
}

func (d *memoryDisk) remove(p string) error {
	return d.alter("remove", func(dir *node) error {
		n := dir.entries[filepath.Base(p)]
		switch {
		case n == nil:
			return fs.ErrNotExist
		case len(n.entries) > 0:
			return fs.ErrExist
		}
		dir.change(change{filepath.Base(p): nil})
		return nil
	}, p)
}

func (d *memoryDisk) syncDir(p string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limit == 0 {
		d.crashed = true
	}
	n, err := d.find("sync directory", p)
	if err != nil {
		return err
	}
	n.durableEntries, n.pending = maps.Clone(n.entries), nil
	d.did(operation("sync directory", p))
	return nil
}

// memoryDiskFile is a file being written.
type memoryDiskFile struct {
	d *memoryDisk
	n *node
	p string
}

func (f *memoryDiskFile) Write(data []byte) (int, error) {
	return len(data), f.alter("write", func() { f.n.now = content{slices.Concat(f.n.now.data, data), time.Now()} })
}

func (f *memoryDiskFile) setModTime(mod time.Time) error {
	return f.alter("set time", func() { f.n.now.mod = mod })
}

func (f *memoryDiskFile) Sync() error {
	return f.alter("sync", func() { f.n.durable = f.n.now })
}

func (f *memoryDiskFile) Close() error { return nil }

// alter needs no path: a file may have been renamed or removed while it is open.
func (f *memoryDiskFile) alter(op string, change func()) error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.d.limit == 0 {
		f.d.crashed = true
	}
	if f.d.crashed {
		return &fs.PathError{Op: op, Path: f.p, Err: ErrCrashed}
	}
	change()
	f.d.did(operation(op, f.p))
	return nil
}

func (d *memoryDisk) readFile(p string) ([]byte, error) {
	c, err := d.read(p)
	return slices.Clone(c.data), err
}

func (d *memoryDisk) read(p string) (content, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("open", p)
	if err == nil && n.isDir() {
		err = &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	if err != nil {
		return content{}, err
	}
	return n.now, nil
}

func (d *memoryDisk) open(p string) (diskFile, error) {
	c, err := d.read(p)
	if err != nil {
		return nil, err
	}
	return openedContent{bytes.NewReader(c.data), memoryStat{filepath.Base(p), c, false}}, nil
}

type openedContent struct {
	*bytes.Reader
	info memoryStat
}

func (openedContent) Close() error                 { return nil }
func (o openedContent) Stat() (fs.FileInfo, error) { return o.info, nil }

func (d *memoryDisk) stat(p string) (fs.FileInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("stat", p)
	if err != nil {
		return nil, err
	}
	return memoryStat{filepath.Base(p), n.now, n.isDir()}, nil
}

func (d *memoryDisk) readDir(p string) ([]fs.DirEntry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := d.find("open", p)
	if err != nil {
		return nil, err
	}
	var out []fs.DirEntry
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		e := n.entries[name]
		out = append(out, fs.FileInfoToDirEntry(memoryStat{name, e.now, e.isDir()}))
	}
	return out, nil
}

// memoryStat implements fs.FileInfo.
type memoryStat struct {
	name string
	content
	dir bool
}

func (s memoryStat) Name() string       { return s.name }
func (s memoryStat) Size() int64        { return int64(len(s.data)) }
func (s memoryStat) ModTime() time.Time { return s.mod }
func (s memoryStat) IsDir() bool        { return s.dir }
func (s memoryStat) Sys() any           { return nil }

func (s memoryStat) Mode() fs.FileMode {
	if s.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
