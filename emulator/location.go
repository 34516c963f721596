package emulator

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// ErrLocation says that a table cannot be at that place, and why.
var ErrLocation = errors.New("unusable location")

// at is the store of a catalog entry's location: relative to the workspace's tables, or a file:// URL.
func (w *Workspace) at(location string) (store.Store, error) {
	if !strings.Contains(location, "://") {
		return store.Sub(w.store, location), nil
	}
	dir, err := localPath(location)
	if err != nil {
		return nil, err
	}
	return store.NewLocal(dir, w.noSync)
}

// externalLocation is the location of an external table as the catalog keeps it: one spelling of a directory outside of the data
// directory that no other table has, nor a directory above or below it.
func (w *Workspace) externalLocation(ctx context.Context, location string) (string, error) {
	if w.dir == "" {
		return "", fmt.Errorf("%w: a workspace in memory has no external tables: start it with a data directory", ErrLocation)
	}
	dir := location
	if strings.Contains(location, "://") || strings.HasPrefix(location, "file:") {
		var err error
		if dir, err = localPath(location); err != nil {
			return "", err
		}
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("%w: %q is no absolute path and no file:/// URL", ErrLocation, location)
	}
	dir = filepath.Clean(dir)
	if within(dir, w.dir) || within(w.dir, dir) {
		return "", fmt.Errorf("%w: %s overlaps the data directory %s, which holds the managed tables", ErrLocation, dir, w.dir)
	}
	all, err := w.catalog.Tables(ctx, "", "")
	if err != nil {
		return "", err
	}
	for _, e := range all {
		if e.Type != external {
			continue
		}
		other, err := localPath(e.Location)
		if err == nil && (within(dir, other) || within(other, dir)) {
			return "", fmt.Errorf("%w: %s overlaps table %s at %s", ErrLocation, dir, e.FullName(), other)
		}
	}
	return fileURL(dir), nil
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

func fileURL(dir string) string {
	p := filepath.ToSlash(dir)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // C:/x is file:///C:/x
	}
	return (&url.URL{Scheme: "file", Path: p}).String()
}

// localPath is the path of a file: URL.
func localPath(location string) (string, error) {
	u, err := url.Parse(location)
	if err != nil || u.Scheme != "file" || u.Host != "" && u.Host != "localhost" || u.Path == "" {
		return "", fmt.Errorf("%w: %q: only file:///… is supported", ErrLocation, location)
	}
	p := filepath.FromSlash(u.Path)
	if rest := strings.TrimPrefix(p, string(filepath.Separator)); filepath.VolumeName(rest) != "" {
		p = rest // file:///C:/x is C:/x
	}
	return p, nil
}
