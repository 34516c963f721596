package store_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// fakeS3 is as much of an S3 server as a store asks for, with one bucket. Real servers are tried in interop/.
type fakeS3 struct {
	mu      sync.Mutex
	objects map[string]fakeObject
	// before, if set, may answer a request itself (true); after, if set, may take back the answer to a request that was done (true: the
	// connection breaks). ignoreCondition makes the server one that does not know If-None-Match.
	before          func(w http.ResponseWriter, r *http.Request) bool
	after           func(r *http.Request) bool
	ignoreCondition bool
	requests        []string
}

type fakeObject struct {
	data  []byte
	mtime string
	at    time.Time
}

func (o fakeObject) etag() string {
	sum := md5.Sum(o.data)
	return hex.EncodeToString(sum[:])
}

// newS3 starts f, and opens a store on it.
func newS3(t *testing.T, f *fakeS3) *store.S3 {
	t.Helper()
	f.objects = map[string]fakeObject{}
	server := httptest.NewServer(f)
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16}
	t.Cleanup(func() { transport.CloseIdleConnections(); server.Close() })
	s, err := store.NewS3(store.S3Options{
		Bucket: "bucket", Prefix: "pre/fix", Endpoint: server.URL, AccessKey: "ak", SecretKey: "sk", Transport: transport,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.URL.Path, "/bucket/")
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+key)
	f.mu.Unlock()
	body, err := io.ReadAll(r.Body) // first: who answers before has the connection closed under the sender, who may miss the answer
	if err != nil {
		return
	}
	if f.before != nil && f.before(w, r) {
		return
	}
	if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		body = unchunk(body)
	}
	recorder := httptest.NewRecorder()
	f.mu.Lock()
	f.answer(recorder, r, key, body)
	f.mu.Unlock()
	if f.after != nil && f.after(r) {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), recorder.Header())
	w.WriteHeader(recorder.Code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(recorder.Body.Bytes())
	}
}

// unchunk takes what aws-chunked puts around the data away.
func unchunk(body []byte) (out []byte) {
	for {
		line, rest, ok := bytes.Cut(body, []byte("\r\n"))
		size, _, _ := strings.Cut(string(line), ";")
		n, err := strconv.ParseInt(size, 16, 64)
		if !ok || err != nil || n == 0 || int64(len(rest)) < n {
			return out
		}
		out = append(out, rest[:n]...)
		body = bytes.TrimPrefix(rest[n:], []byte("\r\n"))
	}
}

func fakeError(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>fake</Message></Error>", code)
}

// answer does a request. The caller holds mu.
func (f *fakeS3) answer(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	object, there := f.objects[key]
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "2":
		f.list(w, r.URL.Query())
	case r.Method == http.MethodPut && there && r.Header.Get("If-None-Match") == "*" && !f.ignoreCondition:
		fakeError(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPut:
		f.objects[key] = fakeObject{body, r.Header.Get("X-Amz-Meta-Mtime"), time.Now()}
		w.Header().Set("ETag", `"`+f.objects[key].etag()+`"`)
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		fakeError(w, http.StatusNotFound, "NoSuchKey")
	case r.Header.Get("If-Match") != "" && strings.Trim(r.Header.Get("If-Match"), `"`) != object.etag():
		fakeError(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		w.Header().Set("ETag", `"`+object.etag()+`"`)
		if object.mtime != "" {
			w.Header().Set("X-Amz-Meta-Mtime", object.mtime)
		}
		http.ServeContent(w, r, "", object.at, bytes.NewReader(object.data))
	}
}

func (f *fakeS3) list(w http.ResponseWriter, q url.Values) {
	type contents struct {
		Key, LastModified, ETag string
		Size                    int
	}
	var result struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string
		IsTruncated           bool
		NextContinuationToken string
		Contents              []contents
	}
	result.EncodingType = q.Get("encoding-type")
	after := max(q.Get("start-after"), q.Get("continuation-token"))
	for _, key := range slices.Sorted(maps.Keys(f.objects)) {
		if key <= after || !strings.HasPrefix(key, q.Get("prefix")) {
			continue
		}
		if len(result.Contents) == 1000 {
			result.IsTruncated = true
			break
		}
		o := f.objects[key]
		result.NextContinuationToken = key
		result.Contents = append(result.Contents, contents{url.QueryEscape(key), o.at.UTC().Format("2006-01-02T15:04:05.000Z"), o.etag(), len(o.data)})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(result)
}
