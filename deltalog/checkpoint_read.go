package deltalog

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/parquet-go/parquet-go"
)

// checkpointGroup is the columns of a row group that matter, by row.
type checkpointGroup struct {
	n      int
	leaves map[string]*leafColumn // none for what is null in every row
	add    addColumns
	maps   map[string]map[string]*string // partition values that were seen, by what they say
	key    []byte                        // of maps, in the making
	spare  []Add                         // allocated, many at once
}

// addsAtOnce is how many adds, or entries of them, are allocated at once. One that is needed keeps all of them in memory.
const addsAtOnce = 32

// addColumns are those of an add, which most rows are.
type addColumns struct {
	path, size, modified, stats, rowID, commitVersion, clustering *leafColumn
	partitions, tags                                              pairColumns
	vectors                                                       bool // some file has a deletion vector
}

// pairColumns are those of a map.
type pairColumns struct{ keys, values *leafColumn }

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

// readCheckpointGroup reads the columns that matter, several at once.
func readCheckpointGroup(pf *parquet.File, group parquet.RowGroup) (*checkpointGroup, error) {
	g := &checkpointGroup{n: int(group.NumRows()), leaves: map[string]*leafColumn{}, maps: map[string]map[string]*string{}}
	columns, errs := make([]*leafColumn, len(checkpointLeaves)), make([]error, len(checkpointLeaves))
	var next atomic.Int64
	var readers sync.WaitGroup
	for range min(maxColumnReaders, runtime.GOMAXPROCS(0)) {
		readers.Go(func() {
			buf := make([]parquet.Value, leafBatch)
			for i := next.Add(1) - 1; i < int64(len(columns)); i = next.Add(1) - 1 {
				columns[i], errs[i] = readCheckpointLeaf(pf, group, checkpointLeaves[i], buf)
			}
		})
	}
	readers.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, c := range columns {
		if !c.empty() {
			g.leaves[joinPath(checkpointLeaves[i])] = c
		}
	}
	g.add = addColumns{
		path: g.leaves["add/path"], size: g.leaves["add/size"], modified: g.leaves["add/modificationTime"], stats: g.leaves["add/stats"],
		rowID: g.leaves["add/baseRowId"], commitVersion: g.leaves["add/defaultRowCommitVersion"], clustering: g.leaves["add/clusteringProvider"],
		partitions: g.pairColumns("add/partitionValues"), tags: g.pairColumns("add/tags"), vectors: g.leaves["add/deletionVector/storageType"].any(),
	}
	return g, nil
}

// maxColumnReaders bounds how many columns are read at once.
const maxColumnReaders = 8

// readCheckpointLeaf reads one column; nil if the file has none of that name.
func readCheckpointLeaf(pf *parquet.File, group parquet.RowGroup, path []string, buf []parquet.Value) (c *leafColumn, err error) {
	defer func() {
		if r := recover(); r != nil { // parquet-go panics on some damage
			c, err = nil, fmt.Errorf("column %s: %v", joinPath(path), r)
		}
	}()
	leaf, ok := findLeaf(pf.Root(), path...)
	if !ok {
		return nil, nil
	}
	kind := pf.Root().Columns()[child(pf.Root(), path[0])]
	from := kind.Columns()[child(kind, path[1])].MaxDefinitionLevel()
	if slices.Contains(path, "key_value") {
		from++ // that of an entry: a map without any says the same as none
	}
	return readLeaf(group, leaf, from, buf)
}

func (g *checkpointGroup) pairColumns(leaf string) pairColumns {
	return pairColumns{g.leaves[leaf+"/key"], g.leaves[leaf+"/value"]}
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

func (g *checkpointGroup) text(i int, leaf string) string { return g.leaves[leaf].text(i) }

func (g *checkpointGroup) number(i int, leaf string) (int64, bool) { return g.leaves[leaf].number(i) }

func (g *checkpointGroup) pointer(i int, leaf string) *int64 { return g.leaves[leaf].pointer(i) }

func (g *checkpointGroup) list(i int, leaf string) []string { return g.leaves[leaf].list(i) }

// pairs is a map column; null values stay nil.
func (p pairColumns) pairs(i int) map[string]*string {
	from, to := p.keys.span(i)
	valuesFrom, valuesTo := p.values.span(i)
	out := make(map[string]*string, to-from)
	for k := from; k < to; k++ {
		if !p.keys.there[k] {
			continue
		}
		out[p.keys.texts[k]] = nil
		if v := valuesFrom + k - from; v < valuesTo && p.values.there[v] {
			text := p.values.texts[v] // not the place in texts, which would keep all of them
			out[p.keys.texts[k]] = &text
		}
	}
	return out
}

// shared is pairs, where rows with the same pairs have the same map: partitions have many files. Nobody changes it.
func (g *checkpointGroup) shared(p pairColumns, i int) map[string]*string {
	g.key = g.key[:0]
	for _, c := range []*leafColumn{p.keys, p.values} {
		from, to := c.span(i)
		for k := from; k < to; k++ {
			if c.there[k] {
				g.key = strconv.AppendQuote(g.key, c.texts[k])
			}
			g.key = append(g.key, ',')
		}
		g.key = append(g.key, ':')
	}
	if m, ok := g.maps[string(g.key)]; ok {
		return m
	}
	m := p.pairs(i)
	g.maps[string(g.key)] = m
	return m
}

// properties is a map column without null values; nil if it is empty.
func (p pairColumns) properties(i int) map[string]string {
	if p.keys.empty() {
		return nil
	}
	var out map[string]string
	for k, v := range p.pairs(i) {
		if v != nil {
			if out == nil {
				out = map[string]string{}
			}
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
	if path := g.add.path.text(i); path != "" {
		size, _ := g.add.size.number(i)
		modified, _ := g.add.modified.number(i)
		if len(g.spare) == 0 {
			g.spare = make([]Add, addsAtOnce)
		}
		add := &g.spare[0]
		g.spare = g.spare[1:]
		*add = Add{
			Path: path, PartitionValues: g.shared(g.add.partitions, i), Size: size, ModificationTime: modified,
			Stats: g.add.stats.text(i), Tags: g.add.tags.properties(i),
			BaseRowID: g.add.rowID.pointer(i), DefaultRowCommitVersion: g.add.commitVersion.pointer(i), ClusteringProvider: g.add.clustering.text(i),
		}
		if g.add.vectors {
			add.DeletionVector = g.vector(i, "add/deletionVector")
		}
		return Action{Add: add}, true
	}
	if path := g.text(i, "remove/path"); path != "" {
		change, _ := g.number(i, "remove/dataChange")
		return Action{Remove: &Remove{
			Path: path, DeletionTimestamp: g.pointer(i, "remove/deletionTimestamp"), DataChange: change == 1,
			ExtendedFileMetadata: true, PartitionValues: g.pairColumns("remove/partitionValues").pairs(i), Size: g.pointer(i, "remove/size"),
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
		configuration := g.pairColumns("metaData/configuration").properties(i)
		if configuration == nil {
			configuration = map[string]string{}
		}
		return Action{Metadata: &Metadata{
			ID: g.text(i, "metaData/id"), Name: g.text(i, "metaData/name"), Description: g.text(i, "metaData/description"),
			Format:       Format{Provider: g.text(i, "metaData/format/provider"), Options: map[string]string{}},
			SchemaString: schema, PartitionColumns: columns, Configuration: configuration,
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
