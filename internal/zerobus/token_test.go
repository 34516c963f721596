package zerobus

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// TestTokenIsSharedAndRenewed: reconnects share one token; a refusal at setup mints one more, once.
func TestTokenIsSharedAndRenewed(t *testing.T) {
	for _, tc := range []struct {
		name          string
		script        []func(*call) error
		tokens, opens int
		code          codes.Code
	}{
		{"reconnect shares it", []func(*call) error{do(take(0, 1), fail(codes.Unavailable, "x")), good}, 1, 2, codes.OK},
		{"refused once", []func(*call) error{fail(codes.Unauthenticated, "x"), good}, 2, 2, codes.OK},
		{"refused for ever", []func(*call) error{fail(codes.PermissionDenied, "x")}, 2, 2, codes.PermissionDenied},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, stop := startMock(tc.script...)
				defer stop()
				var forms []url.Values
				cfg := m.config()
				cfg.Token = ""
				cfg.OAuth = NewOAuth("http://ws.test/", "id", "pw", &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					user, pass, _ := r.BasicAuth()
					if r.URL.String() != "http://ws.test/oidc/v1/token" || user != "id" || pass != "pw" {
						t.Errorf("request %s as %s:%s", r.URL, user, pass)
					}
					body, _ := io.ReadAll(r.Body)
					form, _ := url.ParseQuery(string(body))
					forms = append(forms, form)
					return answer(200, `{"access_token":"tok","expires_in":3600}`), nil
				})})
				s, err := Open(t.Context(), cfg)
				var e *Error
				if tc.code == codes.OK && err != nil || tc.code != codes.OK && (!errors.As(err, &e) || e.Code != tc.code) {
					t.Fatalf("open: %v", err)
				}
				if err == nil {
					ingest(t, s, rows(1))
					if err := s.Close(t.Context()); err != nil {
						t.Errorf("close: %v", err)
					}
				}
				if len(forms) != tc.tokens || len(m.opened()) != tc.opens {
					t.Errorf("%d tokens, %d opens; want %d, %d", len(forms), len(m.opened()), tc.tokens, tc.opens)
				}
				if got := forms[0].Get("resource"); got != "api://databricks/workspaces/zerobus/zerobusDirectWriteApi" {
					t.Errorf("resource %q", got)
				}
				if got := m.mds[0].Get("authorization"); len(got) != 1 || got[0] != "Bearer tok" {
					t.Errorf("authorization %v", got)
				}
			})
		})
	}
}

// TestTokenFailures: a refusal is final, a failure of the endpoint is tried again.
func TestTokenFailures(t *testing.T) {
	for _, tc := range []struct {
		name    string
		respond func() (*http.Response, error)
		tries   int
		text    string
	}{
		{"refused", func() (*http.Response, error) {
			return answer(401, `{"error":"invalid_client","error_description":"Client authentication failed"}`), nil
		}, 1, "invalid_client"},
		{"server error", func() (*http.Response, error) { return answer(500, "oops"), nil }, 5, "oops"},
		{"no network", func() (*http.Response, error) { return nil, errors.New("no route") }, 5, "no route"},
		{"HTML", func() (*http.Response, error) { return answer(200, "<html>"), nil }, 1, "parse answer"},
		{"no token", func() (*http.Response, error) { return answer(200, "{}"), nil }, 1, "access_token missing"},
		{"redirect", func() (*http.Response, error) { return answer(302, ""), nil }, 1, "302"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, stop := startMock(good)
				defer stop()
				tries := 0
				cfg := m.config()
				cfg.Token = ""
				cfg.OAuth = NewOAuth("http://ws.test", "id", "pw", &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
					tries++
					return tc.respond()
				})})
				_, err := Open(t.Context(), cfg)
				if err == nil || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("open: %v, want %q in it", err, tc.text)
				}
				if tries != tc.tries {
					t.Errorf("%d token requests, want %d", tries, tc.tries)
				}
			})
		})
	}
}
