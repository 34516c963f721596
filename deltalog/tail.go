package deltalog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// tailSize is how much of a file's end is read at once: the footer of most files, and all of small ones.
const tailSize = 32 << 10

// tailReader reads a file whose end it has. Each ReadAt of an object store costs a request. Safe for concurrent use.
type tailReader struct {
	f     store.File
	tail  []byte
	start int64
	// failed is the first failure of the store: what parquet-go makes of it looks like a broken file.
	failed atomic.Pointer[error]
}

// failure is the first failure of the store, or nil.
func (t *tailReader) failure() error {
	if err := t.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// ReadAt implements io.ReaderAt.
func (t *tailReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > t.f.Size() {
		return 0, fmt.Errorf("offset %d in a file of %d bytes", off, t.f.Size())
	}
	if off < t.start {
		n, err := t.f.ReadAt(p, off)
		if err != nil && !errors.Is(err, io.EOF) {
			failed := err
			t.failed.CompareAndSwap(nil, &failed)
		}
		return n, err
	}
	n := copy(p, t.tail[off-t.start:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// newTailReader reads the end of f.
func newTailReader(f store.File) (*tailReader, error) {
	t := &tailReader{f: f, start: max(0, f.Size()-tailSize)}
	t.tail = make([]byte, f.Size()-t.start)
	if _, err := f.ReadAt(t.tail, t.start); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return t, nil
}

// open opens the file as Parquet. The footer's length is checked before parquet-go makes room for it.
func (t *tailReader) open() (*parquet.File, error) {
	const end = 8 // the length, and PAR1
	size := t.f.Size()
	if size < end+4 || string(t.tail[len(t.tail)-4:]) != "PAR1" {
		return nil, fmt.Errorf("%w: %d bytes, not a Parquet file", ErrCorrupt, size)
	}
	if length := int64(binary.LittleEndian.Uint32(t.tail[len(t.tail)-end:])); length > size-end-4 {
		return nil, fmt.Errorf("%w: a footer of %d bytes in a file of %d", ErrCorrupt, length, size)
	}
	pf, err := parquet.OpenFile(t, size, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return pf, nil
}
