package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Get returns the whole object. One request.
func (s *S3) Get(ctx context.Context, name string) ([]byte, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("get %q: %w", name, err)
	}
	data, err := s.read(ctx, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", name, err)
	}
	return data, nil
}

// readAttempts is how often a body is asked for that breaks off; minio-go repeats only requests without an answer.
const readAttempts = 3

func (s *S3) read(ctx context.Context, key string, o minio.GetObjectOptions) (data []byte, err error) {
	for range readAttempts {
		body, info, _, getErr := s.reads.GetObject(ctx, s.options.Bucket, key, o)
		if getErr != nil {
			return nil, notExist(getErr)
		}
		data, err = readBody(body, info.Size)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return data, err
}

func readBody(body io.ReadCloser, size int64) ([]byte, error) {
	defer body.Close()
	data := make([]byte, size)
	_, err := io.ReadFull(body, data)
	return data, err
}

// readWhole is the size up to which Open reads a whole file: one request instead of many.
const readWhole = 4 << 20

// Open opens an object; see S3. It is one request.
func (s *S3) Open(ctx context.Context, name string) (File, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", name, err)
	}
	for attempt := 1; ; attempt++ {
		body, info, _, err := s.reads.GetObject(ctx, s.options.Bucket, key, minio.GetObjectOptions{})
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", name, notExist(err))
		}
		if info.Size > readWhole {
			if err := body.Close(); err != nil {
				return nil, fmt.Errorf("open %s: %w", name, err)
			}
			return &s3File{s, ctx, key, info.ETag, info.Size}, nil
		}
		data, err := readBody(body, info.Size)
		if err == nil {
			return memoryReader{bytes.NewReader(data)}, nil
		}
		if attempt == readAttempts || ctx.Err() != nil {
			return nil, fmt.Errorf("open %s: %w", name, err)
		}
	}
}

// s3File reads one version of an object.
type s3File struct {
	s    *S3
	ctx  context.Context
	key  string
	etag string
	size int64
}

func (f *s3File) Size() int64 { return f.size }

func (f *s3File) Close() error { return nil }

// ReadAt is one request.
func (f *s3File) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read %s at %d: negative offset", f.key, off)
	}
	want := min(int64(len(p)), f.size-off)
	if want <= 0 {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	var o minio.GetObjectOptions
	if err := errors.Join(o.SetRange(off, off+want-1), o.SetMatchETag(f.etag)); err != nil {
		return 0, fmt.Errorf("read %s at %d: %w", f.key, off, err)
	}
	data, err := f.s.read(f.ctx, f.key, o)
	if err == nil && int64(len(data)) != want {
		err = fmt.Errorf("%d bytes instead of %d", len(data), want)
	}
	if err != nil {
		return 0, fmt.Errorf("read %s at %d: %w", f.key, off, err)
	}
	n := copy(p, data)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Stat is one HEAD.
func (s *S3) Stat(ctx context.Context, name string) (Info, error) {
	key, err := s.key(ctx, name)
	if err != nil {
		return Info{}, fmt.Errorf("stat %q: %w", name, err)
	}
	info, err := s.reads.StatObject(ctx, s.options.Bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return Info{}, fmt.Errorf("stat %s: %w", name, notExist(err))
	}
	mod := info.LastModified
	if t, ok := parseModTime(info.UserMetadata[modTimeKey]); ok {
		mod = t
	}
	return Info{Name: name, Size: info.Size, ModTime: mod}, nil
}

// modTimeKey is x-amz-meta-mtime, as minio-go spells it.
const modTimeKey = "Mtime"

func formatModTime(t time.Time) string {
	return fmt.Sprintf("%.3f", float64(t.UnixMilli())/1000)
}

// parseModTime reads seconds since the epoch, with or without a fraction.
func parseModTime(text string) (time.Time, bool) {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(seconds) || math.Abs(seconds) > 1e12 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(math.Round(seconds * 1000))), true
}

// List asks for pages of 1,000. Keys that are no names of files, such as the "directories" that consoles make, are passed over.
func (s *S3) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(Info{}, err)
			return
		}
		o := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}
		if startAfter != "" {
			o.StartAfter = s.prefix + startAfter
		}
		last := ""
		for object := range s.reads.ListObjectsIter(ctx, s.options.Bucket, o) {
			name := strings.TrimPrefix(object.Key, s.prefix)
			switch {
			case object.Err != nil:
				yield(Info{}, fmt.Errorf("list %s: %w", prefix, object.Err))
				return
			case checkName(name) != nil || name <= startAfter:
				continue
			case name <= last: // checkpoints would be taken for the newest that are not
				yield(Info{}, fmt.Errorf("list %s: this server does not list in the order of names, which tables need: %s after %s", prefix, name, last))
				return
			}
			last = name
			if !yield(Info{Name: name, Size: object.Size, ModTime: object.LastModified}, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(Info{}, err)
		}
	}
}
