package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// NewLocal opens a directory as a store; it is made if missing. With noSync nothing is synced: a fast mode by
// explicit choice only, in which a crash of the machine (not of the process) may lose what was written.
//
// A Put goes to a temporary file beside its target (".….tmp"), gets its modification time, is synced, and becomes visible by
// link(2) if it must be absent, by rename(2) otherwise; then its directory is synced. A crash leaves at most such a temporary file.
func NewLocal(dir string, noSync bool) (Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	l := &local{disk: osDisk{}, root: abs, noSync: noSync, known: map[string]bool{}}
	if err := l.makeRoot(abs); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	l.known[abs] = true
	return l, nil
}

type local struct {
	disk   disk
	root   string
	noSync bool

	mu    sync.Mutex
	known map[string]bool // directories that are there and whose entry in their parent is synced
}

func (l *local) path(name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	return filepath.Join(l.root, filepath.FromSlash(name)), nil
}

func (l *local) Get(ctx context.Context, name string) ([]byte, error) {
	p, err := l.enter(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", name, err)
	}
	data, err := l.disk.readFile(p)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", name, l.notDirectory(p, err))
	}
	return data, nil
}

// notDirectory turns the error about a directory at p into ErrNotExist: a store has files only.
func (l *local) notDirectory(p string, err error) error {
	if st, statErr := l.disk.stat(p); statErr == nil && st.IsDir() {
		return ErrNotExist
	}
	return err
}

func (l *local) enter(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return l.path(name)
}

type localFile struct {
	diskFile
	size int64
}

func (f localFile) Size() int64 { return f.size }

func (l *local) Open(ctx context.Context, name string) (File, error) {
	p, err := l.enter(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	f, err := l.disk.open(p)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", name, err), f.Close())
	}
	if st.IsDir() {
		return nil, errors.Join(fmt.Errorf("open %s: %w", name, ErrNotExist), f.Close())
	}
	return localFile{f, st.Size()}, nil
}

func (l *local) Stat(ctx context.Context, name string) (Info, error) {
	p, err := l.enter(ctx, name)
	if err != nil {
		return Info{}, fmt.Errorf("stat %s: %w", name, err)
	}
	st, err := l.disk.stat(p)
	if err == nil && st.IsDir() {
		err = ErrNotExist
	}
	if err != nil {
		return Info{}, fmt.Errorf("stat %s: %w", name, err)
	}
	return Info{Name: name, Size: st.Size(), ModTime: st.ModTime()}, nil
}

func (l *local) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		dir := path.Dir(prefix + "x")
		if dir != "." {
			if err := checkName(dir); err != nil {
				yield(Info{}, fmt.Errorf("list %s: %w", prefix, err))
				return
			}
		}
		l.walk(ctx, dir, prefix, startAfter, yield)
	}
}

// walk yields the files below dir in the order of their whole names; false ends the walk.
func (l *local) walk(ctx context.Context, dir, prefix, startAfter string, yield func(Info, error) bool) bool {
	entries, err := l.disk.readDir(filepath.Join(l.root, filepath.FromSlash(dir)))
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		return yield(Info{}, fmt.Errorf("list %s: %w", prefix, err))
	}
	key := func(e fs.DirEntry) string { // a directory sorts as its files do: with the slash
		if e.IsDir() {
			return e.Name() + "/"
		}
		return e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(key(a), key(b)) })
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case ctx.Err() != nil:
			return yield(Info{}, ctx.Err())
		case e.IsDir():
			below := name + "/"
			if !strings.HasPrefix(below, prefix) && !strings.HasPrefix(prefix, below) {
				continue
			}
			if startAfter >= below && !strings.HasPrefix(startAfter, below) {
				continue
			}
			if !l.walk(ctx, name, prefix, startAfter, yield) {
				return false
			}
		case strings.HasPrefix(name, prefix) && name > startAfter:
			st, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted meanwhile
			}
			if err != nil {
				return yield(Info{}, fmt.Errorf("list %s: %w", prefix, err))
			}
			if !yield(Info{Name: name, Size: st.Size(), ModTime: st.ModTime()}, nil) {
				return false
			}
		}
	}
	return true
}

func (l *local) Put(ctx context.Context, name string, data []byte, opts PutOptions) error {
	p, err := l.enter(ctx, name)
	if err == nil {
		err = l.put(p, data, opts)
	}
	if err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	return nil
}

func (l *local) put(p string, data []byte, opts PutOptions) (err error) {
	dir := filepath.Dir(p)
	if err := l.makeDir(dir, !opts.NoDirs); err != nil {
		return err
	}
	tmp := tempName(p)
	err = l.writeTemp(tmp, data, opts.ModTime)
	if errors.Is(err, fs.ErrNotExist) { // the directory was removed since: a dropped table, perhaps made again
		l.forget(dir)
		if err := l.makeDir(dir, !opts.NoDirs); err != nil {
			return err
		}
		err = l.writeTemp(tmp, data, opts.ModTime)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(l.disk.remove(tmp)))
	}
	if opts.IfAbsent {
		err = l.disk.publishIfAbsent(tmp, p)
	} else {
		err = l.disk.rename(tmp, p)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(l.disk.remove(tmp)))
	}
	return l.syncDir(dir)
}

// tempName is a new name beside p that readers of tables pass over.
func tempName(p string) string {
	return filepath.Join(filepath.Dir(p), "."+filepath.Base(p)+"."+uuid.NewString()+".tmp")
}

func (l *local) writeTemp(tmp string, data []byte, mod time.Time) error {
	f, err := l.disk.create(tmp)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if !mod.IsZero() {
		if err := f.setModTime(mod); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if !l.noSync {
		if err := f.Sync(); err != nil {
			return errors.Join(fmt.Errorf("%w: %w", ErrSyncFailed, err), f.Close())
		}
	}
	return f.Close()
}

// makeRoot makes the root and what is missing above it, durably. What is there already is left alone: it need not even be readable.
func (l *local) makeRoot(dir string) error {
	if st, err := l.disk.stat(dir); err == nil && st.IsDir() || dir == filepath.Dir(dir) {
		return err
	}
	if err := l.makeRoot(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := l.disk.mkdir(dir); err != nil {
		if st, statErr := l.disk.stat(dir); statErr == nil && st.IsDir() {
			return nil // somebody else was quicker
		}
		return err
	}
	return l.syncDir(filepath.Dir(dir))
}

// makeDir makes dir and its parents below the root, each durably, once. If it must not make them, they have to be there: another process may have
// made them, and not durably.
func (l *local) makeDir(dir string, create bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.makeDirLocked(dir, create)
}

func (l *local) makeDirLocked(dir string, create bool) error {
	if l.known[dir] {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent == dir {
		return nil
	}
	if err := l.makeDirLocked(parent, create); err != nil {
		return err
	}
	if !create {
		if _, err := l.disk.stat(dir); err != nil {
			return err
		}
	} else if err := l.disk.mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := l.syncDir(parent); err != nil {
		return err
	}
	l.known[dir] = true
	return nil
}

// forget makes the next makeDir look at dir and its parents again.
func (l *local) forget(dir string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; dir != l.root && strings.HasPrefix(dir, l.root); dir = filepath.Dir(dir) {
		delete(l.known, dir)
	}
}

func (l *local) syncDir(dir string) error {
	if l.noSync {
		return nil
	}
	if err := l.disk.syncDir(dir); err != nil {
		return fmt.Errorf("%w: directory %s: %w", ErrSyncFailed, dir, err)
	}
	return nil
}

func (l *local) Delete(ctx context.Context, name string) error {
	p, err := l.enter(ctx, name)
	if err == nil {
		if st, statErr := l.disk.stat(p); statErr == nil && st.IsDir() {
			err = ErrNotExist // remove would take an empty directory
		} else {
			err = l.disk.remove(p)
		}
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

func (l *local) URL(name string) string {
	p := filepath.ToSlash(filepath.Join(l.root, filepath.FromSlash(name)))
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/x is file:///C:/x
	}
	return (&url.URL{Scheme: "file", Path: p}).String()
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
