package deltalog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// sidecarDir holds the files that a V2 checkpoint keeps its file actions in.
const sidecarDir = logDir + "_sidecars/"

// checkpointFiles is one checkpoint: a classic one, one of the V2 specification named by a UUID, or all parts of a multi-part one.
type checkpointFiles struct {
	version int64
	kind    logKind
	names   []string
}

// parseCheckpointName reads what follows the version in the name of a checkpoint.
func parseCheckpointName(version int64, rest string) (logFile, bool) {
	rest, ok := strings.CutPrefix(rest, ".checkpoint.")
	if !ok {
		return logFile{}, false
	}
	switch words := strings.Split(rest, "."); {
	case rest == "parquet":
		return logFile{version: version, kind: classicCheckpoint}, true
	case len(words) == 3 && len(words[0]) == 10 && len(words[1]) == 10 && words[2] == "parquet":
		part, err1 := strconv.ParseUint(words[0], 10, 31)
		parts, err2 := strconv.ParseUint(words[1], 10, 31)
		if err1 != nil || err2 != nil || part < 1 || part > parts {
			return logFile{}, false
		}
		return logFile{version: version, kind: multiPartCheckpoint, part: int(part), parts: int(parts)}, true
	case len(words) == 2 && words[0] != "" && (words[1] == "parquet" || words[1] == "json"):
		return logFile{version: version, kind: uuidCheckpoint}, true
	}
	return logFile{}, false
}

// multiPartName is the name of a part (from 1) of a multi-part checkpoint.
func multiPartName(version int64, part, parts int) string {
	return fmt.Sprintf("%s%020d.checkpoint.%010d.%010d.parquet", logDir, version, part, parts)
}

// checkpointListing gathers the checkpoints of a listing.
type checkpointListing struct {
	found []checkpointFiles
	parts map[[2]int64]int // how many parts of a version's checkpoint of so many parts were there, in order
}

// add takes a file of the listing, which is in order.
func (l *checkpointListing) add(name string, f logFile) {
	if f.kind != multiPartCheckpoint {
		l.found = append(l.found, checkpointFiles{f.version, f.kind, []string{name}})
		return
	}
	if l.parts == nil {
		l.parts = map[[2]int64]int{}
	}
	key := [2]int64{f.version, int64(f.parts)}
	if l.parts[key]++; l.parts[key] == f.parts {
		l.found = append(l.found, multiPart(f.version, f.parts))
	}
}

func multiPart(version int64, parts int) checkpointFiles {
	c := checkpointFiles{version: version, kind: multiPartCheckpoint}
	for part := range parts {
		c.names = append(c.names, multiPartName(version, part+1, parts))
	}
	return c
}

// incomplete is the highest version with a multi-part checkpoint that lacks parts, or -1.
func (l *checkpointListing) incomplete() int64 {
	version := int64(-1)
	for key, n := range l.parts {
		if int64(n) < key[1] {
			version = max(version, key[0])
		}
	}
	return version
}

// byPreference is the complete checkpoints in the order in which they are to be tried: the newest first, and of one version V2, classic, multi-part, and
// then the most parts and the last name, so that all readers of a log choose the same.
func (l *checkpointListing) byPreference() []checkpointFiles {
	return slices.SortedFunc(slices.Values(l.found), func(a, b checkpointFiles) int {
		return cmp.Or(cmp.Compare(b.version, a.version), cmp.Compare(b.kind, a.kind), cmp.Compare(len(b.names), len(a.names)), cmp.Compare(b.names[0], a.names[0]))
	})
}

// checkpointContent is what the files of a checkpoint hold.
type checkpointContent struct {
	actions  []Action
	sidecars []string // the names of files below sidecarDir
	v2       []v2Metadata
}

// v2Metadata is the checkpointMetadata action.
type v2Metadata struct {
	Version int64             `json:"version"`
	Tags    map[string]string `json:"tags"`
}

// readCheckpoint reads a checkpoint whole, whoever wrote it, with the sidecars that it names. What does not hold together is ErrCorrupt.
func (t *Table) readCheckpoint(ctx context.Context, c checkpointFiles) ([]Action, error) {
	var all checkpointContent
	for _, name := range c.names {
		read := t.readCheckpointParquet
		if strings.HasSuffix(name, ".json") {
			read = t.readCheckpointJSON
		}
		one, err := read(ctx, name)
		if err != nil {
			return nil, err
		}
		if len(c.names) == 1 {
			all = one
			break
		}
		all.actions = append(all.actions, one.actions...)
		all.sidecars, all.v2 = append(all.sidecars, one.sidecars...), append(all.v2, one.v2...)
	}
	wrong := func(format string, args ...any) ([]Action, error) {
		return nil, fmt.Errorf("%s: %w: %s", c.names[0], ErrCorrupt, fmt.Sprintf(format, args...))
	}
	// A file that was cut off between two lines would seem to be whole without its checkpointMetadata, or with another's.
	switch {
	case len(all.v2) > 1:
		return wrong("%d checkpointMetadata actions", len(all.v2))
	case len(all.v2) == 0 && c.kind == uuidCheckpoint:
		return wrong("no checkpointMetadata action")
	case len(all.v2) == 1 && all.v2[0].Version != c.version:
		return wrong("checkpointMetadata of version %d", all.v2[0].Version)
	case len(all.sidecars) > 0 && slices.ContainsFunc(all.actions, Action.isFile):
		return wrong("files both in sidecars and beside them")
	}
	for _, name := range all.sidecars {
		one, err := t.readCheckpointParquet(ctx, name)
		if errors.Is(err, store.ErrNotExist) {
			return wrong("sidecar %s is missing", name)
		}
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(one.actions, func(a Action) bool { return !a.isFile() }); i >= 0 || len(one.sidecars) > 0 {
			return wrong("sidecar %s holds more than files", name)
		}
		all.actions = append(all.actions, one.actions...)
	}
	if len(all.v2) == 1 { // Spark counts
		if want, err := strconv.Atoi(all.v2[0].Tags["numOfAddFiles"]); err == nil {
			got := 0
			for _, a := range all.actions {
				if a.Add != nil {
					got++
				}
			}
			if got != want {
				return wrong("%d files, its checkpointMetadata says %d", got, want)
			}
		}
	}
	return all.actions, nil
}

func (a Action) isFile() bool { return a.Add != nil || a.Remove != nil }

// sidecarName is the name of the sidecar that an action's path means: only the last element counts, as all are in one directory.
func sidecarName(p string) string {
	if u, err := url.PathUnescape(p); err == nil {
		p = u
	}
	return sidecarDir + path.Base(p)
}

// readCheckpointJSON reads the top level of a V2 checkpoint that is written as JSON.
func (t *Table) readCheckpointJSON(ctx context.Context, name string) (c checkpointContent, err error) {
	data, err := t.st.Get(ctx, name)
	if err != nil {
		return c, err
	}
	err = eachLine(data, func(line []byte) error {
		var l struct {
			Action
			Sidecar *struct {
				Path string `json:"path"`
			} `json:"sidecar"`
			V2 *v2Metadata `json:"checkpointMetadata"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		if err := l.check(); err != nil {
			return err
		}
		switch {
		case l.Sidecar != nil && l.Sidecar.Path == "":
			return errors.New("sidecar without a path")
		case l.Sidecar != nil:
			c.sidecars = append(c.sidecars, sidecarName(l.Sidecar.Path))
		case l.V2 != nil:
			c.v2 = append(c.v2, *l.V2)
		case !l.unknown():
			c.actions = append(c.actions, l.Action)
		}
		return nil
	})
	if err != nil {
		return c, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// readCheckpointParquet reads a classic checkpoint, a part of a multi-part one, the top level of a V2 one or a sidecar: columns are found by name, others
// passed over.
func (t *Table) readCheckpointParquet(ctx context.Context, name string) (c checkpointContent, err error) {
	f, err := t.st.Open(ctx, name)
	if err != nil {
		return c, err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if r := recover(); r != nil { // parquet-go panics on some damage
			c, err = checkpointContent{}, fmt.Errorf("%s: %w: %v", name, ErrCorrupt, r)
		}
	}()
	tail, err := newTailReader(f)
	if err != nil {
		return c, err
	}
	defer func() {
		if failed := tail.failure(); failed != nil {
			c, err = checkpointContent{}, failed
		}
	}()
	pf, err := tail.open()
	if err != nil {
		return c, fmt.Errorf("%s: %w", name, err)
	}
	for _, group := range pf.RowGroups() {
		if err := readGroup(pf, group, &c); err != nil {
			return c, fmt.Errorf("%s: %w: %w", name, ErrCorrupt, err)
		}
		if err := ctx.Err(); err != nil {
			return c, err
		}
	}
	return c, nil
}

// readGroup adds the rows of a row group.
func readGroup(pf *parquet.File, group parquet.RowGroup, c *checkpointContent) error {
	// What the footer says is made room for: an action takes a byte at least, however well it is packed, but for a few.
	if n := group.NumRows(); n < 0 || n > 16*pf.Size()+1<<16 {
		return fmt.Errorf("%d rows in %d bytes", n, pf.Size())
	}
	r, err := readCheckpointGroup(pf, group)
	if err != nil {
		return err
	}
	c.actions = slices.Grow(c.actions, r.n)
	lack := map[int]*Add{} // those without statistics, by row
	for i := range r.n {
		if a, ok := r.action(i); ok {
			if err := a.check(); err != nil {
				return err
			}
			if a.Add != nil && a.Add.Stats == "" {
				lack[i] = a.Add
			}
			c.actions = append(c.actions, a)
		} else if p := r.text(i, "sidecar/path"); p != "" {
			c.sidecars = append(c.sidecars, sidecarName(p))
		} else if version, ok := r.number(i, "checkpointMetadata/version"); ok {
			c.v2 = append(c.v2, v2Metadata{version, r.pairColumns("checkpointMetadata/tags").properties(i)})
		}
	}
	fillStats(pf, group, lack)
	return nil
}

// fillStats gives files their statistics from add.stats_parsed, if the checkpoint has it. One that cannot be read is none.
func fillStats(pf *parquet.File, group parquet.RowGroup, lack map[int]*Add) {
	if len(lack) == 0 {
		return
	}
	s := newStructStats(pf, group)
	if s == nil {
		return
	}
	defer s.close()
	for i := range int(group.NumRows()) {
		text, err := s.next()
		if err != nil {
			return
		}
		if add := lack[i]; add != nil {
			add.Stats = text
		}
	}
}

// ReadCheckpoint reads the actions of the classic checkpoint of a version, with its sidecars if it has any, for audits.
func ReadCheckpoint(ctx context.Context, st store.Store, version int64) ([]Action, error) {
	return (&Table{st: st}).readCheckpoint(ctx, classic(version))
}

func classic(version int64) checkpointFiles {
	return checkpointFiles{version, classicCheckpoint, []string{checkpointName(version)}}
}
