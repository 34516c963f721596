package emulator

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

const uc = "/api/2.1/unity-catalog/"

// allTypes has a column of each kind, as SDKs send them: type_json as a whole field or as a bare type, or type_text alone.
const allTypes = `{"name":"all","catalog_name":"main","schema_name":"default","table_type":"MANAGED","data_source_format":"DELTA","comment":"every type",
 "properties":{"delta.enableChangeDataFeed":"true"},"columns":[
 {"name":"id","type_name":"LONG","type_text":"bigint","type_json":"{\"name\":\"id\",\"type\":\"long\",\"nullable\":false,\"metadata\":{}}","position":0,"nullable":false,"comment":"the key"},
 {"name":"price","type_name":"DECIMAL","type_text":"decimal(10,2)","type_json":"\"decimal(10,2)\"","position":1},
 {"name":"tags","type_text":"map<string,array<int>>","position":2,"nullable":true},
 {"name":"place","type_text":"struct<lat:double,lon:double>","position":3},
 {"name":"n","type_name":"INT","position":4},
 {"name":"amount","type_name":"DECIMAL","type_precision":5,"type_scale":1,"position":5},
 {"name":"at","type_text":"TIMESTAMP_NTZ","position":6},
 {"name":"day","type_text":"date","position":7,"partition_index":0},
 {"name":"code","type_text":"varchar(3)","position":8,"comment":"short"},
 {"name":"sign","type_json":"{\"name\":\"sign\",\"type\":\"string\",\"nullable\":true,\"metadata\":{\"__CHAR_VARCHAR_TYPE_STRING\":\"char(2)\"}}","position":9,"comment":"plus"}]}`

const allTypesAnswer = `{
  "name": "all",
  "catalog_name": "main",
  "schema_name": "default",
  "full_name": "main.default.all",
  "table_id": "ID",
  "table_type": "MANAGED",
  "data_source_format": "DELTA",
  "columns": [
    {"name":"id","type_text":"bigint","type_name":"LONG","type_json":"{\"name\":\"id\",\"type\":\"long\",\"nullable\":false,\"metadata\":{\"comment\":\"the key\"}}","position":0,"nullable":false,"comment":"the key"},
    {"name":"price","type_text":"decimal(10,2)","type_name":"DECIMAL","type_json":"{\"name\":\"price\",\"type\":\"decimal(10,2)\",\"nullable\":true,\"metadata\":{}}","position":1,"nullable":true,"type_precision":10,"type_scale":2},
    {"name":"tags","type_text":"map<string,array<int>>","type_name":"MAP","type_json":"{\"name\":\"tags\",\"type\":{\"type\":\"map\",\"keyType\":\"string\",\"valueType\":{\"type\":\"array\",\"elementType\":\"integer\",\"containsNull\":true},\"valueContainsNull\":true},\"nullable\":true,\"metadata\":{}}","position":2,"nullable":true},
    {"name":"place","type_text":"struct<lat:double,lon:double>","type_name":"STRUCT","type_json":"{\"name\":\"place\",\"type\":{\"type\":\"struct\",\"fields\":[{\"name\":\"lat\",\"type\":\"double\",\"nullable\":true,\"metadata\":{}},{\"name\":\"lon\",\"type\":\"double\",\"nullable\":true,\"metadata\":{}}]},\"nullable\":true,\"metadata\":{}}","position":3,"nullable":true},
    {"name":"n","type_text":"int","type_name":"INT","type_json":"{\"name\":\"n\",\"type\":\"integer\",\"nullable\":true,\"metadata\":{}}","position":4,"nullable":true},
    {"name":"amount","type_text":"decimal(5,1)","type_name":"DECIMAL","type_json":"{\"name\":\"amount\",\"type\":\"decimal(5,1)\",\"nullable\":true,\"metadata\":{}}","position":5,"nullable":true,"type_precision":5,"type_scale":1},
    {"name":"at","type_text":"timestamp_ntz","type_name":"TIMESTAMP_NTZ","type_json":"{\"name\":\"at\",\"type\":\"timestamp_ntz\",\"nullable\":true,\"metadata\":{}}","position":6,"nullable":true},
    {"name":"day","type_text":"date","type_name":"DATE","type_json":"{\"name\":\"day\",\"type\":\"date\",\"nullable\":true,\"metadata\":{}}","position":7,"nullable":true,"partition_index":0},
    {"name":"code","type_text":"string","type_name":"STRING","type_json":"{\"name\":\"code\",\"type\":\"string\",\"nullable\":true,\"metadata\":{\"__CHAR_VARCHAR_TYPE_STRING\":\"varchar(3)\",\"comment\":\"short\"}}","position":8,"nullable":true,"comment":"short"},
    {"name":"sign","type_text":"string","type_name":"STRING","type_json":"{\"name\":\"sign\",\"type\":\"string\",\"nullable\":true,\"metadata\":{\"__CHAR_VARCHAR_TYPE_STRING\":\"char(2)\",\"comment\":\"plus\"}}","position":9,"nullable":true,"comment":"plus"}
  ],
  "storage_location": "memory:///N/main/default/all",
  "properties": {"delta.enableChangeDataFeed": "true"},
  "comment": "every type",
  "owner": "developer@deltabus.local",
  "metastore_id": "00000000-0000-4000-8000-000000000001",
  "created_at": 1767323045000,
  "updated_at": 1767323045000,
  "created_by": "developer@deltabus.local",
  "updated_by": "developer@deltabus.local"
}`

var randomID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

var memoryURL = regexp.MustCompile(`memory:///[0-9]+/`)

// canonical is JSON with sorted keys and without random ids.
func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	out, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text = memoryURL.ReplaceAllString(string(out), "memory:///N/") // each memory has its number
	return randomID.ReplaceAllStringFunc(text, func(id string) string {
		if id == metastoreID {
			return id
		}
		return "ID"
	})
}

func TestTableJSON(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := Run(t, WithoutListener(), WithClock(func() time.Time { return now }))
	a := newAPI(t, e)
	want := canonical(t, allTypesAnswer)
	for _, call := range [][3]string{{"POST", "tables", allTypes}, {"GET", "tables/main.default.all"}, {"GET", "tables/MAIN.Default.ALL"}} {
		code, body := a.call(call[0], uc+call[1], call[2])
		if code != 200 {
			t.Fatalf("%s %s: %d %s", call[0], call[1], code, body)
		}
		if got := canonical(t, body); got != want {
			t.Errorf("%s %s answers\n%s\nwant\n%s", call[0], call[1], got, want)
		}
	}
	code, body := a.call("GET", uc+"tables?catalog_name=main&schema_name=default", "")
	if got, want := canonical(t, body), canonical(t, `{"tables":[`+allTypesAnswer+`]}`); code != 200 || got != want {
		t.Errorf("list answers %d\n%s", code, got)
	}
}

// Each call in order on one emulator, with the status and what the answer has.
func TestUnityCatalogCalls(t *testing.T) {
	t.Parallel()
	e := Run(t, WithoutListener())
	a := newAPI(t, e)
	table := func(name, more string) string {
		return fmt.Sprintf(`{"name":%q,"catalog_name":"dev","schema_name":"s","table_type":"MANAGED","data_source_format":"DELTA"%s}`, name, more)
	}
	const cols = `,"columns":[{"name":"id","type_text":"bigint"}]`
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "catalogs", "", 200, `{"catalogs":[{"name":"main"`},
		{"GET", "catalogs/main", "", 200, `"full_name":"main"`},
		{"GET", "schemas/main.default", "", 200, `"full_name":"main.default"`},
		{"GET", "catalogs/dev", "", 404, `"error_code":"CATALOG_DOES_NOT_EXIST","message":"Catalog 'dev' does not exist."`},
		{"POST", "schemas", `{"name":"s","catalog_name":"dev"}`, 404, `"CATALOG_DOES_NOT_EXIST"`},
		{"POST", "tables", table("t", cols), 404, `"CATALOG_DOES_NOT_EXIST"`},
		{"GET", "tables?catalog_name=dev&schema_name=s", "", 404, `"CATALOG_DOES_NOT_EXIST"`},
		{"POST", "catalogs", `{"name":"Dev","comment":"mine"}`, 200, `{"name":"dev","comment":"mine"`},
		{"POST", "catalogs", `{"name":"dev"}`, 400, `"CATALOG_ALREADY_EXISTS"`},
		{"POST", "catalogs", `{"name":"de-v"}`, 400, `"INVALID_PARAMETER_VALUE"`},
		{"POST", "catalogs", `{"name":"x","storage_root":"s3://x"}`, 501, `storage_root`},
		{"POST", "catalogs", `{"name":`, 400, `"MALFORMED_REQUEST"`},
		{"GET", "schemas?catalog_name=dev", "", 200, `{}`},
		{"POST", "tables", table("t", cols), 404, `"SCHEMA_DOES_NOT_EXIST","message":"Schema 'dev.s' does not exist."`},
		{"GET", "tables?catalog_name=dev&schema_name=s", "", 404, `"SCHEMA_DOES_NOT_EXIST"`},
		{"POST", "schemas", `{"name":"s","catalog_name":"dev"}`, 200, `"full_name":"dev.s"`},
		{"POST", "schemas", `{"name":"s","catalog_name":"dev"}`, 400, `"SCHEMA_ALREADY_EXISTS"`},
		{"GET", "tables?catalog_name=dev&schema_name=s", "", 200, `{}`},
		{"GET", "tables/dev.s.t/exists", "", 200, `{"table_exists":false}`},
		{"GET", "tables/dev.s.t", "", 404, `"error_code":"TABLE_DOES_NOT_EXIST","message":"Table 'dev.s.t' does not exist."`},
		{"GET", "tables/dev.s.t", "", 404, `"reason":"RESOURCE_DOES_NOT_EXIST"`},
		{"GET", "tables/t", "", 400, `"INVALID_PARAMETER_VALUE"`},
		{"POST", "tables", table("t", cols), 200, `"full_name":"dev.s.t"`},
		{"POST", "tables", table("T", cols), 400, `"error_code":"TABLE_ALREADY_EXISTS"`},
		{"POST", "tables", table("u", cols), 200, `"full_name":"dev.s.u"`},
		{"GET", "tables?catalog_name=dev&schema_name=s&max_results=1", "", 200, `"next_page_token":"1","tables":[{"name":"t"`},
		{"GET", "tables?catalog_name=dev&schema_name=s&max_results=1&page_token=1", "", 200, `{"tables":[{"name":"u"`},
		{"GET", "tables?catalog_name=dev&schema_name=s&page_token=x", "", 400, `page_token`},
		{"GET", "tables?catalog_name=dev&schema_name=s&max_results=-1", "", 400, `max_results`},
		{"GET", "tables?catalog_name=dev&schema_name=s&omit_columns=true", "", 200, `"columns":null`},
		{"GET", "tables/dev.s.t/exists", "", 200, `{"table_exists":true}`},
		{"DELETE", "schemas/dev.s", "", 400, `"SCHEMA_NOT_EMPTY"`},
		{"DELETE", "schemas/dev.s?force=true", "", 501, `force`},
		{"DELETE", "catalogs/dev", "", 400, `"CATALOG_NOT_EMPTY"`},
		{"DELETE", "tables/dev.s.t", "", 200, `{}`},
		{"DELETE", "tables/dev.s.t", "", 404, `"TABLE_DOES_NOT_EXIST"`},
		{"DELETE", "tables/dev.s.u", "", 200, `{}`},
		{"DELETE", "schemas/dev.s", "", 200, `{}`},
		{"DELETE", "catalogs/dev", "", 200, `{}`},
		{"DELETE", "catalogs/main", "", 400, `always exists`},
		{"DELETE", "schemas/main.default", "", 400, `always exists`},
		{"PATCH", "tables/main.default.t", `{}`, 501, `PATCH`},
	} {
		if code, body := a.call(c.method, uc+c.path, c.body); code != c.code || !strings.Contains(body, c.want) {
			t.Errorf("%s %s %s: %d %s; want %d %s", c.method, c.path, c.body, code, body, c.code, c.want)
		}
	}
}

// Tables that cannot be made are refused with the reason, and nothing of them is left.
func TestTablesRefused(t *testing.T) {
	t.Parallel()
	e := Run(t, WithoutListener())
	a := newAPI(t, e)
	for more, want := range map[string]string{
		`"table_type":"VIEW","data_source_format":"DELTA","columns":[{"name":"a","type_text":"int"}]`:                                   "VIEW",
		`"table_type":"MANAGED","data_source_format":"CSV","columns":[{"name":"a","type_text":"int"}]`:                                  "CSV",
		`"table_type":"MANAGED","columns":[{"name":"a","type_text":"int"}]`:                                                             "data_source_format",
		`"table_type":"MANAGED","data_source_format":"DELTA"`:                                                                           "column",
		`"table_type":"MANAGED","data_source_format":"DELTA","storage_location":"/tmp/x","columns":[{"name":"a","type_text":"int"}]`:    "storage_location",
		`"table_type":"EXTERNAL","data_source_format":"DELTA","columns":[{"name":"a","type_text":"int"}]`:                               "storage_location",
		`"table_type":"EXTERNAL","data_source_format":"DELTA","storage_location":"/tmp/x","columns":[{"name":"a","type_text":"int"}]`:   "memory",
		`"table_type":"MANAGED","data_source_format":"DELTA","columns":[{"name":"a","type_text":"number"}]`:                             "number",
		`"table_type":"MANAGED","data_source_format":"DELTA","columns":[{"name":"a"}]`:                                                  "type",
		`"table_type":"MANAGED","data_source_format":"DELTA","columns":[{"name":"a","type_json":"{"}]`:                                  "column a",
		`"table_type":"MANAGED","data_source_format":"DELTA","columns":[{"name":"a","type_text":"int"},{"name":"A","type_text":"int"}]`: "A",
		`"table_type":"MANAGED","data_source_format":"DELTA","columns":[{"name":"a","type_text":"int","partition_index":1}]`:            "partition_index",
		`"table_type":"MANAGED","data_source_format":"DELTA","columns":[{"name":"a","type_text":"int","mask":{}}]`:                      "mask",
		`"table_type":"MANAGED","data_source_format":"DELTA","row_filter":{},"columns":[{"name":"a","type_text":"int"}]`:                "row_filter",
	} {
		body := `{"name":"t","catalog_name":"main","schema_name":"default",` + more + `}`
		if code, answer := a.call("POST", uc+"tables", body); code < 400 || code >= 500 && code != 501 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s", body, code, answer)
		}
		if code, answer := a.call("GET", uc+"tables/main.default.t/exists", ""); code != 200 || !strings.Contains(answer, "false") {
			t.Fatalf("after %s: %d %s", body, code, answer)
		}
	}
	if code, body := a.call("POST", uc+"tables", `{"name":"t","comment":"`+strings.Repeat("x", maxBody)+`"}`); code != 413 {
		t.Errorf("a body too large: %d %s", code, body)
	}
}

// Of a slash too many nothing is redirected: a redirected POST is a GET.
func TestNoRedirects(t *testing.T) {
	t.Parallel()
	a := newAPI(t, Run(t, WithoutListener())) // its client fails on a redirect
	for _, path := range []string{"//api/2.1/unity-catalog/catalogs/main", "/api/2.1/unity-catalog/catalogs/main/", "//readyz"} {
		if code, body := a.call("GET", path, ""); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
