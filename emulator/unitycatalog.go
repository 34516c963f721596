package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/internal/catalog"
)

// metastoreID is the one metastore's.
const metastoreID = "00000000-0000-4000-8000-000000000001"

const owner = "developer@deltabus.local"

// unityCatalog is /api/2.1/unity-catalog (workspace-api.md 2.1): catalogs, schemas and tables, as far as making and finding tables
// needs them.
func (e *Emulator) unityCatalog(w http.ResponseWriter, r *http.Request, path string) {
	kind, name, sub := path, "", ""
	if k, rest, ok := strings.Cut(path, "/"); ok {
		kind = k
		name, sub, _ = strings.Cut(rest, "/")
		if n, err := url.PathUnescape(name); err == nil {
			name = n
		}
	}
	call := r.Method
	if name == "" && r.Method == http.MethodGet {
		call = "LIST"
	}
	if sub == "exists" && kind == "tables" && r.Method == http.MethodGet {
		call = "EXISTS"
	} else if sub != "" {
		call = ""
	}
	type route struct {
		kind, call string
	}
	routes := map[route]func(http.ResponseWriter, *http.Request, string){
		{"catalogs", "LIST"}: e.listCatalogs, {"catalogs", "POST"}: e.postCatalog, {"catalogs", "GET"}: e.getCatalog, {"catalogs", "DELETE"}: e.deleteCatalog,
		{"schemas", "LIST"}: e.listSchemas, {"schemas", "POST"}: e.postSchema, {"schemas", "GET"}: e.getSchema, {"schemas", "DELETE"}: e.deleteSchema,
		{"tables", "LIST"}: e.listTables, {"tables", "POST"}: e.postTable, {"tables", "GET"}: e.getTable, {"tables", "DELETE"}: e.deleteTable,
		{"tables", "EXISTS"}: e.tableExists,
	}
	if f := routes[route{kind, call}]; f != nil && (name == "") == (call == "LIST" || call == "POST") {
		f(w, r, name)
		return
	}
	writeError(w, http.StatusNotImplemented, "NOT_IMPLEMENTED", fmt.Sprintf("Unity Catalog %s %s is not implemented by deltabus-local yet", r.Method, path))
}

type ucCatalog struct {
	Name        string `json:"name"`
	Comment     string `json:"comment,omitempty"`
	Owner       string `json:"owner"`
	CatalogType string `json:"catalog_type"`
	MetastoreID string `json:"metastore_id"`
	CreatedAt   int64  `json:"created_at"`
	FullName    string `json:"full_name"`
}

func toCatalog(c catalog.Schema) ucCatalog {
	return ucCatalog{c.Name, c.Comment, owner, "MANAGED_CATALOG", metastoreID, c.Created.UnixMilli(), c.Name}
}

type ucSchema struct {
	Name        string `json:"name"`
	CatalogName string `json:"catalog_name"`
	FullName    string `json:"full_name"`
	Comment     string `json:"comment,omitempty"`
	Owner       string `json:"owner"`
	MetastoreID string `json:"metastore_id"`
	CreatedAt   int64  `json:"created_at"`
}

func toSchema(s catalog.Schema) ucSchema {
	return ucSchema{s.Name, s.Catalog, s.Catalog + "." + s.Name, s.Comment, owner, metastoreID, s.Created.UnixMilli()}
}

// page cuts a list by max_results and page_token; an empty list leaves its key out, as the real API does.
func page[T any](w http.ResponseWriter, r *http.Request, key string, all []T) {
	number := func(param string) (int, bool) {
		text := r.URL.Query().Get(param)
		n, err := strconv.Atoi(text)
		if text != "" && (err != nil || n < 0) {
			writeError(w, http.StatusBadRequest, "INVALID_PARAMETER_VALUE", fmt.Sprintf("%s %q is not valid", param, text))
			return 0, false
		}
		return n, true
	}
	start, ok := number("page_token")
	if !ok {
		return
	}
	size, ok := number("max_results")
	if !ok {
		return
	}
	start, end := min(start, len(all)), len(all)
	if size > 0 {
		end = min(end, start+size)
	}
	out := map[string]any{}
	if end > start {
		out[key] = all[start:end]
	}
	if end < len(all) {
		out["next_page_token"] = strconv.Itoa(end)
	}
	writeAnswer(w, http.StatusOK, out)
}

// parents answers with an error unless the catalog, and the schema if one is named, is there.
func (e *Emulator) parents(w http.ResponseWriter, r *http.Request, catalogName, schema string) bool {
	if _, err := e.workspace.catalog.Catalog(r.Context(), catalogName); err != nil {
		writeCatalogError(w, "CATALOG", catalogName, err)
		return false
	}
	if schema == "" {
		return true
	}
	if _, err := e.workspace.catalog.Schema(r.Context(), catalogName, schema); err != nil {
		writeCatalogError(w, "SCHEMA", catalogName+"."+schema, err)
		return false
	}
	return true
}

func (e *Emulator) listCatalogs(w http.ResponseWriter, r *http.Request, _ string) {
	all, err := e.workspace.catalog.Catalogs(r.Context())
	if err != nil {
		writeCatalogError(w, "CATALOG", "", err)
		return
	}
	out := make([]ucCatalog, len(all))
	for i, c := range all {
		out[i] = toCatalog(c)
	}
	page(w, r, "catalogs", out)
}

func (e *Emulator) postCatalog(w http.ResponseWriter, r *http.Request, _ string) {
	var body struct{ Name, Comment string }
	if !readBody(w, r, &body) {
		return
	}
	if err := e.workspace.catalog.CreateCatalog(r.Context(), body.Name, body.Comment); err != nil {
		writeCatalogError(w, "CATALOG", body.Name, err)
		return
	}
	e.getCatalog(w, r, body.Name)
}

func (e *Emulator) getCatalog(w http.ResponseWriter, r *http.Request, name string) {
	c, err := e.workspace.catalog.Catalog(r.Context(), name)
	if err != nil {
		writeCatalogError(w, "CATALOG", name, err)
		return
	}
	writeAnswer(w, http.StatusOK, toCatalog(c))
}

func (e *Emulator) deleteCatalog(w http.ResponseWriter, r *http.Request, name string) {
	if !refuseForce(w, r) {
		e.deleted(w, "CATALOG", name, e.workspace.catalog.DeleteCatalog(r.Context(), name))
	}
}

// refuseForce refuses to delete what is not empty: force is not there yet.
func refuseForce(w http.ResponseWriter, r *http.Request) bool {
	if f := r.URL.Query().Get("force"); f == "" || f == "false" {
		return false
	}
	writeError(w, http.StatusNotImplemented, "NOT_IMPLEMENTED", "force is not implemented by deltabus-local yet: delete what is in it first")
	return true
}

func (e *Emulator) deleted(w http.ResponseWriter, kind, name string, err error) {
	if err != nil {
		writeCatalogError(w, kind, name, err)
		return
	}
	writeAnswer(w, http.StatusOK, struct{}{})
}

func (e *Emulator) listSchemas(w http.ResponseWriter, r *http.Request, _ string) {
	name := r.URL.Query().Get("catalog_name")
	if !e.parents(w, r, name, "") {
		return
	}
	all, err := e.workspace.catalog.Schemas(r.Context(), name)
	if err != nil {
		writeCatalogError(w, "SCHEMA", "", err)
		return
	}
	out := make([]ucSchema, len(all))
	for i, s := range all {
		out[i] = toSchema(s)
	}
	page(w, r, "schemas", out)
}

func (e *Emulator) postSchema(w http.ResponseWriter, r *http.Request, _ string) {
	var body struct {
		Name, Comment string
		CatalogName   string `json:"catalog_name"`
	}
	if !readBody(w, r, &body) {
		return
	}
	if !e.parents(w, r, body.CatalogName, "") {
		return
	}
	name := body.CatalogName + "." + body.Name
	if err := e.workspace.CreateSchema(r.Context(), name, body.Comment); err != nil {
		writeCatalogError(w, "SCHEMA", name, err)
		return
	}
	e.getSchema(w, r, name)
}

func (e *Emulator) getSchema(w http.ResponseWriter, r *http.Request, name string) {
	n, err := catalog.ParseName(name, 2)
	if err != nil {
		writeCatalogError(w, "SCHEMA", name, err)
		return
	}
	s, err := e.workspace.catalog.Schema(r.Context(), n[0], n[1])
	if err != nil {
		writeCatalogError(w, "SCHEMA", name, err)
		return
	}
	writeAnswer(w, http.StatusOK, toSchema(s))
}

func (e *Emulator) deleteSchema(w http.ResponseWriter, r *http.Request, name string) {
	if refuseForce(w, r) {
		return
	}
	n, err := catalog.ParseName(name, 2)
	if err == nil {
		err = e.workspace.catalog.DeleteSchema(r.Context(), n[0], n[1])
	}
	e.deleted(w, "SCHEMA", name, err)
}

type ucColumn struct {
	Name           string `json:"name"`
	TypeText       string `json:"type_text"`
	TypeName       string `json:"type_name"`
	TypeJSON       string `json:"type_json"`
	Position       int    `json:"position"`
	Nullable       *bool  `json:"nullable"`
	Comment        string `json:"comment,omitempty"`
	PartitionIndex *int   `json:"partition_index,omitempty"`
	TypePrecision  *int   `json:"type_precision,omitempty"`
	TypeScale      *int   `json:"type_scale,omitempty"`
}

type ucTable struct {
	Name             string            `json:"name"`
	CatalogName      string            `json:"catalog_name"`
	SchemaName       string            `json:"schema_name"`
	FullName         string            `json:"full_name"`
	TableID          string            `json:"table_id"`
	TableType        string            `json:"table_type"`
	DataSourceFormat string            `json:"data_source_format"`
	Columns          []ucColumn        `json:"columns"`
	StorageLocation  string            `json:"storage_location"`
	Properties       map[string]string `json:"properties"`
	Comment          string            `json:"comment,omitempty"`
	Owner            string            `json:"owner"`
	MetastoreID      string            `json:"metastore_id"`
	CreatedAt        int64             `json:"created_at"`
	UpdatedAt        int64             `json:"updated_at"`
	CreatedBy        string            `json:"created_by"`
	UpdatedBy        string            `json:"updated_by"`
}

// typeNames are the type_name of types whose SQL name is another.
var typeNames = map[deltalog.Primitive]string{
	deltalog.Long: "LONG", deltalog.Integer: "INT", deltalog.Short: "SHORT", deltalog.Byte: "BYTE", deltalog.Void: "NULL",
}

func toColumn(f deltalog.Field, i int, partitions []string) ucColumn {
	nullable := f.Nullable
	c := ucColumn{
		Name: f.Name, TypeText: f.Type.SQL(), TypeJSON: string(deltalog.FieldJSON(f)), Position: i, Nullable: &nullable,
	}
	switch t := f.Type.(type) {
	case deltalog.Primitive:
		c.TypeName = strings.ToUpper(string(t))
		if n, ok := typeNames[t]; ok {
			c.TypeName = n
		}
	case deltalog.Decimal:
		c.TypeName, c.TypePrecision, c.TypeScale = "DECIMAL", &t.Precision, &t.Scale
	case deltalog.Array:
		c.TypeName = "ARRAY"
	case deltalog.Map:
		c.TypeName = "MAP"
	case deltalog.Struct:
		c.TypeName = "STRUCT"
	}
	var comment string
	if json.Unmarshal(f.Metadata["comment"], &comment) == nil {
		c.Comment = comment
	}
	for k, p := range partitions {
		if p == f.Name {
			c.PartitionIndex = &k
		}
	}
	return c
}

// ucEntry is the JSON of what the catalog alone knows of a table.
func ucEntry(info TableInfo) ucTable {
	parts := strings.Split(info.FullName, ".")
	return ucTable{
		Name: parts[2], CatalogName: parts[0], SchemaName: parts[1], FullName: info.FullName, TableID: info.ID,
		TableType: info.Type, DataSourceFormat: "DELTA", StorageLocation: info.Location, Comment: info.Comment,
		Owner: owner, MetastoreID: metastoreID, CreatedBy: owner, UpdatedBy: owner,
		CreatedAt: info.Created.UnixMilli(), UpdatedAt: info.Created.UnixMilli(), Columns: []ucColumn{},
	}
}

// describe is the JSON of a table: the catalog's entry, and the columns and properties of its Delta log.
func (e *Emulator) describe(r *http.Request, name string) (ucTable, error) {
	info, err := e.workspace.Info(r.Context(), name)
	if err != nil {
		return ucTable{}, err
	}
	t, err := e.workspace.Table(r.Context(), name)
	if err != nil {
		return ucTable{}, err
	}
	snap, err := t.Snapshot(r.Context())
	if err != nil {
		return ucTable{}, err
	}
	out := ucEntry(info)
	out.Properties, out.UpdatedAt = snap.Metadata().Configuration, snap.Timestamp().UnixMilli()
	for i, f := range snap.Schema().Fields {
		out.Columns = append(out.Columns, toColumn(f, i, snap.Metadata().PartitionColumns))
	}
	return out, nil
}

func (e *Emulator) getTable(w http.ResponseWriter, r *http.Request, name string) {
	t, err := e.describe(r, name)
	if err != nil {
		writeCatalogError(w, "TABLE", name, err)
		return
	}
	writeAnswer(w, http.StatusOK, t)
}

func (e *Emulator) tableExists(w http.ResponseWriter, r *http.Request, name string) {
	_, err := e.workspace.Info(r.Context(), name)
	if err != nil && !errors.Is(err, deltalog.ErrNotTable) {
		writeCatalogError(w, "TABLE", name, err)
		return
	}
	writeAnswer(w, http.StatusOK, map[string]bool{"table_exists": err == nil})
}

func (e *Emulator) listTables(w http.ResponseWriter, r *http.Request, _ string) {
	q := r.URL.Query()
	// Leniency: no catalog_name is all tables.
	if c := q.Get("catalog_name"); c != "" && !e.parents(w, r, c, q.Get("schema_name")) {
		return
	}
	all, err := e.workspace.List(r.Context(), q.Get("catalog_name"), q.Get("schema_name"))
	if err != nil {
		writeCatalogError(w, "TABLE", "", err)
		return
	}
	out := make([]ucTable, 0, len(all))
	for _, info := range all {
		t, err := e.describe(r, info.FullName)
		if errors.Is(err, deltalog.ErrNotTable) {
			continue // dropped meanwhile
		}
		if err != nil { // a table that cannot be read is in the list all the same, and no reason to hide the others
			e.cfg.logger.Warn("list tables", "table", info.FullName, "error", err)
			t = ucEntry(info)
		}
		if q.Get("omit_columns") == "true" {
			t.Columns = nil
		}
		out = append(out, t)
	}
	page(w, r, "tables", out)
}

func (e *Emulator) postTable(w http.ResponseWriter, r *http.Request, _ string) {
	var body ucTable
	if !readBody(w, r, &body) {
		return
	}
	name := body.CatalogName + "." + body.SchemaName + "." + body.Name
	refuse := func(format string, args ...any) {
		writeError(w, http.StatusBadRequest, "INVALID_PARAMETER_VALUE", fmt.Sprintf(format, args...))
	}
	switch {
	case body.TableType == external && body.StorageLocation == "":
		refuse("an EXTERNAL table needs a storage_location")
		return
	case body.TableType == external:
	case body.TableType == managed && body.StorageLocation != "":
		refuse("a MANAGED table has its own storage_location: leave it out, or use EXTERNAL")
		return
	case body.TableType == managed:
	default:
		refuse("table_type %q is not supported: use MANAGED or EXTERNAL", body.TableType)
		return
	}
	if f := body.DataSourceFormat; f != "DELTA" {
		refuse("data_source_format %q is not supported: use DELTA", f)
		return
	}
	spec, err := toSpec(body)
	if err != nil {
		refuse("%v", err)
		return
	}
	if _, err := catalog.ParseName(name, 3); err != nil {
		writeCatalogError(w, "TABLE", name, err)
		return
	}
	if !e.parents(w, r, body.CatalogName, body.SchemaName) {
		return
	}
	if _, err := e.workspace.create(r.Context(), name, body.StorageLocation, spec); err != nil {
		writeCatalogError(w, "TABLE", name, err)
		return
	}
	e.getTable(w, r, name)
}

func toSpec(body ucTable) (deltalog.TableSpec, error) {
	spec := deltalog.TableSpec{Name: body.Name, Description: body.Comment, Configuration: body.Properties}
	columns := append([]ucColumn(nil), body.Columns...)
	sort.SliceStable(columns, func(i, j int) bool { return columns[i].Position < columns[j].Position })
	partitions := map[int]string{}
	for _, c := range columns {
		f, err := toField(c)
		if err != nil {
			return spec, fmt.Errorf("column %s: %w", c.Name, err)
		}
		spec.Schema.Fields = append(spec.Schema.Fields, f)
		if c.PartitionIndex != nil {
			partitions[*c.PartitionIndex] = c.Name
		}
	}
	for i := range len(partitions) {
		p, ok := partitions[i]
		if !ok {
			return spec, errors.New("partition_index values must be 0, 1, 2, …")
		}
		spec.PartitionColumns = append(spec.PartitionColumns, p)
	}
	return spec, nil
}

// toField reads a column by its type_json, a whole field or a bare type, or else by its type_text.
func toField(c ucColumn) (deltalog.Field, error) {
	f := deltalog.Field{Name: c.Name, Nullable: c.Nullable == nil || *c.Nullable}
	if c.Comment != "" {
		text, err := json.Marshal(c.Comment)
		if err != nil {
			return f, err
		}
		f.Metadata = map[string]json.RawMessage{"comment": text}
	}
	if c.TypeJSON != "" {
		one := fmt.Sprintf(`{"type":"struct","fields":[{"name":"x","type":%s,"nullable":true,"metadata":{}}]}`, c.TypeJSON)
		var wrapped struct {
			Name *string         `json:"name"`
			Type json.RawMessage `json:"type"`
		}
		if json.Unmarshal([]byte(c.TypeJSON), &wrapped) == nil && wrapped.Name != nil {
			one = fmt.Sprintf(`{"type":"struct","fields":[%s]}`, c.TypeJSON)
		}
		s, err := deltalog.ParseSchema([]byte(one))
		if err != nil {
			return f, err
		}
		f.Type = s.Fields[0].Type
		metadata := s.Fields[0].Metadata // has the lengths of VARCHAR and CHAR
		if metadata == nil {
			metadata = f.Metadata
		}
		maps.Copy(metadata, f.Metadata)
		f.Metadata = metadata
		return f, nil
	}
	text := c.TypeText
	if text == "" {
		if text = c.TypeName; text == "DECIMAL" && c.TypePrecision != nil && c.TypeScale != nil {
			text = fmt.Sprintf("DECIMAL(%d,%d)", *c.TypePrecision, *c.TypeScale)
		}
		for sql, name := range typeNames {
			if name == text {
				text = sql.SQL()
			}
		}
	}
	if text == "" {
		return f, errors.New("its type is missing: give type_json or type_text")
	}
	return f, f.SetType(text)
}

func (e *Emulator) deleteTable(w http.ResponseWriter, r *http.Request, name string) {
	e.deleted(w, "TABLE", name, e.workspace.DropTable(r.Context(), name))
}
