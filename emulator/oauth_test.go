package emulator

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

const details = `[{"type":"unity_catalog_privileges","privileges":["USE CATALOG"],"object_type":"CATALOG","object_full_path":"main"},` +
	`{"type":"unity_catalog_privileges","privileges":["SELECT","MODIFY"],"object_type":"TABLE","object_full_path":"main.default.t","operations":["zerobuswrite"]}]`

func TestTokens(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := Run(t, WithoutListener(), WithClock(func() time.Time { return now }))
	a := newAPI(t, e)
	grant := url.Values{"grant_type": {"client_credentials"}, "scope": {"all-apis"}}
	with := func(more url.Values) url.Values {
		out := maps.Clone(grant)
		maps.Copy(out, more)
		return out
	}
	basic := []string{e.ClientID(), e.ClientSecret()}
	exchange := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "subject_token": {"a.b.c"}, "subject_token_type": {"urn:ietf:params:oauth:token-type:jwt"}}
	for _, tt := range []struct {
		name, path string
		form       url.Values
		auth       []string
		audience   string
	}{
		{"proto generators: no resource", "/oidc/v1/token", grant, basic, "workspaces/" + e.WorkspaceID()},
		{"credentials in the form", "/oidc/v1/token", with(url.Values{"client_id": {"x"}, "client_secret": {"y"}}), nil, "workspaces/" + e.WorkspaceID()},
		{"a slash too many", "//oidc/v1/token", grant, basic, "workspaces/" + e.WorkspaceID()},
		{"the SDKs", "/oidc/v1/token", with(url.Values{
			"resource": {"api://databricks/workspaces/localhost:8080/zerobusDirectWriteApi"}, "authorization_details": {details},
		}), basic, "workspaces/localhost:8080/zerobusDirectWriteApi"},
		{"other credentials", "/oidc/v1/token", grant, []string{"any", "thing"}, "workspaces/" + e.WorkspaceID()},
		{"federation", "/oidc/v1/token", exchange, nil, "workspaces/" + e.WorkspaceID()},
		{"long values", "/oidc/v1/token", with(url.Values{"resource": {strings.Repeat("<", 5000)}}), []string{strings.Repeat("<", 500), "x"}, "workspaces/" + e.WorkspaceID()},
	} {
		code, answer, body := a.form(tt.path, tt.form, tt.auth...)
		if code != 200 || answer["token_type"] != "Bearer" || answer["expires_in"] != 3600.0 || !strings.Contains(body, `"expires_in":3600`) {
			t.Errorf("%s: %d %s", tt.name, code, body)
			continue
		}
		if len(body) > 3<<10 {
			t.Errorf("%s: the answer has %d bytes, purego reads 4096", tt.name, len(body))
		}
		token, _ := answer["access_token"].(string)
		parts := strings.Split(token, ".")
		if len(parts) != 3 {
			t.Errorf("%s: %q is no JWT", tt.name, token)
			continue
		}
		claims, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil {
			t.Fatal(err)
		}
		var c struct {
			Aud      string
			Iat, Exp int64
		}
		if err := json.Unmarshal(claims, &c); err != nil || c.Aud != tt.audience || c.Iat != now.Unix() || c.Exp != now.Unix()+3600 {
			t.Errorf("%s: claims %s, %v", tt.name, claims, err)
		}
	}
	for _, tt := range []struct {
		name string
		form url.Values
		auth []string
		code int
		want string
	}{
		{"no credentials", grant, nil, 401, "invalid_client"},
		{"an empty secret", grant, []string{"x", ""}, 401, "invalid_client"},
		{"another grant", url.Values{"grant_type": {"password"}}, basic, 400, "unsupported_grant_type"},
		{"no grant", url.Values{}, basic, 400, "invalid_request"},
		{"federation without a token", url.Values{"grant_type": exchange["grant_type"]}, nil, 400, "invalid_request"},
		{"details that are no JSON", with(url.Values{"authorization_details": {"["}}), basic, 400, "invalid_authorization_details"},
	} {
		code, answer, body := a.form("/oidc/v1/token", tt.form, tt.auth...)
		if code != tt.code || answer["error"] != tt.want || answer["error_description"] == "" {
			t.Errorf("%s: %d %s, want %d %s", tt.name, code, body, tt.code, tt.want)
		}
	}
	if code, body := a.call("GET", "/oidc/v1/token", ""); code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d %s", code, body)
	}
}

// Every client finds the token endpoint at the address by which it knows the emulator.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	e := Run(t, WithoutListener())
	a := newAPI(t, e)
	for path, want := range map[string]string{
		"/oidc/.well-known/oauth-authorization-server": `"token_endpoint":"` + e.URL() + `/oidc/v1/token"`,
		"/.well-known/databricks-config":               `"oidc_endpoint":"` + e.URL() + `/oidc"`,
	} {
		if code, body := a.call("GET", path, ""); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// What databricks clients ask first.
func TestIdentity(t *testing.T) {
	t.Parallel()
	e := Run(t, WithoutListener())
	a := newAPI(t, e)
	r, err := http.NewRequestWithContext(t.Context(), "GET", e.URL()+"/api/2.0/preview/scim/v2/Me", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := a.c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if got := resp.Header.Get("X-Databricks-Org-Id"); got != e.WorkspaceID() || got == "" {
		t.Errorf("workspace id %q, want %q", got, e.WorkspaceID())
	}
	for path, want := range map[string]string{
		"/api/2.0/preview/scim/v2/Me":                `"userName":`,
		"/api/2.0/sql/warehouses":                    `{"warehouses":[{`,
		"/api/2.0/sql/warehouses/" + e.WarehouseID(): `"state":"RUNNING"`,
	} {
		if code, body := a.call("GET", path, ""); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if code, body := a.call("GET", "/api/2.0/sql/warehouses/other", ""); code != 404 {
		t.Errorf("another warehouse: %d %s", code, body)
	}
}
