package databricks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Catalog is a client of a workspace's Unity Catalog. Safe for concurrent use.
type Catalog struct {
	// Host is the workspace's URL.
	Host string
	// Token is sent as the bearer token.
	Token string
	// HTTP is the client to use; default: no redirects, no connection kept, 30 s a request, the roots of SystemTLS.
	HTTP *http.Client
}

// Column is a column of a table as Unity Catalog writes it.
type Column struct {
	Name           string `json:"name"`
	TypeText       string `json:"type_text"`
	TypeName       string `json:"type_name,omitempty"`
	TypeJSON       string `json:"type_json"`
	Position       int    `json:"position"`
	Nullable       bool   `json:"nullable"`
	PartitionIndex *int   `json:"partition_index,omitempty"`
}

// Table is a table as Unity Catalog writes it, as far as the bus needs it.
type Table struct {
	Name             string            `json:"name"`
	CatalogName      string            `json:"catalog_name"`
	SchemaName       string            `json:"schema_name"`
	FullName         string            `json:"full_name,omitempty"`
	TableID          string            `json:"table_id,omitempty"`
	TableType        string            `json:"table_type"`
	DataSourceFormat string            `json:"data_source_format"`
	Columns          []Column          `json:"columns"`
	StorageLocation  string            `json:"storage_location,omitempty"`
	Properties       map[string]string `json:"properties,omitempty"`
	Comment          string            `json:"comment,omitempty"`
	CreatedAt        int64             `json:"created_at,omitempty"`
}

// APIError is a workspace's refusal.
type APIError struct {
	Status  int
	Code    string `json:"error_code"`
	Message string `json:"message"`
}

// Error says what the workspace said.
func (e *APIError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("status %d", e.Status)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// IsNotFound reports whether err says that something is not there.
func IsNotFound(err error) bool {
	var e *APIError
	return errors.As(err, &e) && (e.Status == http.StatusNotFound || strings.HasSuffix(e.Code, "_DOES_NOT_EXIST"))
}

// IsExists reports whether err says that a name is taken.
func IsExists(err error) bool {
	var e *APIError
	return errors.As(err, &e) && strings.HasSuffix(e.Code, "_ALREADY_EXISTS")
}

// Table returns catalog.schema.table.
func (c *Catalog) Table(ctx context.Context, fullName string) (Table, error) {
	var t Table
	err := c.call(ctx, http.MethodGet, "tables/"+url.PathEscape(fullName), nil, &t)
	return t, err
}

// Tables lists the tables of a schema.
func (c *Catalog) Tables(ctx context.Context, catalog, schema string) ([]Table, error) {
	var out []Table
	for token := ""; ; {
		var page struct {
			Tables []Table `json:"tables"`
			Next   string  `json:"next_page_token"`
		}
		q := url.Values{"catalog_name": {catalog}, "schema_name": {schema}}
		if token != "" {
			q.Set("page_token", token)
		}
		if err := c.call(ctx, http.MethodGet, "tables?"+q.Encode(), nil, &page); err != nil {
			return nil, err
		}
		out = append(out, page.Tables...)
		if token = page.Next; token == "" {
			return out, nil
		}
	}
}

// CreateTable makes a table; its schema is made if that is missing.
func (c *Catalog) CreateTable(ctx context.Context, t Table) error {
	err := c.call(ctx, http.MethodPost, "schemas", map[string]string{"catalog_name": t.CatalogName, "name": t.SchemaName}, nil)
	if err != nil && !IsExists(err) {
		return err
	}
	return c.call(ctx, http.MethodPost, "tables", t, nil)
}

func (c *Catalog) call(ctx context.Context, method, path string, body, answer any) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("unity catalog %s %s of %s: %w", method, path, c.Host, err)
		}
	}()
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.Host, "/")+"/api/2.1/unity-catalog/"+path, in)
	if err != nil {
		return err
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	client := c.HTTP
	if client == nil {
		if client, err = oneShot(); err != nil {
			return err
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		e := &APIError{Status: resp.StatusCode}
		if json.Unmarshal(data, e) != nil {
			e.Message = strings.TrimSpace(string(data))
		}
		return e
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(data, answer)
}
