package interop

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWorkspaceSDK: the official workspace client finds what is there, with a token and with OAuth, and gets its own exception for
// what is not.
func TestWorkspaceSDK(t *testing.T) {
	s := serve(t)
	const table = "main.sdk.events"
	dir := s.createTable(table, []string{"id BIGINT NOT NULL", "price DECIMAL(10,2)", "at TIMESTAMP", "tags MAP<STRING,ARRAY<INT>>"}, nil, nil)
	for _, auth := range []string{"token", "oauth"} {
		t.Run(auth, func(t *testing.T) {
			args := arguments{"url": s.HTTP, "token": s.Token, "client_id": s.ClientID, "client_secret": s.ClientSecret, "auth": auth, "table": table}
			w := startWorker(t, python(t), append([]string{source(t, "python", "workspace.py")}, args.words()...)...)
			var got struct {
				User, Catalog, Schema, Location string
				Catalogs, Schemas, Tables       []string
				Columns                         [][]any
				TableType                       string `json:"table_type"`
				Format                          string
				MissingTable                    string `json:"missing_table"`
				MissingSchema                   string `json:"missing_schema"`
				MissingCatalog                  string `json:"missing_catalog"`
			}
			line := last(w.wait(time.Minute))
			if err := json.Unmarshal(line, &got); err != nil {
				t.Fatalf("%q: %v\n%s", line, err, w.errs.Bytes())
			}
			t.Logf("%s", line)
			if got.User == "" {
				t.Error("current_user.me has no user_name")
			}
			if got.Catalog != "main" || !slices.Contains(got.Catalogs, "main") {
				t.Errorf("catalogs: %s, %v", got.Catalog, got.Catalogs)
			}
			if made := "main.made_by_" + auth; got.Schema != made || !slices.Contains(got.Schemas, made) || !slices.Contains(got.Schemas, "main.sdk") {
				t.Errorf("schemas: %s, %v", got.Schema, got.Schemas)
			}
			if !slices.Equal(got.Tables, []string{table}) {
				t.Errorf("tables: %v", got.Tables)
			}
			columns := fmt.Sprint(got.Columns)
			if want := "[[id bigint false] [price decimal(10,2) true] [at timestamp true] [tags map<string,array<int>> true]]"; columns != want {
				t.Errorf("columns: %s, want %s", columns, want)
			}
			if got.TableType != "MANAGED" || got.Format != "DELTA" {
				t.Errorf("table: %s, %s", got.TableType, got.Format)
			}
			if u, err := url.Parse(got.Location); err != nil || strings.TrimSuffix(u.Path, "/") != strings.TrimSuffix(dir, "/") {
				t.Errorf("storage_location is %s, the table is in %s", got.Location, dir)
			}
			for name, text := range map[string]string{"main.sdk.nowhere": got.MissingTable, "main.nowhere": got.MissingSchema, "nowhere": got.MissingCatalog} {
				if !strings.Contains(text, "'"+name+"' does not exist") {
					t.Errorf("missing %s: %s", name, text)
				}
			}
		})
	}
}
