package deltalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// The rows of a classic checkpoint: one action each, every column a nullable struct (delta.md 2.7). Structs that are not
// there are null, never empty: readers take an empty deletionVector for a vector.
type checkpointRow struct {
	Txn            *checkpointTxn      `parquet:"txn,optional"`
	Add            *checkpointAdd      `parquet:"add,optional"`
	Remove         *checkpointRemove   `parquet:"remove,optional"`
	Metadata       *checkpointMetadata `parquet:"metaData,optional"`
	Protocol       *checkpointProtocol `parquet:"protocol,optional"`
	DomainMetadata *checkpointDomain   `parquet:"domainMetadata,optional"`
}

type checkpointTxn struct {
	AppID       string `parquet:"appId"`
	Version     int64  `parquet:"version"`
	LastUpdated *int64 `parquet:"lastUpdated,optional"`
}

type checkpointVector struct {
	StorageType    string `parquet:"storageType"`
	PathOrInlineDV string `parquet:"pathOrInlineDv"`
	Offset         *int32 `parquet:"offset,optional"`
	SizeInBytes    int32  `parquet:"sizeInBytes"`
	Cardinality    int64  `parquet:"cardinality"`
}

type checkpointAdd struct {
	Path                    string             `parquet:"path"`
	PartitionValues         map[string]*string `parquet:"partitionValues" parquet-value:",optional"`
	Size                    int64              `parquet:"size"`
	ModificationTime        int64              `parquet:"modificationTime"`
	DataChange              bool               `parquet:"dataChange"`
	Tags                    map[string]string  `parquet:"tags,optional"`
	Stats                   *string            `parquet:"stats,optional"`
	DeletionVector          *checkpointVector  `parquet:"deletionVector,optional"`
	BaseRowID               *int64             `parquet:"baseRowId,optional"`
	DefaultRowCommitVersion *int64             `parquet:"defaultRowCommitVersion,optional"`
	ClusteringProvider      *string            `parquet:"clusteringProvider,optional"`
}

type checkpointRemove struct {
	Path                    string             `parquet:"path"`
	DeletionTimestamp       *int64             `parquet:"deletionTimestamp,optional"`
	DataChange              bool               `parquet:"dataChange"`
	ExtendedFileMetadata    *bool              `parquet:"extendedFileMetadata,optional"`
	PartitionValues         map[string]*string `parquet:"partitionValues,optional" parquet-value:",optional"`
	Size                    *int64             `parquet:"size,optional"`
	DeletionVector          *checkpointVector  `parquet:"deletionVector,optional"`
	BaseRowID               *int64             `parquet:"baseRowId,optional"`
	DefaultRowCommitVersion *int64             `parquet:"defaultRowCommitVersion,optional"`
}

type checkpointFormat struct {
	Provider string            `parquet:"provider"`
	Options  map[string]string `parquet:"options"`
}

type checkpointMetadata struct {
	ID               string            `parquet:"id"`
	Name             *string           `parquet:"name,optional"`
	Description      *string           `parquet:"description,optional"`
	Format           checkpointFormat  `parquet:"format"`
	SchemaString     string            `parquet:"schemaString"`
	PartitionColumns []string          `parquet:"partitionColumns,list"`
	Configuration    map[string]string `parquet:"configuration"`
	CreatedTime      *int64            `parquet:"createdTime,optional"`
}

type checkpointProtocol struct {
	MinReaderVersion int32    `parquet:"minReaderVersion"`
	MinWriterVersion int32    `parquet:"minWriterVersion"`
	ReaderFeatures   []string `parquet:"readerFeatures,optional,list"`
	WriterFeatures   []string `parquet:"writerFeatures,optional,list"`
}

type checkpointDomain struct {
	Domain        string `parquet:"domain"`
	Configuration string `parquet:"configuration"`
	Removed       bool   `parquet:"removed"`
}

// Checkpoint writes a classic checkpoint of s and _last_checkpoint.
func (t *Table) Checkpoint(ctx context.Context, s *Snapshot) error {
	if err := t.checkpoint(ctx, s); err != nil {
		return fmt.Errorf("checkpoint %s at version %d: %w", t.st.URL(""), s.version, err)
	}
	return nil
}

// checkpointBatch is how many rows are in hand at once.
const checkpointBatch = 1024

func (t *Table) checkpoint(ctx context.Context, s *Snapshot) error {
	var buf bytes.Buffer
	w := parquet.NewGenericWriter[checkpointRow](&buf, parquet.Compression(&parquet.Snappy), parquet.DataPageVersion(1),
		parquet.CreatedBy("deltabus-local", "", ""))
	var size, adds int64
	rows := make([]checkpointRow, 0, checkpointBatch)
	flush := func() error {
		n := len(rows)
		if _, err := w.Write(rows); err != nil {
			return err
		}
		clear(rows)
		rows = rows[:0]
		size += int64(n)
		return ctx.Err()
	}
	put := func(r checkpointRow) error {
		rows = append(rows, r)
		if len(rows) < checkpointBatch {
			return nil
		}
		return flush()
	}
	for _, r := range s.headRows(t.opts.Clock()) {
		if err := put(r); err != nil {
			return err
		}
	}
	for add := range s.Files() {
		if err := put(checkpointRow{Add: toCheckpointAdd(add)}); err != nil {
			return err
		}
		adds++
	}
	// Closed only after every row went in without an error: a file that is closed early looks whole.
	if err := errors.Join(flush(), w.Close()); err != nil {
		return err
	}
	if err := t.sameLog(ctx); err != nil { // a checkpoint in another table's log would be that table's content
		return err
	}
	if err := t.put(ctx, checkpointName(s.version), buf.Bytes(), store.PutOptions{NoDirs: true}); err != nil {
		return err
	}
	return t.writeLastCheckpoint(ctx, lastCheckpoint{Version: s.version, Size: size, SizeInBytes: int64(buf.Len()), NumOfAddFiles: adds})
}

// headRows are all rows but the adds: protocol, metadata, txns, domains, and removes that are younger than the retention.
func (s *Snapshot) headRows(now time.Time) []checkpointRow {
	p, m := s.protocol, s.metadata
	rows := []checkpointRow{
		{Protocol: &checkpointProtocol{int32(p.MinReaderVersion), int32(p.MinWriterVersion), p.ReaderFeatures, p.WriterFeatures}},
		{Metadata: &checkpointMetadata{
			ID: m.ID, Name: optional(m.Name), Description: optional(m.Description),
			Format: checkpointFormat{m.Format.Provider, m.Format.Options}, SchemaString: m.SchemaString,
			PartitionColumns: m.PartitionColumns, Configuration: m.Configuration, CreatedTime: m.CreatedTime,
		}},
	}
	s.set.mu.Lock() // expired tombstones are dropped on the way
	defer s.set.mu.Unlock()
	txnCutoff := int64(-1)
	if d := m.interval(propTxnRetention, 0); d > 0 {
		txnCutoff = now.Add(-d).UnixMilli()
	}
	for _, n := range s.set.txns {
		for n != nil && n.version > s.version {
			n = n.before
		}
		if n != nil && (n.txn.LastUpdated == nil || *n.txn.LastUpdated >= txnCutoff) {
			rows = append(rows, checkpointRow{Txn: &checkpointTxn{n.txn.AppID, n.txn.Version, n.txn.LastUpdated}})
		}
	}
	for _, d := range s.domains {
		rows = append(rows, checkpointRow{DomainMetadata: &checkpointDomain{d.Domain, d.Configuration, false}})
	}
	s.set.prune(now.Add(-m.interval(propDeletedFileRetention, defaultDeletedFileRetention)).UnixMilli())
	for _, tomb := range s.set.tombstones {
		if tomb.version <= s.version {
			rows = append(rows, checkpointRow{Remove: toCheckpointRemove(tomb.remove)})
		}
	}
	return rows
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func toCheckpointAdd(a *Add) *checkpointAdd {
	return &checkpointAdd{
		Path: a.Path, PartitionValues: a.PartitionValues, Size: a.Size, ModificationTime: a.ModificationTime,
		Tags: a.Tags, Stats: optional(a.Stats), DeletionVector: toCheckpointVector(a.DeletionVector),
		BaseRowID: a.BaseRowID, DefaultRowCommitVersion: a.DefaultRowCommitVersion, ClusteringProvider: optional(a.ClusteringProvider),
	}
}

func toCheckpointRemove(r *Remove) *checkpointRemove {
	out := &checkpointRemove{
		Path: r.Path, DeletionTimestamp: r.DeletionTimestamp, PartitionValues: r.PartitionValues, Size: r.Size,
		DeletionVector: toCheckpointVector(r.DeletionVector), BaseRowID: r.BaseRowID, DefaultRowCommitVersion: r.DefaultRowCommitVersion,
	}
	if r.ExtendedFileMetadata {
		out.ExtendedFileMetadata = &r.ExtendedFileMetadata
	}
	return out
}

func toCheckpointVector(dv *DeletionVector) *checkpointVector {
	if dv == nil {
		return nil
	}
	out := &checkpointVector{StorageType: dv.StorageType, PathOrInlineDV: dv.PathOrInlineDV, SizeInBytes: int32(dv.SizeInBytes), Cardinality: dv.Cardinality}
	if dv.Offset != nil {
		offset := int32(*dv.Offset)
		out.Offset = &offset
	}
	return out
}

// interval is how many commits there are between checkpoints (design.md, decision 8).
func (t *Table) checkpointInterval(s *Snapshot) int64 {
	if t.opts.CheckpointInterval != 0 {
		return t.opts.CheckpointInterval
	}
	var n int64
	if _, err := fmt.Sscan(s.Property(propCheckpointInterval), &n); err == nil && n > 0 {
		return n
	}
	return min(1000, max(100, int64(s.live)/10))
}

// maybeCheckpoint starts a checkpoint beside the commit path when one is due. Its failure fails no commit.
func (t *Table) maybeCheckpoint() {
	s := t.Cached()
	every := t.checkpointInterval(s)
	if every < 0 || s.version-t.lastCheckpoint.Load() < every || !t.checkpointing.CompareAndSwap(false, true) {
		return
	}
	t.backgroundMu.Lock()
	defer t.backgroundMu.Unlock()
	t.background.Go(func() {
		defer t.checkpointing.Store(false)
		t.lastCheckpoint.Store(s.version) // also if it fails: the next try comes an interval later
		ctx := context.Background()
		if err := t.Checkpoint(ctx, s); err != nil {
			t.opts.Logger.Warn("checkpoint failed", "error", err)
			return
		}
		if err := t.cleanLog(ctx, s); err != nil {
			t.opts.Logger.Warn("log cleanup failed", "error", err)
		}
	})
}

// findLeaf finds the leaf column under root by the names of its path; list wrappers below are passed through. What repeats in a map is
// "key_value", "key" and "value" to the format, and "entries" or "keys" to some writers: there the place counts, not the name.
func findLeaf(root *parquet.Column, path ...string) (*parquet.Column, bool) {
	c := root
	for n, name := range path {
		var i int
		switch columns := c.Columns(); {
		case name == "key_value" && len(columns) == 1:
			i = 0
		case n > 0 && path[n-1] == "key_value" && len(columns) == 2:
			i = slices.Index([]string{"key", "value"}, name)
		default:
			i = child(c, name)
		}
		if i < 0 {
			return nil, false
		}
		c = c.Columns()[i]
	}
	for !c.Leaf() && len(c.Columns()) == 1 {
		c = c.Columns()[0]
	}
	return c, c.Leaf()
}

// child is the index of the column of c with this name, or -1.
func child(c *parquet.Column, name string) int {
	return slices.IndexFunc(c.Columns(), func(x *parquet.Column) bool { return strings.EqualFold(x.Name(), name) })
}
