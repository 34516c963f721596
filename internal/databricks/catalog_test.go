package databricks

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// answers is a workspace that answers by method and path.
func answers(t *testing.T, byCall map[string]string) (*Catalog, *[]string) {
	var calls []string
	return &Catalog{Host: "http://ws/", Token: "secret", HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if got := r.Header.Get("Authorization"); got != "Bearer secret" {
			t.Errorf("authorization %q", got)
		}
		call := r.Method + " " + strings.TrimPrefix(r.URL.RequestURI(), "/api/2.1/unity-catalog/")
		if r.Body != nil {
			body, err := io.ReadAll(r.Body)
			if err != nil || !json.Valid(body) {
				t.Errorf("body %q, %v", body, err)
			}
			calls = append(calls, call+" "+string(body))
		} else {
			calls = append(calls, call)
		}
		answer, ok := byCall[call]
		if !ok {
			t.Errorf("unexpected %s", call)
		}
		status, body, _ := strings.Cut(answer, " ")
		code := map[string]int{"200": 200, "400": 400, "404": 404, "409": 409, "500": 500}[status]
		return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body))}, nil
	})}}, &calls
}

func TestCatalogTable(t *testing.T) {
	t.Parallel()
	c, _ := answers(t, map[string]string{
		"GET tables/main.a.b":    `200 {"name":"b","table_id":"1","storage_location":"file:///x","columns":[{"name":"id","nullable":false,"partition_index":0}],"unknown":1}`,
		"GET tables/main.a.none": `404 {"error_code":"TABLE_DOES_NOT_EXIST","message":"Table 'main.a.none' does not exist."}`,
		"GET tables/main.a.html": `500 <html>oops</html>`,
		"GET tables/main.a.bad":  `200 {"name":`,
	})
	table, err := c.Table(t.Context(), "main.a.b")
	if err != nil || table.TableID != "1" || table.StorageLocation != "file:///x" || len(table.Columns) != 1 || table.Columns[0].Nullable || *table.Columns[0].PartitionIndex != 0 {
		t.Errorf("%+v, %v", table, err)
	}
	_, err = c.Table(t.Context(), "main.a.none")
	if !IsNotFound(err) || IsExists(err) || !strings.Contains(err.Error(), "main.a.none") {
		t.Errorf("absent: %v", err)
	}
	var api *APIError
	if _, err := c.Table(t.Context(), "main.a.html"); !errors.As(err, &api) || api.Status != 500 || !strings.Contains(err.Error(), "500") {
		t.Errorf("an answer that is not JSON: %v", err)
	}
	if _, err := c.Table(t.Context(), "main.a.bad"); err == nil || IsNotFound(err) {
		t.Errorf("a cut answer: %v", err)
	}
}

func TestCatalogCreateTable(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{`200 {}`, `400 {"error_code":"SCHEMA_ALREADY_EXISTS","message":"there"}`} {
		c, calls := answers(t, map[string]string{"POST schemas": schema, "POST tables": "200 {}"})
		one := 0
		err := c.CreateTable(t.Context(), Table{
			Name: "b", CatalogName: "main", SchemaName: "a", TableType: "MANAGED", DataSourceFormat: "DELTA",
			Columns:    []Column{{Name: "id", TypeText: "bigint", TypeJSON: `"long"`, PartitionIndex: &one}},
			Properties: map[string]string{"k": "v"},
		})
		if err != nil || len(*calls) != 2 {
			t.Fatalf("%v: %v", *calls, err)
		}
		want := `POST tables {"name":"b","catalog_name":"main","schema_name":"a","table_type":"MANAGED","data_source_format":"DELTA",` +
			`"columns":[{"name":"id","type_text":"bigint","type_json":"\"long\"","position":0,"nullable":false,"partition_index":0}],"properties":{"k":"v"}}`
		if (*calls)[1] != want {
			t.Errorf("asked for\n%s\nwant\n%s", (*calls)[1], want)
		}
	}
	c, _ := answers(t, map[string]string{"POST schemas": "200 {}", "POST tables": `400 {"error_code":"TABLE_ALREADY_EXISTS","message":"there"}`})
	if err := c.CreateTable(t.Context(), Table{Name: "b"}); !IsExists(err) || IsNotFound(err) {
		t.Errorf("existing: %v", err)
	}
}

func TestCatalogTables(t *testing.T) {
	t.Parallel()
	c, _ := answers(t, map[string]string{
		"GET tables?catalog_name=main&schema_name=a":              `200 {"tables":[{"name":"x"}],"next_page_token":"2"}`,
		"GET tables?catalog_name=main&page_token=2&schema_name=a": `200 {}`,
	})
	tables, err := c.Tables(t.Context(), "main", "a")
	if err != nil || len(tables) != 1 || tables[0].Name != "x" {
		t.Errorf("%+v, %v", tables, err)
	}
}
