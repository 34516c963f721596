package deltalog

import (
	"iter"
	"slices"
	"strconv"
	"time"
)

// Snapshot is the table at one version. It is immutable and safe for concurrent use. Making the next one from it costs
// what changed, not what is there: all snapshots of a table share one list of files (fileSet).
type Snapshot struct {
	version   int64
	timestamp time.Time
	modified  time.Time // of the commit file
	metadata  *Metadata
	protocol  *Protocol
	schema    Struct
	writable  error // why the table may not be written, or nil
	domains   map[string]*DomainMetadata
	set       *fileSet
	entries   []*entry // the shared list as far as this version
	live      int
	bytes     int64
}

// Version is the snapshot's version.
func (s *Snapshot) Version() int64 { return s.version }

// Timestamp is the commit time of the snapshot's version.
func (s *Snapshot) Timestamp() time.Time { return s.timestamp }

// Metadata is the table's metadata. Not to be modified.
func (s *Snapshot) Metadata() *Metadata { return s.metadata }

// Protocol is the table's protocol. Not to be modified.
func (s *Snapshot) Protocol() *Protocol { return s.protocol }

// Schema is the table's schema. Not to be modified.
func (s *Snapshot) Schema() Struct { return s.schema }

// Property is a table property, or "".
func (s *Snapshot) Property(key string) string { return s.metadata.Configuration[key] }

// ChangeDataFeed reports whether the change data feed is enabled: by the property, and by the protocol.
func (s *Snapshot) ChangeDataFeed() bool { return feedEnabled(s.protocol, s.metadata) }

func feedEnabled(p *Protocol, m *Metadata) bool {
	if !m.flag(propChangeDataFeed, false) {
		return false
	}
	if p.MinWriterVersion == 7 {
		return slices.Contains(p.WriterFeatures, "changeDataFeed")
	}
	return p.MinWriterVersion >= 4
}

// Txn returns the txn of an application.
func (s *Snapshot) Txn(appID string) (Txn, bool) { return s.set.txn(appID, s.version) }

// NumFiles is the number of live files.
func (s *Snapshot) NumFiles() int { return s.live }

// Size is the number of bytes in live files.
func (s *Snapshot) Size() int64 { return s.bytes }

// Files yields the live files, oldest first. Not to be modified.
func (s *Snapshot) Files() iter.Seq[*Add] {
	return func(yield func(*Add) bool) {
		for _, e := range s.entries {
			if e.liveAt(s.version) && !yield(e.add) {
				return
			}
		}
	}
}

// FilesIn yields the live files whose partition values equal those given; columns left out match anything. With a value
// for every partition column it costs what is in that partition, as long as the snapshot is not many changes of that partition old.
func (s *Snapshot) FilesIn(partition map[string]string) iter.Seq[*Add] {
	if len(partition) == 0 {
		return s.Files()
	}
	return func(yield func(*Add) bool) {
		entries, indexed := s.entriesIn(partition)
		partition := s.storedPartition(partition)
		for _, e := range entries {
			if e.added <= s.version && e.liveAt(s.version) && (indexed || inPartition(e.add.PartitionValues, partition)) && !yield(e.add) {
				return
			}
		}
	}
}

// entriesIn is the entries of a partition, or all of them if they are not indexed for this snapshot.
func (s *Snapshot) entriesIn(partition map[string]string) (entries []*entry, indexed bool) {
	whole := true
	key := partitionKey(s.metadata.PartitionColumns, func(c string) *string {
		v, ok := partition[c]
		whole = whole && ok
		return &v
	})
	if whole && len(partition) == len(s.metadata.PartitionColumns) {
		entries, indexed = s.set.in(key, s.version)
	}
	if !indexed {
		return s.entries, false
	}
	return entries, true
}

// inPartition reports whether values match want.
func inPartition(values map[string]*string, want map[string]string) bool {
	for column, v := range want {
		if got := values[column]; got == nil || *got != v {
			return false
		}
	}
	return true
}

// partitionKey joins partition values to one string; different values never give the same one.
func partitionKey(columns []string, value func(string) *string) string {
	var b []byte
	for _, c := range columns {
		if v := value(c); v != nil {
			b = strconv.AppendInt(b, int64(len(*v)), 10)
			b = append(append(b, '='), *v...)
		} else {
			b = append(b, '-')
		}
	}
	return string(b)
}
