package deltalog

import (
	"net/url"
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

// maxTxnDepth bounds how many earlier txns of one application are kept for older snapshots.
const maxTxnDepth = 64

// fileSet is what all snapshots of one table share: files in the order they came, with the versions between which each is
// live. A new version appends to it and marks what it removes; older snapshots go on seeing what they saw.
type fileSet struct {
	mu          sync.RWMutex
	entries     []*entry
	byKey       map[string]*entry // live ones
	byPartition map[string][]*entry
	columns     []string
	tombstones  map[string]tombstone
	txns        map[string]*txnNode
	domains     map[string]*DomainMetadata
	live        int
	bytes       int64
}

func newFileSet() *fileSet {
	return &fileSet{
		byKey: map[string]*entry{}, byPartition: map[string][]*entry{}, tombstones: map[string]tombstone{},
		txns: map[string]*txnNode{}, domains: map[string]*DomainMetadata{},
	}
}

// fileKey is the identity of a file: its decoded path and its deletion vector.
func fileKey(path string, dv *DeletionVector) string {
	if p, err := url.PathUnescape(path); err == nil {
		path = p
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

// apply records the file, txn and domain actions of a version.
func (f *fileSet) apply(version int64, actions []Action) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range actions {
		a := &actions[i]
		switch {
		case a.Remove != nil:
			f.remove(version, a.Remove)
		case a.Txn != nil:
			f.addTxn(version, *a.Txn)
		case a.DomainMetadata != nil:
			if a.DomainMetadata.Removed {
				delete(f.domains, a.DomainMetadata.Domain)
			} else {
				f.domains[a.DomainMetadata.Domain] = a.DomainMetadata
			}
		}
	}
	// Adds after removes: one commit may remove a path and add it again with another deletion vector.
	for i := range actions {
		if add := actions[i].Add; add != nil {
			f.add(version, add)
		}
	}
	f.compact()
}

func (f *fileSet) addTxn(version int64, txn Txn) {
	n := &txnNode{txn: txn, version: version}
	if before := f.txns[txn.AppID]; before != nil && before.depth < maxTxnDepth {
		n.before, n.depth = before, before.depth+1
	}
	f.txns[txn.AppID] = n
}

func (f *fileSet) add(version int64, add *Add) {
	key := fileKey(add.Path, add.DeletionVector)
	if old := f.byKey[key]; old != nil { // added again: the newest reference wins
		f.end(old, version)
	}
	delete(f.tombstones, key)
	e := &entry{add: add, key: key, added: version}
	f.entries = append(f.entries, e)
	f.byKey[key] = e
	if len(f.columns) > 0 {
		p := partitionKey(f.columns, func(c string) *string { return add.PartitionValues[c] })
		f.byPartition[p] = append(f.byPartition[p], e)
	}
	f.live++
	f.bytes += add.Size
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
	if len(f.columns) > 0 {
		p := partitionKey(f.columns, func(c string) *string { return e.add.PartitionValues[c] })
		kept := f.byPartition[p][:0:0]
		// A snapshot that is a few versions old may still ask for what has just ended, so the last ended ones stay.
		for i, x := range f.byPartition[p] {
			if x.live() || len(f.byPartition[p])-i <= 8 {
				kept = append(kept, x)
			}
		}
		f.byPartition[p] = kept
	}
}

// compact drops ended entries once they are the most; snapshots made before keep their own list.
func (f *fileSet) compact() {
	if len(f.entries) < 1024 || f.live*2 > len(f.entries) {
		return
	}
	kept := make([]*entry, 0, f.live*2)
	for _, e := range f.entries {
		if e.live() {
			kept = append(kept, e)
		}
	}
	f.entries = kept
}

// isLive reports whether the newest version has the file.
func (f *fileSet) isLive(key string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.byKey[key] != nil
}

// in returns the entries of a partition.
func (f *fileSet) in(key string) []*entry {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.byPartition[key]
}

// txn is the last txn of an application at or before version.
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
