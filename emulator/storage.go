package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// storageFile remembers, in a data directory whose managed tables are in a bucket, which bucket that is: every later use of the directory finds them.
const storageFile = "storage.json"

// storage is what is remembered. Credentials are not: they come from the environment of each process.
type storage struct {
	URL      string `json:"url"`
	Endpoint string `json:"endpoint,omitempty"`
	Region   string `json:"region,omitempty"`
}

// ErrStorage says that a data directory keeps its tables elsewhere than it is asked for.
var ErrStorage = errors.New("the tables of this data directory are elsewhere")

// openStore opens where managed tables live: memory, the data directory, or the bucket that s or an earlier start names.
func (w *Workspace) openStore(ctx context.Context, s settings) error {
	if w.dir == "" && s.s3 == nil {
		w.store = store.NewMemory()
		return nil
	}
	o := s.s3
	if w.dir != "" {
		known, err := readStorage(w.dir)
		if err != nil {
			return err
		}
		if o, err = w.agree(ctx, o, known); err != nil {
			return err
		}
	}
	if o == nil {
		w.managed = filepath.Join(w.dir, "tables")
		var err error
		w.store, err = store.NewLocal(w.managed, s.noSync)
		return err
	}
	bucket, err := store.NewS3(*o)
	if err != nil {
		return err
	}
	w.store = bucket
	if s.s3 == nil {
		return nil // perhaps only to read: the first commit probes
	}
	if err := bucket.Probe(ctx); err != nil {
		return err
	}
	if w.dir == "" {
		return nil
	}
	return writeStorage(ctx, w.dir, storage{bucket.URL(""), o.Endpoint, o.Region})
}

// agree settles what is asked for (nil: nothing) with what the data directory knows (nil: its tables are in it, if there are any).
func (w *Workspace) agree(ctx context.Context, asked *store.S3Options, known *storage) (*store.S3Options, error) {
	if known == nil {
		if asked == nil {
			return nil, nil
		}
		local, err := findLocalTables(w.dir)
		if err == nil && len(local) > 0 {
			err = fmt.Errorf("%w: %s has tables on disk, such as %s: use it without a store, or choose another data directory", ErrStorage, w.dir, local[0])
		}
		return asked, err
	}
	o, err := store.ParseS3URL(known.URL)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(w.dir, storageFile), err)
	}
	o.Endpoint, o.Region = known.Endpoint, known.Region
	if asked == nil {
		return &o, ctx.Err()
	}
	if asked.Bucket != o.Bucket || strings.Trim(asked.Prefix, "/") != o.Prefix {
		return nil, fmt.Errorf("%w: %s keeps them in %s: give that one, or choose another data directory", ErrStorage, w.dir, known.URL)
	}
	merged := *asked
	if merged.Endpoint == "" {
		merged.Endpoint = o.Endpoint
	}
	if merged.Region == "" {
		merged.Region = o.Region
	}
	return &merged, nil
}

func readStorage(dir string) (*storage, error) {
	data, err := os.ReadFile(filepath.Join(dir, storageFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s storage
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, storageFile), err)
	}
	return &s, nil
}

func writeStorage(ctx context.Context, dir string, s storage) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	st, err := store.NewLocal(dir, false)
	if err != nil {
		return err
	}
	return st.Put(ctx, storageFile, data, store.PutOptions{})
}

// findTablesIn finds the places of the managed tables in a store, catalog/schema/table, by as many listings as there are tables.
func findTablesIn(ctx context.Context, st store.Store) ([]string, error) {
	var out []string
	for after := ""; ; {
		place := ""
		for info, err := range st.List(ctx, "", after) {
			if err != nil {
				return nil, err
			}
			if parts := strings.SplitN(info.Name, "/", 4); len(parts) == 4 {
				place = strings.Join(parts[:3], "/")
				break
			}
		}
		if place == "" {
			return out, nil
		}
		for _, err := range st.List(ctx, place+"/_delta_log/", "") {
			if err != nil {
				return nil, err
			}
			out = append(out, place)
			break
		}
		after = place + "0" // all of place/… is before this: 0 comes after the slash
	}
}
