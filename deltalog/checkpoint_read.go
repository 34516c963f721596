package deltalog

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// leafRows reads a leaf column of a row group and parts its values by row. It is nil for a column that is null in every row, as most are in
// a checkpoint, unless the column repeats, where null is not empty.
func leafRows(group parquet.RowGroup, leaf *parquet.Column) ([][]parquet.Value, error) {
	chunk := group.ColumnChunks()[leaf.Index()]
	pages := chunk.Pages()
	values := make([]parquet.Value, 0, chunk.NumValues())
	var buf [1024]parquet.Value
	repeats, filled := leaf.MaxRepetitionLevel() > 0, false
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.Join(err, pages.Close())
		}
		if n := page.NumValues(); !repeats && page.NumNulls() == n {
			values = append(values, make([]parquet.Value, n)...)
			parquet.Release(page)
			continue
		}
		filled = true
		r := page.Values()
		for {
			n, err := r.ReadValues(buf[:])
			for _, v := range buf[:n] {
				values = append(values, v.Clone())
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				parquet.Release(page)
				return nil, errors.Join(err, pages.Close())
			}
		}
		parquet.Release(page)
	}
	if err := pages.Close(); err != nil {
		return nil, err
	}
	if !repeats && !filled && int64(len(values)) == group.NumRows() {
		return nil, nil
	}
	rows := make([][]parquet.Value, 0, group.NumRows())
	start := 0
	for i := 1; i <= len(values); i++ {
		if i == len(values) || values[i].RepetitionLevel() == 0 {
			rows = append(rows, values[start:i])
			start = i
		}
	}
	if int64(len(rows)) != group.NumRows() {
		return nil, fmt.Errorf("column %v has %d rows, the group %d", leaf.Path(), len(rows), group.NumRows())
	}
	return rows, nil
}

// checkpointGroup is the columns of a row group that matter, by row.
type checkpointGroup struct {
	n      int
	leaves map[string]leafColumn
}

type leafColumn struct {
	rows [][]parquet.Value
	max  int // the definition level of a value that is there
	list int // that of a list that is there, if it is a list
}

// checkpointLeaves are the leaf columns read; a map's key and value are "…/key" and "…/value".
var checkpointLeaves = [][]string{
	{"txn", "appId"},
	{"txn", "version"},
	{"txn", "lastUpdated"},
	{"add", "path"},
	{"add", "partitionValues", "key_value", "key"},
	{"add", "partitionValues", "key_value", "value"},
	{"add", "size"},
	{"add", "modificationTime"},
	{"add", "stats"},
	{"add", "tags", "key_value", "key"},
	{"add", "tags", "key_value", "value"},
	{"add", "deletionVector", "storageType"},
	{"add", "deletionVector", "pathOrInlineDv"},
	{"add", "deletionVector", "offset"},
	{"add", "deletionVector", "sizeInBytes"},
	{"add", "deletionVector", "cardinality"},
	{"add", "baseRowId"},
	{"add", "defaultRowCommitVersion"},
	{"add", "clusteringProvider"},
	{"remove", "path"},
	{"remove", "deletionTimestamp"},
	{"remove", "dataChange"},
	{"remove", "size"},
	{"remove", "partitionValues", "key_value", "key"},
	{"remove", "partitionValues", "key_value", "value"},
	{"remove", "deletionVector", "storageType"},
	{"remove", "deletionVector", "pathOrInlineDv"},
	{"remove", "deletionVector", "offset"},
	{"remove", "deletionVector", "sizeInBytes"},
	{"remove", "deletionVector", "cardinality"},
	{"metaData", "id"},
	{"metaData", "name"},
	{"metaData", "description"},
	{"metaData", "format", "provider"},
	{"metaData", "schemaString"},
	{"metaData", "partitionColumns"},
	{"metaData", "createdTime"},
	{"metaData", "configuration", "key_value", "key"},
	{"metaData", "configuration", "key_value", "value"},
	{"protocol", "minReaderVersion"},
	{"protocol", "minWriterVersion"},
	{"protocol", "readerFeatures"},
	{"protocol", "writerFeatures"},
	{"domainMetadata", "domain"},
	{"domainMetadata", "configuration"},
	{"domainMetadata", "removed"},
	{"sidecar", "path"},
	{"checkpointMetadata", "version"},
	{"checkpointMetadata", "tags", "key_value", "key"},
	{"checkpointMetadata", "tags", "key_value", "value"},
}

func readCheckpointGroup(pf *parquet.File, group parquet.RowGroup) (*checkpointGroup, error) {
	g := &checkpointGroup{n: int(group.NumRows()), leaves: map[string]leafColumn{}}
	for _, path := range checkpointLeaves {
		leaf, ok := findLeaf(pf.Root(), path...)
		if !ok {
			continue
		}
		rows, err := leafRows(group, leaf)
		if err != nil {
			return nil, err
		}
		kind := pf.Root().Columns()[child(pf.Root(), path[0])]
		field := kind.Columns()[child(kind, path[1])]
		g.leaves[joinPath(path)] = leafColumn{rows, leaf.MaxDefinitionLevel(), field.MaxDefinitionLevel()}
	}
	return g, nil
}

func joinPath(path []string) string {
	s := path[0]
	for _, p := range path[1:] {
		if p != "key_value" {
			s += "/" + p
		}
	}
	return s
}

// value is the one value of a leaf in row i, if it is there.
func (g *checkpointGroup) value(i int, leaf string) (parquet.Value, bool) {
	c, ok := g.leaves[leaf]
	if !ok || c.rows == nil || len(c.rows[i]) == 0 || c.rows[i][0].IsNull() {
		return parquet.Value{}, false
	}
	return c.rows[i][0], true
}

func (g *checkpointGroup) text(i int, leaf string) string {
	v, ok := g.value(i, leaf)
	if !ok {
		return ""
	}
	return string(v.ByteArray())
}

func (g *checkpointGroup) number(i int, leaf string) (int64, bool) {
	v, ok := g.value(i, leaf)
	if !ok {
		return 0, false
	}
	switch v.Kind() {
	case parquet.Int32:
		return int64(v.Int32()), true
	case parquet.Int64:
		return v.Int64(), true
	case parquet.Boolean:
		if v.Boolean() {
			return 1, true
		}
	}
	return 0, true
}

func (g *checkpointGroup) pointer(i int, leaf string) *int64 {
	n, ok := g.number(i, leaf)
	if !ok {
		return nil
	}
	return &n
}

// list is the elements of a list column; nil if it is null, as opposed to empty.
func (g *checkpointGroup) list(i int, leaf string) []string {
	c, ok := g.leaves[leaf]
	if !ok {
		return nil
	}
	var out []string
	for _, v := range c.rows[i] {
		if out == nil && v.DefinitionLevel() >= c.list {
			out = []string{}
		}
		if v.DefinitionLevel() == c.max {
			out = append(out, string(v.ByteArray()))
		}
	}
	return out
}

// pairs is a map column; null values stay nil.
func (g *checkpointGroup) pairs(i int, leaf string) map[string]*string {
	keys, ok := g.leaves[leaf+"/key"]
	if !ok {
		return nil
	}
	values := g.leaves[leaf+"/value"]
	out := map[string]*string{}
	for k, v := range keys.rows[i] {
		if v.DefinitionLevel() != keys.max {
			continue
		}
		out[string(v.ByteArray())] = nil
		if k < len(values.rows[i]) && values.rows[i][k].DefinitionLevel() == values.max {
			s := string(values.rows[i][k].ByteArray())
			out[string(v.ByteArray())] = &s
		}
	}
	return out
}

func (g *checkpointGroup) properties(i int, leaf string) map[string]string {
	pairs := g.pairs(i, leaf)
	out := make(map[string]string, len(pairs))
	for k, v := range pairs {
		if v != nil {
			out[k] = *v
		}
	}
	return out
}

func (g *checkpointGroup) vector(i int, leaf string) *DeletionVector {
	storage := g.text(i, leaf+"/storageType")
	if storage == "" {
		return nil
	}
	size, _ := g.number(i, leaf+"/sizeInBytes")
	cardinality, _ := g.number(i, leaf+"/cardinality")
	return &DeletionVector{
		StorageType: storage, PathOrInlineDV: g.text(i, leaf+"/pathOrInlineDv"), Offset: g.pointer(i, leaf+"/offset"),
		SizeInBytes: size, Cardinality: cardinality,
	}
}

// action is the action of row i; false for a row of a kind that snapshots do not need.
func (g *checkpointGroup) action(i int) (Action, bool) {
	if path := g.text(i, "add/path"); path != "" {
		size, _ := g.number(i, "add/size")
		modified, _ := g.number(i, "add/modificationTime")
		tags := g.properties(i, "add/tags")
		if len(tags) == 0 {
			tags = nil
		}
		return Action{Add: &Add{
			Path: path, PartitionValues: g.pairs(i, "add/partitionValues"), Size: size, ModificationTime: modified,
			Stats: g.text(i, "add/stats"), Tags: tags, DeletionVector: g.vector(i, "add/deletionVector"),
			BaseRowID: g.pointer(i, "add/baseRowId"), DefaultRowCommitVersion: g.pointer(i, "add/defaultRowCommitVersion"),
			ClusteringProvider: g.text(i, "add/clusteringProvider"),
		}}, true
	}
	if path := g.text(i, "remove/path"); path != "" {
		change, _ := g.number(i, "remove/dataChange")
		return Action{Remove: &Remove{
			Path: path, DeletionTimestamp: g.pointer(i, "remove/deletionTimestamp"), DataChange: change == 1,
			ExtendedFileMetadata: true, PartitionValues: g.pairs(i, "remove/partitionValues"), Size: g.pointer(i, "remove/size"),
			DeletionVector: g.vector(i, "remove/deletionVector"),
		}}, true
	}
	if id := g.text(i, "txn/appId"); id != "" {
		version, _ := g.number(i, "txn/version")
		return Action{Txn: &Txn{AppID: id, Version: version, LastUpdated: g.pointer(i, "txn/lastUpdated")}}, true
	}
	if schema := g.text(i, "metaData/schemaString"); schema != "" {
		columns := g.list(i, "metaData/partitionColumns")
		if columns == nil {
			columns = []string{}
		}
		return Action{Metadata: &Metadata{
			ID: g.text(i, "metaData/id"), Name: g.text(i, "metaData/name"), Description: g.text(i, "metaData/description"),
			Format:       Format{Provider: g.text(i, "metaData/format/provider"), Options: map[string]string{}},
			SchemaString: schema, PartitionColumns: columns, Configuration: g.properties(i, "metaData/configuration"),
			CreatedTime: g.pointer(i, "metaData/createdTime"),
		}}, true
	}
	if reader, ok := g.number(i, "protocol/minReaderVersion"); ok {
		writer, _ := g.number(i, "protocol/minWriterVersion")
		return Action{Protocol: &Protocol{
			MinReaderVersion: int(reader), MinWriterVersion: int(writer),
			ReaderFeatures: g.list(i, "protocol/readerFeatures"), WriterFeatures: g.list(i, "protocol/writerFeatures"),
		}}, true
	}
	if domain := g.text(i, "domainMetadata/domain"); domain != "" {
		removed, _ := g.number(i, "domainMetadata/removed")
		return Action{DomainMetadata: &DomainMetadata{Domain: domain, Configuration: g.text(i, "domainMetadata/configuration"), Removed: removed == 1}}, true
	}
	return Action{}, false
}
