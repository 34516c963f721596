package databricks

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestCache: tokens are kept until shortly before they expire, by table; concurrent callers share one request.
func TestCache(t *testing.T) {
	for _, tc := range []struct {
		name, expires string
		after         time.Duration
		requests      int32
	}{
		{"within its life", `3600`, 54 * time.Minute, 1},
		{"within 300 s of expiry", `3600`, 56 * time.Minute, 2},
		{"quoted seconds", `"3600"`, time.Minute, 1},
		{"no lifetime", `null`, 0, 2},
		{"short life", `10`, 7 * time.Second, 1},
		{"short life, nearly over", `10`, 9 * time.Second, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int32
				o := &OAuth{Host: "http://ws", HTTP: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
					n.Add(1)
					return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"access_token":"x","expires_in":` + tc.expires + `}`))}, nil
				})}}
				get := func() {
					if tok, err := o.TableToken(t.Context(), "w", "c.s.t"); err != nil || tok != "x" {
						t.Errorf("token %q, %v", tok, err)
					}
				}
				get()
				<-time.After(tc.after)
				get()
				if got := n.Load(); got != tc.requests {
					t.Errorf("%d requests, want %d", got, tc.requests)
				}
				if _, err := o.Token(t.Context()); err != nil || n.Load() != tc.requests+1 {
					t.Errorf("another kind of token did not make a request of its own: %v", err)
				}
			})
		})
	}
}

func TestSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		release := make(chan struct{})
		o := &OAuth{Host: "http://ws", HTTP: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
			n.Add(1)
			<-release
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"access_token":"x","expires_in":60}`))}, nil
		})}}
		for range 5 {
			go func() {
				if _, err := o.Token(t.Context()); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := o.Token(ctx); err == nil {
			t.Error("a cancelled caller got a token")
		}
		close(release)
		synctest.Wait()
		if n.Load() != 1 {
			t.Errorf("%d requests, want 1", n.Load())
		}
	})
}

func FuzzTokenResponse(f *testing.F) {
	f.Add(200, []byte(`{"access_token":"x","expires_in":3600}`))
	f.Add(401, []byte(`{"error":"invalid_client"}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		tok, life, err := parseTokenResponse(status, body)
		if err == nil && (tok == "" || life < 0) {
			t.Errorf("token %q, life %s", tok, life)
		}
	})
}
