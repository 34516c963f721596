package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/minio/minio-go/v7"
)

// putAttempts is how often a Put is tried that the server refused for the moment.
const putAttempts = 8

// Put writes an object in one request; see S3.
func (s *S3) Put(ctx context.Context, name string, data []byte, opts PutOptions) error {
	key, err := s.key(ctx, name)
	if err != nil {
		return fmt.Errorf("put %q: %w", name, err)
	}
	if opts.IfAbsent {
		if err := s.Probe(ctx); err != nil {
			return fmt.Errorf("put %s: %w", name, err)
		}
	}
	if err := s.put(ctx, key, data, opts); err != nil {
		return fmt.Errorf("put %s: %w", name, err)
	}
	return nil
}

func (s *S3) put(ctx context.Context, key string, data []byte, opts PutOptions) error {
	// minio-go forgets the condition of what it sends in parts.
	o := minio.PutObjectOptions{DisableMultipart: true, ContentType: "application/octet-stream"}
	core := s.reads
	if opts.IfAbsent {
		core = s.once // a repeated request would find its own object, and say that another has won
		o.SetMatchETagExcept("*")
	}
	if !opts.ModTime.IsZero() {
		o.UserMetadata = map[string]string{modTimeKey: formatModTime(opts.ModTime)}
	}
	for attempt := 1; ; attempt++ {
		_, err := core.Client.PutObject(ctx, s.options.Bucket, key, bytes.NewReader(data), int64(len(data)), o)
		if err != nil && opts.IfAbsent && s.forgetConnections != nil {
			s.forgetConnections()
		}
		switch answerOf(err) {
		case done:
			return nil
		case taken:
			if opts.IfAbsent {
				return ErrExist
			}
			return err
		case refused:
			return err
		case unclear:
			if opts.IfAbsent && s.hasOther(ctx, key, data) {
				return ErrExist
			}
			return fmt.Errorf("%w: %w", ErrUnclear, err)
		}
		if attempt == putAttempts {
			return err
		}
		if err := backoff(ctx, attempt); err != nil {
			return err
		}
	}
}

// hasOther reports whether an object is there with other content than data. Then a conditional Put of data whose answer was lost was refused, or
// will be: some servers answer before they have read the body and close the connection, which its sender notices first.
func (s *S3) hasOther(ctx context.Context, key string, data []byte) bool {
	there, err := s.read(ctx, key, minio.GetObjectOptions{})
	return err == nil && !bytes.Equal(there, data)
}

// answer is what a server says to a Put.
type answer int

const (
	done    answer = iota
	taken          // the condition does not hold
	later          // not now, and nothing was done
	refused        // nothing was done
	unclear        // it may have been done, or still be
)

func answerOf(err error) answer {
	if err == nil {
		return done
	}
	var r minio.ErrorResponse
	switch {
	case !errors.As(err, &r):
		return unclear
	case r.StatusCode == http.StatusPreconditionFailed, r.StatusCode == http.StatusNotModified: // 304: MinIO before 2024
		return taken
	case r.Code == "ConditionalRequestConflict", r.Code == "SlowDown", r.Code == "SlowDownWrite", r.StatusCode == http.StatusTooManyRequests,
		r.Code == "BadRequest": // an answer to what was left of another request on the same connection: see forgetConnections
		return later
	case r.StatusCode == http.StatusRequestTimeout:
		return unclear
	case r.StatusCode >= 400 && r.StatusCode < 500, r.StatusCode == http.StatusNotImplemented:
		return refused
	}
	return unclear
}

// backoff waits 10 ms after the first attempt, doubling up to 1 s, with jitter.
func backoff(ctx context.Context, attempt int) error {
	limit := min(10*time.Millisecond<<attempt, time.Second)
	timer := time.NewTimer(limit/2 + rand.N(limit/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Delete removes an object: a HEAD, since S3 does not tell whether there was one, and a DELETE.
func (s *S3) Delete(ctx context.Context, name string) error {
	if _, err := s.Stat(ctx, name); err != nil {
		return fmt.Errorf("delete %q: %w", name, err)
	}
	if err := s.reads.RemoveObject(ctx, s.options.Bucket, s.prefix+name, minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// ErrDishonest says that a server does not honour If-None-Match: of two writers of a name both would win, and a commit be lost.
var ErrDishonest = errors.New("this server does not honour If-None-Match, without which commits get lost: use one that does (Amazon S3, MinIO since 2024, versitygw since 1.1)")

// Probe tries whether the server honours If-None-Match: a second Put of a name must be refused, and of eight at once one must win. It writes two
// objects under random names and removes them. Once it has passed it costs nothing.
func (s *S3) Probe(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.honest {
		return nil
	}
	if err := s.probe(ctx); err != nil {
		return fmt.Errorf("probe %s: %w", s.URL(""), err)
	}
	s.honest = true
	return nil
}

func (s *S3) probe(ctx context.Context) (err error) {
	names := [2]string{".probe-" + uuid.NewString(), ".probe-" + uuid.NewString()}
	defer func() {
		for _, name := range names {
			if e := s.Delete(context.WithoutCancel(ctx), name); e != nil && !errors.Is(e, ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	put := func(name string) error { // each another content, so that a lost answer can be told
		return s.put(ctx, s.prefix+name, []byte(uuid.NewString()), PutOptions{IfAbsent: true})
	}
	if err := put(names[0]); err != nil {
		return err
	}
	switch err := put(names[0]); {
	case err == nil:
		return fmt.Errorf("%w: a second writer was not refused", ErrDishonest)
	case !errors.Is(err, ErrExist):
		return err
	}
	var winners atomic.Int32
	var failed error
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			switch err := put(names[1]); {
			case err == nil:
				winners.Add(1)
			case !errors.Is(err, ErrExist):
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if failed != nil {
		return failed
	}
	if n := winners.Load(); n != 1 {
		return fmt.Errorf("%w: of 8 writers at once %d won", ErrDishonest, n)
	}
	return nil
}
