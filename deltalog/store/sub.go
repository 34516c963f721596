package store

import (
	"context"
	"iter"
	"strings"
)

// Sub returns the part of s below dir as a store of its own. An empty dir is s itself.
func Sub(s Store, dir string) Store {
	dir = strings.Trim(dir, "/")
	if dir == "" {
		return s
	}
	if inner, ok := s.(sub); ok {
		return sub{inner.s, inner.prefix + dir + "/"}
	}
	return sub{s, dir + "/"}
}

type sub struct {
	s      Store
	prefix string
}

func (b sub) Get(ctx context.Context, name string) ([]byte, error) {
	return b.s.Get(ctx, b.prefix+name)
}

func (b sub) Open(ctx context.Context, name string) (File, error) {
	return b.s.Open(ctx, b.prefix+name)
}

func (b sub) Stat(ctx context.Context, name string) (Info, error) {
	info, err := b.s.Stat(ctx, b.prefix+name)
	info.Name = strings.TrimPrefix(info.Name, b.prefix)
	return info, err
}

func (b sub) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	if startAfter != "" {
		startAfter = b.prefix + startAfter
	}
	return func(yield func(Info, error) bool) {
		for info, err := range b.s.List(ctx, b.prefix+prefix, startAfter) {
			info.Name = strings.TrimPrefix(info.Name, b.prefix)
			if !yield(info, err) {
				return
			}
		}
	}
}

func (b sub) Put(ctx context.Context, name string, data []byte, opts PutOptions) error {
	return b.s.Put(ctx, b.prefix+name, data, opts)
}

func (b sub) Delete(ctx context.Context, name string) error { return b.s.Delete(ctx, b.prefix+name) }

func (b sub) URL(name string) string { return b.s.URL(b.prefix + name) }
