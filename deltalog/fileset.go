package deltalog

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// entry is one file and the versions between which it is live.
type entry struct {
	add     *Add
	key     string
	added   int64
	removed atomic.Int64 // one more than the version that removed it; 0: none
}

func (e *entry) live() bool { return e.removed.Load() == 0 }

func (e *entry) liveAt(version int64) bool {
	r := e.removed.Load()
	return r == 0 || r > version+1
}

// tombstone is a remove action that vacuum and checkpoints still need.
type tombstone struct {
	remove  *Remove
	version int64
}

// txnNode is one txn of an application, and the one before it.
type txnNode struct {
	txn     Txn
	version int64
	before  *txnNode
	depth   int
}

// keptTxns bounds how many earlier txns of one application are kept for older snapshots: that many, up to twice as many.
const keptTxns = 256

// partition is the files of one combination of partition values, in the order they came.
type partition struct {
	entries []*entry
	ended   int
	// since is the first version for which entries are complete: what ended before it may have been dropped.
	since int64
}

// keptEnded is how many ended files of a partition are kept before those that ended are dropped.
const keptEnded = 32

// fileSet is what all snapshots of one table share: files in the order they came, with the versions between which each is
// live. A new version appends to it and marks what it removes; older snapshots go on seeing what they saw. Lists are only appended to or
// replaced, so that whoever holds one may go on reading it.
type fileSet struct {
	mu          sync.RWMutex
	entries     []*entry
	spare       []entry           // allocated, several at once
	byKey       map[string]*entry // live ones
	byPartition map[string]*partition
	since       int64 // the first version for which byPartition is complete
	columns     []string
	tombstones  map[string]tombstone
	pruneAt     int // how many tombstones there may be before the expired ones are looked for
	txns        map[string]*txnNode
	live        int
	bytes       int64
}

func newFileSet() *fileSet {
	return &fileSet{
		byKey: map[string]*entry{}, byPartition: map[string]*partition{}, tombstones: map[string]tombstone{},
		pruneAt: 1024, txns: map[string]*txnNode{},
	}
}

// fileKey is the identity of a file: its decoded path and its deletion vector.
func fileKey(path string, dv *DeletionVector) string {
	if strings.IndexByte(path, '%') >= 0 {
		if p, err := url.PathUnescape(path); err == nil {
			path = p
		}
	}
	path = strings.TrimPrefix(path, "./")
	if rest, ok := strings.CutPrefix(path, "file:"); ok { // file:/x and file:///x are one file
		path = "/" + strings.TrimLeft(rest, "/")
	}
	if dv == nil {
		return path
	}
	key := path + "\x00" + dv.StorageType + dv.PathOrInlineDV
	if dv.Offset != nil {
		key += "@" + strconv.FormatInt(*dv.Offset, 10)
	}
	return key
}

// apply records the file and txn actions of a version. Removes whose deletion is before expired (ms) need not be remembered.
func (f *fileSet) apply(version int64, actions []Action, expired int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range actions {
		switch a := &actions[i]; {
		case a.Remove != nil:
			f.remove(version, a.Remove)
		case a.Txn != nil:
			f.addTxn(version, *a.Txn)
		}
	}
	if len(f.entries) == 0 { // a checkpoint
		f.entries, f.byKey = make([]*entry, 0, len(actions)), make(map[string]*entry, len(actions))
	}
	// Adds after removes: one commit may remove a path and add it again with another deletion vector.
	for i := range actions {
		if add := actions[i].Add; add != nil {
			f.add(version, add)
		}
	}
	f.compact(version)
	if len(f.tombstones) > f.pruneAt {
		f.prune(expired)
		f.pruneAt = max(1024, 2*len(f.tombstones))
	}
}

func (f *fileSet) addTxn(version int64, txn Txn) {
	n := &txnNode{txn: txn, version: version}
	if before := f.txns[txn.AppID]; before != nil {
		n.before, n.depth = before, before.depth+1
	}
	if n.depth >= 2*keptTxns {
		last := n
		for range keptTxns {
			last = last.before
		}
		last.before, n.depth = nil, keptTxns
	}
	f.txns[txn.AppID] = n
}

func (f *fileSet) add(version int64, add *Add) {
	key := fileKey(add.Path, add.DeletionVector)
	if old := f.byKey[key]; old != nil { // added again: the newest reference wins
		f.end(old, version)
	}
	delete(f.tombstones, key)
	if len(f.spare) == 0 {
		f.spare = make([]entry, min(addsAtOnce, max(1, cap(f.entries)-len(f.entries))))
	}
	e := &f.spare[0]
	f.spare = f.spare[1:]
	e.add, e.key, e.added = add, key, version
	f.entries = append(f.entries, e)
	f.byKey[key] = e
	f.index(e)
	f.live++
	f.bytes += add.Size
}

// index adds a live file to its partition.
func (f *fileSet) index(e *entry) {
	if len(f.columns) == 0 {
		return
	}
	key := f.partitionOf(e)
	p := f.byPartition[key]
	if p == nil {
		p = &partition{since: f.since}
		f.byPartition[key] = p
	}
	p.entries = append(p.entries, e)
}

func (f *fileSet) partitionOf(e *entry) string {
	return partitionKey(f.columns, func(c string) *string { return e.add.PartitionValues[c] })
}

func (f *fileSet) remove(version int64, r *Remove) {
	key := fileKey(r.Path, r.DeletionVector)
	if e := f.byKey[key]; e != nil {
		f.end(e, version)
	}
	f.tombstones[key] = tombstone{r, version}
}

func (f *fileSet) end(e *entry, version int64) {
	e.removed.Store(version + 1)
	delete(f.byKey, e.key)
	f.live--
	f.bytes -= e.add.Size
	if len(f.columns) == 0 {
		return
	}
	p := f.byPartition[f.partitionOf(e)]
	if p.ended++; p.ended >= keptEnded && 2*p.ended > len(p.entries) {
		p.entries, p.ended, p.since = liveOf(p.entries, len(p.entries)-p.ended), 0, version
	}
}

// compact drops ended entries once they are the most; snapshots made before keep their own list.
func (f *fileSet) compact(version int64) {
	if len(f.entries) < 1024 || f.live*2 > len(f.entries) {
		return
	}
	f.entries = liveOf(f.entries, f.live)
	f.reindex(version)
}

func liveOf(entries []*entry, live int) []*entry {
	kept := make([]*entry, 0, live*2)
	for _, e := range entries {
		if e.live() {
			kept = append(kept, e)
		}
	}
	return kept
}

// reindex makes the partitions anew, which are complete from version on.
func (f *fileSet) reindex(version int64) {
	f.byPartition, f.since = map[string]*partition{}, version
	for _, e := range f.entries {
		if e.live() {
			f.index(e)
		}
	}
}

// setColumns names the partition columns as of version.
func (f *fileSet) setColumns(columns []string, version int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.columns, columns) {
		f.columns = columns
		f.reindex(version)
	}
}

// prune forgets removes that happened before expired (ms).
func (f *fileSet) prune(expired int64) {
	for key, tomb := range f.tombstones {
		if at := tomb.remove.DeletionTimestamp; at == nil || *at < expired {
			delete(f.tombstones, key)
		}
	}
}

// isLive reports whether the newest version has the file.
func (f *fileSet) isLive(key string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.byKey[key] != nil
}

// in returns the entries of a partition for a snapshot of version; false if they are no longer complete for it.
func (f *fileSet) in(key string, version int64) ([]*entry, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if version < f.since {
		return nil, false
	}
	p := f.byPartition[key]
	if p == nil {
		return nil, true
	}
	return p.entries, version >= p.since
}

// txn is the last txn of an application at or before version. A snapshot that the application has left hundreds of txns behind may find none.
func (f *fileSet) txn(appID string, version int64) (Txn, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for n := f.txns[appID]; n != nil; n = n.before {
		if n.version <= version {
			return n.txn, true
		}
	}
	return Txn{}, false
}
