package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/internal/catalog"
)

// maxBody is the largest request body that the HTTP APIs read.
const maxBody = 10 << 20

// handler routes HTTP requests, and on the TLS port gRPC within them. It is no ServeMux: that would redirect //oidc/v1/token,
// which SDKs given a trailing slash ask for, and a redirect turns their POST into a GET.
func (e *Emulator) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			e.grpc.ServeHTTP(w, r)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		path := "/" + strings.Trim(r.URL.Path, "/")
		e.cfg.logger.Debug("http request", "method", r.Method, "path", path)
		e.route(w, r, path)
	})
}

func (e *Emulator) route(w http.ResponseWriter, r *http.Request, path string) {
	switch {
	case path == "/livez":
		writeText(w, http.StatusOK, "ok")
	case path == "/readyz":
		if e.ready.Load() {
			writeText(w, http.StatusOK, "ok")
		} else {
			writeText(w, http.StatusServiceUnavailable, "starting")
		}
	case path == "/oidc/v1/token":
		e.token(w, r)
	case path == "/oidc/.well-known/oauth-authorization-server", path == "/.well-known/oauth-authorization-server":
		e.discovery(w, r)
	case path == "/.well-known/databricks-config":
		e.hostMetadata(w, r)
	case strings.HasPrefix(path, "/api/2.1/unity-catalog/"):
		e.unityCatalog(w, r, strings.TrimPrefix(path, "/api/2.1/unity-catalog/"))
	case path == "/api/2.0/preview/scim/v2/Me":
		e.me(w, r)
	case path == "/api/2.0/sql/warehouses", strings.HasPrefix(path, "/api/2.0/sql/warehouses/"):
		e.warehouses(w, r, strings.TrimPrefix(strings.TrimPrefix(path, "/api/2.0/sql/warehouses"), "/"))
	default:
		for _, n := range notYet {
			if strings.HasPrefix(path, n.prefix) {
				writeError(w, http.StatusNotImplemented, "NOT_IMPLEMENTED", n.what+" is not implemented by deltabus-local yet")
				return
			}
		}
		writeError(w, http.StatusNotFound, "ENDPOINT_NOT_FOUND", fmt.Sprintf("No API found for '%s %s'", r.Method, path))
	}
}

// notYet are parts of a workspace that are known and not here.
var notYet = []struct{ prefix, what string }{
	{"/api/2.0/sql/statements", "the SQL statement execution API"},
	{"/zerobus/v1/tables/", "REST insert"},
	{"/v1/traces", "OTLP"},
	{"/v1/logs", "OTLP"},
	{"/v1/metrics", "OTLP"},
	{"/api/2.0/otel/", "OTLP"},
	{"/api/2.0/unity-catalog/", "this Unity Catalog API"},
	{"/api/2.0/sql/", "this SQL warehouse API"},
}

// unknownService answers gRPC calls of services that a workspace has and this emulator has not yet.
func unknownService(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	what := "gRPC method " + method
	switch {
	case strings.HasPrefix(method, "/arrow.flight.protocol.FlightService/"):
		what = "Arrow Flight (" + method + ")"
	case strings.HasPrefix(method, "/opentelemetry.proto.collector."):
		what = "OTLP (" + method + ")"
	}
	return status.Errorf(codes.Unimplemented, "%s is not implemented by deltabus-local yet", what)
}

func writeText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // the client is gone, or it has it
}

func writeAnswer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client is gone, or it has it
}

// apiError is the error body of the workspace APIs.
type apiError struct {
	Code    string        `json:"error_code"`
	Message string        `json:"message"`
	Details []errorDetail `json:"details,omitempty"`
}

type errorDetail struct {
	Type        string            `json:"@type"`
	Reason      string            `json:"reason,omitempty"`
	Domain      string            `json:"domain,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	RequestID   string            `json:"request_id,omitempty"`
	ServingData string            `json:"serving_data,omitempty"`
}

func writeError(w http.ResponseWriter, code int, errorCode, message string, details ...errorDetail) {
	writeAnswer(w, code, apiError{errorCode, message, details})
}

// writeCatalogError answers an error of the catalog as Unity Catalog does (workspace-api.md 2.4). kind is CATALOG, SCHEMA or TABLE.
func writeCatalogError(w http.ResponseWriter, kind, name string, err error) {
	title := kind[:1] + strings.ToLower(kind[1:])
	detail := func(reason string) []errorDetail {
		return []errorDetail{
			{
				Type: "type.googleapis.com/google.rpc.ErrorInfo", Reason: reason, Domain: "unity-catalog.databricks.com",
				Metadata: map[string]string{"resourceType": kind, "resourceIdentifier": name},
			},
			{Type: "type.googleapis.com/google.rpc.RequestInfo", RequestID: uuid.NewString()},
		}
	}
	switch {
	case errors.Is(err, ErrLocation):
		writeError(w, http.StatusBadRequest, "INVALID_PARAMETER_VALUE", err.Error())
	case errors.Is(err, catalog.ErrNotFound), errors.Is(err, deltalog.ErrNotTable):
		writeError(w, http.StatusNotFound, kind+"_DOES_NOT_EXIST", fmt.Sprintf("%s '%s' does not exist.", title, name), detail("RESOURCE_DOES_NOT_EXIST")...)
	case errors.Is(err, catalog.ErrExists), errors.Is(err, deltalog.ErrTableExists):
		writeError(w, http.StatusBadRequest, kind+"_ALREADY_EXISTS", fmt.Sprintf("%s '%s' already exists", title, name), detail("RESOURCE_ALREADY_EXISTS")...)
	case errors.Is(err, catalog.ErrNotEmpty):
		writeError(w, http.StatusBadRequest, kind+"_NOT_EMPTY", fmt.Sprintf("%s '%s' is not empty: delete what it holds first", title, name))
	case errors.Is(err, deltalog.ErrUnsupported):
		writeError(w, http.StatusNotImplemented, "NOT_IMPLEMENTED", err.Error())
	default:
		writeError(w, http.StatusBadRequest, "INVALID_PARAMETER_VALUE", err.Error())
	}
}

// readBody reads a JSON body, whose every field must be one of v's: what is not honoured is refused. False if it has answered with an
// error.
func readBody(w http.ResponseWriter, r *http.Request, v any) bool {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return true
	case errors.As(err, &large):
		writeError(w, http.StatusRequestEntityTooLarge, "MALFORMED_REQUEST", fmt.Sprintf("the body is larger than %d bytes", large.Limit))
	case strings.HasPrefix(err.Error(), unknownField):
		writeError(w, http.StatusNotImplemented, "NOT_IMPLEMENTED", "field "+strings.TrimPrefix(err.Error(), unknownField)+" is not implemented by deltabus-local yet")
	default:
		writeError(w, http.StatusBadRequest, "MALFORMED_REQUEST", "could not read the JSON body: "+err.Error())
	}
	return false
}

// unknownField begins encoding/json's error about a field that a struct has not.
const unknownField = "json: unknown field "

// me answers who the caller is: in open mode everybody is the same. The header is where SDKs find the workspace's id.
func (e *Emulator) me(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Databricks-Org-Id", e.info.WorkspaceID)
	writeAnswer(w, http.StatusOK, map[string]any{
		"schemas": []string{"urn:ietf:params:scim:schemas:core:2.0:User"}, "id": e.info.WorkspaceID,
		"userName": owner, "displayName": "developer", "active": true,
		"emails": []map[string]any{{"type": "work", "value": owner, "primary": true}},
	})
}

// warehouses answers for the one warehouse: in the list, and by its id.
func (e *Emulator) warehouses(w http.ResponseWriter, r *http.Request, id string) {
	warehouse := map[string]any{
		"id": e.info.WarehouseID, "name": "deltabus-local", "state": "RUNNING", "cluster_size": "2X-Small",
		"warehouse_type": "PRO", "enable_serverless_compute": true, "num_clusters": 1, "auto_stop_mins": 0,
	}
	switch {
	case r.Method != http.MethodGet || strings.Contains(id, "/"):
		writeError(w, http.StatusNotImplemented, "NOT_IMPLEMENTED", "making, changing and stopping warehouses is not implemented by deltabus-local yet")
	case id == "":
		writeAnswer(w, http.StatusOK, map[string]any{"warehouses": []any{warehouse}})
	case id == e.info.WarehouseID:
		writeAnswer(w, http.StatusOK, warehouse)
	default:
		writeError(w, http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST", fmt.Sprintf("SQL warehouse %s does not exist.", id))
	}
}
