package store

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var memories atomic.Int64

// NewMemory makes an empty store in memory, for use within one process.
func NewMemory() Store {
	return &memory{id: memories.Add(1), files: map[string]memoryFile{}}
}

type memory struct {
	id    int64
	mu    sync.RWMutex
	files map[string]memoryFile
}

type memoryFile struct {
	data []byte
	mod  time.Time
}

func (m *memory) find(op, name string) (memoryFile, error) {
	if err := checkName(name); err != nil {
		return memoryFile{}, fmt.Errorf("%s %q: %w", op, name, err)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	f, ok := m.files[name]
	if !ok {
		return f, fmt.Errorf("%s %s: %w", op, name, ErrNotExist)
	}
	return f, nil
}

func (m *memory) Get(ctx context.Context, name string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := m.find("get", name)
	if err != nil {
		return nil, err
	}
	return slices.Clone(f.data), nil
}

func (m *memory) Open(ctx context.Context, name string) (File, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	return memoryReader{bytes.NewReader(f.data)}, nil
}

type memoryReader struct{ *bytes.Reader }

func (memoryReader) Close() error { return nil }

func (m *memory) Stat(ctx context.Context, name string) (Info, error) {
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	f, err := m.find("stat", name)
	if err != nil {
		return Info{}, err
	}
	return Info{Name: name, Size: int64(len(f.data)), ModTime: f.mod}, nil
}

func (m *memory) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		m.mu.RLock()
		var found []Info
		for name, f := range m.files {
			if strings.HasPrefix(name, prefix) && name > startAfter {
				found = append(found, Info{Name: name, Size: int64(len(f.data)), ModTime: f.mod})
			}
		}
		m.mu.RUnlock()
		slices.SortFunc(found, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
		for _, info := range found {
			if err := ctx.Err(); err != nil {
				yield(Info{}, err)
				return
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (m *memory) Put(ctx context.Context, name string, data []byte, opts PutOptions) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return fmt.Errorf("put %q: %w", name, err)
	}
	mod := opts.ModTime
	if mod.IsZero() {
		mod = time.Now()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.files[name]; taken && opts.IfAbsent {
		return fmt.Errorf("put %s: %w", name, ErrExist)
	}
	m.files[name] = memoryFile{slices.Clone(data), mod}
	return nil
}

func (m *memory) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkName(name); err != nil {
		return fmt.Errorf("delete %q: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.files[name]; !ok {
		return fmt.Errorf("delete %s: %w", name, ErrNotExist)
	}
	delete(m.files, name)
	return nil
}

func (m *memory) URL(name string) string { return fmt.Sprintf("memory:///%d/%s", m.id, name) }

// checkName refuses names that could leave the root.
func checkName(name string) error {
	if !fs.ValidPath(name) || name == "." || strings.Contains(name, `\`) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("invalid name: %w", fs.ErrInvalid)
	}
	return nil
}
