package emulator

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
)

// tokenLife is what expires_in says.
const tokenLife = time.Hour

// maxClaim bounds, in bytes of JSON, what a request brings into its token: purego reads 4,096 bytes of the whole answer.
const maxClaim = 512

// claim is text as a claim, or instead if that is empty or too long.
func claim(text, instead string) string {
	if written, err := json.Marshal(text); text == "" || err != nil || len(written) > maxClaim {
		return instead
	}
	return text
}

// token is POST /oidc/v1/token (zerobus.md 3): client credentials, by Basic authentication or in the form, and token exchange. In open
// mode every credential is taken, but a request has to be one.
func (e *Emulator) token(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		writeOAuthError(w, http.StatusMethodNotAllowed, "invalid_request", "POST is required")
		return
	}
	if err := r.ParseForm(); err != nil {
		writeOAuthError(w, http.StatusBadRequest, "invalid_request", "the form cannot be read")
		return
	}
	form := r.PostForm
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = form.Get("client_id"), form.Get("client_secret")
	}
	switch grant := form.Get("grant_type"); grant {
	case "client_credentials":
		if id == "" || secret == "" {
			writeOAuthError(w, http.StatusUnauthorized, "invalid_client", "Client authentication failed")
			return
		}
	case "urn:ietf:params:oauth:grant-type:token-exchange":
		if form.Get("subject_token") == "" {
			writeOAuthError(w, http.StatusBadRequest, "invalid_request", "subject_token is missing")
			return
		}
	case "":
		writeOAuthError(w, http.StatusBadRequest, "invalid_request", "grant_type is missing")
		return
	default:
		writeOAuthError(w, http.StatusBadRequest, "unsupported_grant_type", "grant_type "+grant+" is not supported")
		return
	}
	if details := form.Get("authorization_details"); details != "" && !json.Valid([]byte(details)) {
		writeOAuthError(w, http.StatusBadRequest, "invalid_authorization_details", "authorization_details is no JSON")
		return
	}
	token, err := e.mint(id, form.Get("resource"))
	if err != nil {
		writeOAuthError(w, http.StatusInternalServerError, "server_error", err.Error())
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeAnswer(w, http.StatusOK, map[string]any{
		"access_token": token, "token_type": "Bearer", "expires_in": int(tokenLife.Seconds()), "scope": "all-apis",
	})
}

// mint makes a short JWT. It is signed with the workspace's secret, which outlives a restart, so that a token does too.
func (e *Emulator) mint(subject, resource string) (string, error) {
	now := e.cfg.clock()
	claims, err := json.Marshal(map[string]any{
		"iss": e.info.HTTP + "/oidc", "sub": claim(subject, "client"),
		"aud": claim(strings.TrimPrefix(resource, "api://databricks/"), "workspaces/"+e.info.WorkspaceID),
		"iat": now.Unix(), "exp": now.Add(tokenLife).Unix(), "jti": uuid.NewString(), "scope": "all-apis",
	})
	if err != nil {
		return "", err
	}
	part := base64.RawURLEncoding.EncodeToString
	signed := part([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + part(claims)
	mac := hmac.New(sha256.New, []byte(e.info.ClientSecret))
	mac.Write([]byte(signed))
	return signed + "." + part(mac.Sum(nil)), nil
}

func writeOAuthError(w http.ResponseWriter, code int, name, description string) {
	writeAnswer(w, code, map[string]string{"error": name, "error_description": description, "error_id": uuid.NewString()})
}

// baseURL is the emulator as the client of a request knows it.
func baseURL(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// hostMetadata is what databricks clients ask a host first: databricks-sdk for Python finds no token endpoint without it.
func (e *Emulator) hostMetadata(w http.ResponseWriter, r *http.Request) {
	writeAnswer(w, http.StatusOK, map[string]string{"oidc_endpoint": baseURL(r) + "/oidc", "workspace_id": e.info.WorkspaceID})
}

// discovery tells databricks clients where the token endpoint is.
func (e *Emulator) discovery(w http.ResponseWriter, r *http.Request) {
	base := baseURL(r)
	writeAnswer(w, http.StatusOK, map[string]any{
		"issuer": base + "/oidc", "token_endpoint": base + "/oidc/v1/token", "authorization_endpoint": base + "/oidc/v1/authorize",
		"grant_types_supported":                 []string{"client_credentials"},
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post"},
	})
}
