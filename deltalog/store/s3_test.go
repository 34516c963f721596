package store_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/deltalog/store/storetest"
)

func TestConformanceOfS3(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return newS3(t, &fakeS3{}) })
}

// TestServerWithoutConditions: nothing is committed to a server that ignores If-None-Match, and reading it works.
func TestServerWithoutConditions(t *testing.T) {
	t.Parallel()
	s := newS3(t, &fakeS3{ignoreCondition: true})
	if err := s.Put(t.Context(), "x", []byte("1"), store.PutOptions{IfAbsent: true}); !errors.Is(err, store.ErrDishonest) {
		t.Errorf("put if absent: %v", err)
	}
	for info, err := range s.List(t.Context(), "", "") {
		t.Errorf("left %s, %v", info.Name, err)
	}
	if err := s.Put(t.Context(), "x", []byte("1"), store.PutOptions{}); err != nil {
		t.Error(err)
	}
	if data, err := s.Get(t.Context(), "x"); err != nil || string(data) != "1" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestServerThatChecksFirst: one that looks and then writes passes two Puts in a row, and fails by eight at once.
func TestServerThatChecksFirst(t *testing.T) {
	t.Parallel()
	var looking atomic.Int32
	f := &fakeS3{}
	f.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && looking.Add(1) > 2 { // all of the eight have looked
			r.Header.Del("If-None-Match")
		}
		return false
	}
	if err := newS3(t, f).Probe(t.Context()); !errors.Is(err, store.ErrDishonest) || !strings.Contains(err.Error(), "8 won") {
		t.Errorf("probe: %v", err)
	}
}

// TestAnswersToConditionalPuts: what each answer of the server means, and how many requests it is worth.
func TestAnswersToConditionalPuts(t *testing.T) {
	t.Parallel()
	answer := func(status int, code string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool { fakeError(w, status, code); return true }
	}
	breaks := func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		before   func(http.ResponseWriter, *http.Request) bool // of the first Put
		after    func(*http.Request) bool
		want     error
		requests int
	}{
		"exists":                       {answer(412, "PreconditionFailed"), nil, store.ErrExist, 1},
		"exists, as MinIO once said":   {answer(304, "NotModified"), nil, store.ErrExist, 1},
		"conflict with one in flight":  {answer(409, "ConditionalRequestConflict"), nil, nil, 2},
		"slow down":                    {answer(503, "SlowDown"), nil, nil, 2},
		"of another request":           {answer(400, "BadRequest"), nil, nil, 2},
		"failed inside":                {answer(500, "InternalError"), nil, store.ErrUnclear, 1},
		"gateway timed out":            {answer(504, "GatewayTimeout"), nil, store.ErrUnclear, 1},
		"connection broke before":      {breaks, nil, store.ErrUnclear, 1},
		"connection broke after":       {nil, func(*http.Request) bool { return true }, store.ErrUnclear, 1},
		"condition is not implemented": {answer(501, "NotImplemented"), nil, errRefused, 1},
		"access denied":                {answer(403, "AccessDenied"), nil, errRefused, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeS3{}
			s := newS3(t, f)
			if err := s.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			var puts atomic.Int32
			f.before = func(w http.ResponseWriter, r *http.Request) bool {
				return r.Method == http.MethodPut && puts.Add(1) == 1 && c.before != nil && c.before(w, r)
			}
			f.after = func(r *http.Request) bool { return r.Method == http.MethodPut && c.after != nil && c.after(r) }
			err := s.Put(t.Context(), "x", []byte("1"), store.PutOptions{IfAbsent: true})
			switch {
			case errors.Is(c.want, errRefused):
				if err == nil || errors.Is(err, store.ErrExist) || errors.Is(err, store.ErrUnclear) {
					t.Errorf("got %v", err)
				}
			case !errors.Is(err, c.want):
				t.Errorf("got %v, want %v", err, c.want)
			}
			if n := int(puts.Load()); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
		})
	}
}

// TestLostAnswerBesideAnother: where somebody else's object is there, a Put whose answer was lost has not won and will not; where what is there
// is what was put, nobody can tell.
func TestLostAnswerBesideAnother(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]error{"of another": store.ErrExist, "own": store.ErrUnclear} {
		f := &fakeS3{}
		s := newS3(t, f)
		if err := s.Put(t.Context(), "x", []byte(content), store.PutOptions{IfAbsent: true}); err != nil {
			t.Fatal(err)
		}
		f.before = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				panic(http.ErrAbortHandler)
			}
			return false
		}
		if err := s.Put(t.Context(), "x", []byte("own"), store.PutOptions{IfAbsent: true}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", content, err, want)
		}
	}
}

var errRefused = errors.New("an error that is clear")

// TestPutThatHangs ends with its caller, and is unclear: the server may still do it.
func TestPutThatHangs(t *testing.T) {
	t.Parallel()
	f := &fakeS3{}
	s := newS3(t, f)
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan struct{})
	defer close(answered)
	f.before = func(http.ResponseWriter, *http.Request) bool {
		cancel()
		<-answered
		return true
	}
	if err := s.Put(ctx, "x", []byte("1"), store.PutOptions{IfAbsent: true}); !errors.Is(err, store.ErrUnclear) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestBodiesThatBreakOff are asked for again.
func TestBodiesThatBreakOff(t *testing.T) {
	t.Parallel()
	f := &fakeS3{}
	s := newS3(t, f)
	if err := s.Put(t.Context(), "x", []byte("content"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var gets atomic.Int32
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || gets.Add(1)%2 == 0 {
			return false
		}
		w.Header().Set("Content-Length", "7")
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = w.Write([]byte("con"))
		panic(http.ErrAbortHandler)
	}
	if data, err := s.Get(t.Context(), "x"); err != nil || string(data) != "content" {
		t.Errorf("get: %q, %v", data, err)
	}
	file, err := s.Open(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 7)
	if _, err := file.ReadAt(data, 0); err != nil || string(data) != "content" {
		t.Errorf("open: %q, %v", data, err)
	}
}

// TestForeignObjects: times that others gave, or did not, and keys that are no files.
func TestForeignObjects(t *testing.T) {
	t.Parallel()
	f := &fakeS3{}
	s := newS3(t, f)
	at := time.Now().Truncate(time.Second)
	for key, mtime := range map[string]string{"none": "", "rclone": "1600000000.999123456", "whole": "1600000000", "broken": "yesterday", "nan": "NaN", "dir/": "", "a//b": ""} {
		f.objects["pre/fix/"+key] = fakeObject{[]byte("1"), mtime, at}
	}
	f.objects["pre/fixed"] = fakeObject{[]byte("of another"), "", at}
	var names []string
	for info, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	if got := strings.Join(names, " "); got != "broken nan none rclone whole" {
		t.Errorf("listed %s", got)
	}
	for name, want := range map[string]time.Time{"none": at, "rclone": time.UnixMilli(1600000000999), "whole": time.Unix(1600000000, 0), "broken": at, "nan": at} {
		if info, err := s.Stat(t.Context(), name); err != nil || !info.ModTime.Equal(want) {
			t.Errorf("%s: %v, %v, want %v", name, info.ModTime, err, want)
		}
	}
	if u := s.URL("t/a b"); u != "s3://bucket/pre/fix/t/a%20b" {
		t.Errorf("URL %s", u)
	}
}

func TestParseS3URL(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]store.S3Options{
		"s3://b": {Bucket: "b"}, "s3://b/": {Bucket: "b"}, "s3://b/p/q/": {Bucket: "b", Prefix: "p/q"},
	} {
		if got, err := store.ParseS3URL(address); err != nil || got != want {
			t.Errorf("%s: %+v, %v", address, got, err)
		}
	}
	for _, address := range []string{"", "b/p", "file:///x", "s3://", "s3:///p", "s3://b?versioning", "s3://b/../x", "s3://k:s@b/p", "http://b/p"} {
		if got, err := store.ParseS3URL(address); err == nil {
			t.Errorf("%s: %+v", address, got)
		}
	}
}

// TestS3Settings: what is missing or malformed is named.
func TestS3Settings(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	for want, o := range map[string]store.S3Options{
		"bucket's name":     {AccessKey: "a", SecretKey: "b"},
		"AWS_ACCESS_KEY_ID": {Bucket: "bucket"},
		`endpoint "9000"`:   {Bucket: "bucket", Endpoint: "9000", AccessKey: "a", SecretKey: "b"},
		`"http://h/path"`:   {Bucket: "bucket", Endpoint: "http://h/path", AccessKey: "a", SecretKey: "b"},
	} {
		if _, err := store.NewS3(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "ak")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "sk")
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	if _, err := store.NewS3(store.S3Options{Bucket: "bucket"}); err != nil {
		t.Error(err)
	}
}
