// Package databricks is a client of a workspace's HTTP APIs.
package databricks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// OAuth fetches access tokens of a workspace with client credentials, and keeps them until shortly before they
// expire. Safe for concurrent use; callers that want the same token share one request.
type OAuth struct {
	// Host is the workspace's URL, such as https://ws.cloud.databricks.com or http://localhost:8080.
	Host string
	// ClientID and ClientSecret are the service principal's.
	ClientID, ClientSecret string
	// HTTP is the client to use; default: no redirects, no connection kept, 30 s a request.
	HTTP *http.Client
	// Clock; default time.Now.
	Clock func() time.Time

	mu     sync.Mutex
	tokens map[tokenKey]*cachedToken
}

type tokenKey struct{ table, resource string }

// cachedToken is locked by turn (capacity 1) while it is being fetched, so that one request serves all who wait.
type cachedToken struct {
	turn    chan struct{}
	token   string
	refresh time.Time // when to fetch the next; zero: now
}

// OAuthError is a token endpoint's refusal, or the failure to reach it.
type OAuthError struct {
	// Status is the HTTP status, 0 if there was no answer.
	Status int
	// Code and Description are the body's error and error_description, if it has them.
	Code, Description string
	// Cause is what kept the answer from coming or from being read.
	Cause error
}

// Error says what the endpoint said.
func (e *OAuthError) Error() string {
	switch {
	case e.Status == 0:
		return fmt.Sprintf("fetch token: %v", e.Cause)
	case e.Cause != nil:
		return fmt.Sprintf("fetch token: status %d: %v", e.Status, e.Cause)
	case e.Code != "":
		return fmt.Sprintf("fetch token: status %d: %s: %s", e.Status, e.Code, e.Description)
	default:
		return fmt.Sprintf("fetch token: status %d: %s", e.Status, e.Description)
	}
}

// Unwrap returns the cause.
func (e *OAuthError) Unwrap() error { return e.Cause }

// Retryable reports whether the same request may succeed later: no answer, or a server's failure (5xx).
func (e *OAuthError) Retryable() bool { return e.Status == 0 || e.Status >= 500 }

// Token returns a token for the workspace's HTTP APIs.
func (o *OAuth) Token(ctx context.Context) (string, error) { return o.token(ctx, tokenKey{}) }

// TableToken returns a token to write catalog.schema.table through Zerobus; workspaceID is the first label of the
// Zerobus endpoint's host.
func (o *OAuth) TableToken(ctx context.Context, workspaceID, table string) (string, error) {
	return o.token(ctx, o.tableKey(workspaceID, table))
}

// ForgetTableToken drops a token that was refused, so that the next TableToken fetches a new one.
func (o *OAuth) ForgetTableToken(workspaceID, table string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.tokens, o.tableKey(workspaceID, table))
}

func (o *OAuth) tableKey(workspaceID, table string) tokenKey {
	return tokenKey{table: table, resource: "api://databricks/workspaces/" + workspaceID + "/zerobusDirectWriteApi"}
}

func (o *OAuth) now() time.Time {
	if o.Clock != nil {
		return o.Clock()
	}
	return time.Now()
}

func (o *OAuth) token(ctx context.Context, key tokenKey) (string, error) {
	o.mu.Lock()
	c := o.tokens[key]
	if c == nil {
		if o.tokens == nil {
			o.tokens = map[tokenKey]*cachedToken{}
		}
		c = &cachedToken{turn: make(chan struct{}, 1)}
		o.tokens[key] = c
	}
	o.mu.Unlock()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return "", &OAuthError{Cause: context.Cause(ctx)}
	}
	if o.now().Before(c.refresh) {
		return c.token, nil
	}
	token, life, err := o.fetch(ctx, key)
	if err != nil {
		return "", err
	}
	c.token, c.refresh = token, time.Time{}
	if life > 0 { // without a lifetime a token is not kept
		c.refresh = o.now().Add(life - min(300*time.Second, life/5))
	}
	return token, nil
}

// authorizationDetail is one element of authorization_details.
type authorizationDetail struct {
	Type           string   `json:"type"`
	Privileges     []string `json:"privileges"`
	ObjectType     string   `json:"object_type"`
	ObjectFullPath string   `json:"object_full_path"`
	Operations     []string `json:"operations,omitempty"`
}

func authorizationDetails(table string) (string, error) {
	parts := strings.Split(table, ".")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", fmt.Errorf("table name %q: want catalog.schema.table", table)
	}
	const kind = "unity_catalog_privileges"
	b, err := json.Marshal([]authorizationDetail{
		{Type: kind, Privileges: []string{"USE CATALOG"}, ObjectType: "CATALOG", ObjectFullPath: parts[0]},
		{Type: kind, Privileges: []string{"USE SCHEMA"}, ObjectType: "SCHEMA", ObjectFullPath: parts[0] + "." + parts[1]},
		{Type: kind, Privileges: []string{"SELECT", "MODIFY"}, ObjectType: "TABLE", ObjectFullPath: table, Operations: []string{"zerobuswrite"}},
	})
	return string(b), err
}

// oneShot follows no redirect and keeps no connection: tokens are fetched once an hour, and nothing is left to close.
func oneShot() (*http.Client, error) {
	conf, err := SystemTLS()
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Timeout:       30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, DisableKeepAlives: true, TLSHandshakeTimeout: 10 * time.Second},
	}, nil
}

// maxTokenResponse bounds what is read of an answer.
const maxTokenResponse = 64 << 10

func (o *OAuth) fetch(ctx context.Context, key tokenKey) (string, time.Duration, error) {
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {"all-apis"}}
	if key.table != "" {
		details, err := authorizationDetails(key.table)
		if err != nil {
			return "", 0, err
		}
		form.Set("resource", key.resource)
		form.Set("authorization_details", details)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(o.Host, "/")+"/oidc/v1/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, fmt.Errorf("fetch token: %w", err)
	}
	req.SetBasicAuth(o.ClientID, o.ClientSecret)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client := o.HTTP
	if client == nil {
		if client, err = oneShot(); err != nil {
			return "", 0, fmt.Errorf("fetch token: %w", err)
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", 0, &OAuthError{Cause: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenResponse))
	if err != nil {
		return "", 0, &OAuthError{Cause: err}
	}
	return parseTokenResponse(resp.StatusCode, body)
}

func parseTokenResponse(status int, body []byte) (string, time.Duration, error) {
	var answer struct {
		AccessToken      string          `json:"access_token"`
		ExpiresIn        json.RawMessage `json:"expires_in"`
		Error            string          `json:"error"`
		ErrorDescription string          `json:"error_description"`
	}
	err := json.Unmarshal(body, &answer)
	if status != http.StatusOK {
		if err != nil || answer.Error == "" {
			answer.ErrorDescription = string(body)
		}
		return "", 0, &OAuthError{Status: status, Code: answer.Error, Description: answer.ErrorDescription}
	}
	if err != nil {
		return "", 0, &OAuthError{Status: status, Cause: fmt.Errorf("parse answer: %w", err)}
	}
	for _, c := range []byte(answer.AccessToken) {
		if c < 0x21 || c > 0x7e { // it must fit into a header
			return "", 0, &OAuthError{Status: status, Cause: errors.New("access_token holds characters that no header can carry")}
		}
	}
	if answer.AccessToken == "" {
		return "", 0, &OAuthError{Status: status, Cause: errors.New("access_token missing")}
	}
	// Seconds, as a number or a quoted number; anything else means that the token is not kept.
	seconds, err := strconv.ParseFloat(strings.Trim(string(answer.ExpiresIn), `"`), 64)
	if err != nil || !(seconds > 0 && seconds < 1e9) {
		return answer.AccessToken, 0, nil
	}
	return answer.AccessToken, time.Duration(seconds * float64(time.Second)), nil
}
