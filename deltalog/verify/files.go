package verify

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog"
)

// readFiles reads every live file, and every other file that the feed still needs, to its last row, and checks size and statistics.
func (a *audit) readFiles() error {
	a.report.Files = len(a.state.live)
	t, err := deltalog.Open(a.ctx, a.st, deltalog.Options{CheckpointInterval: -1})
	if err != nil {
		return a.ctx.Err() // compareSnapshot says what is wrong
	}
	for _, n := range slices.Sorted(maps.Keys(a.state.live)) {
		add := a.state.live[n]
		if _, there := a.sizes[n]; !there {
			a.report.problem("file %s is missing", n)
			continue
		}
		rows, err := a.readFile(t, n, add)
		if err != nil {
			return err
		}
		a.report.Rows += rows
		if _, ok := a.inserts[n]; ok {
			a.report.Inserted += rows
		}
	}
	gone, last := 0, int64(0)
	for _, n := range slices.Sorted(maps.Keys(a.inserts)) {
		in := a.inserts[n]
		if a.state.live[n] != nil {
			continue
		}
		if _, there := a.sizes[n]; !there {
			gone++
			last = max(last, in.version)
			continue
		}
		rows, err := a.readFile(t, n, in.add)
		if err != nil {
			return err
		}
		a.report.Inserted += rows
	}
	a.noteRemarks()
	if gone > 0 {
		a.report.note("%d files of the change data feed were vacuumed: it cannot be read from version %d or before", gone, last)
	}
	return nil
}

// remark notes what of the files of one writer, which may be many.
func (a *audit) remark(file, what string) {
	writer := a.writers[file]
	if writer == "" {
		writer = "an unknown writer"
	}
	what = "written by " + writer + ": " + what
	r := a.remarks[what]
	if r.files++; r.files == 1 {
		r.first = file
	}
	a.remarks[what] = r
}

func (a *audit) noteRemarks() {
	for _, what := range slices.Sorted(maps.Keys(a.remarks)) {
		a.report.note("%d files, such as %s, %s", a.remarks[what].files, a.remarks[what].first, what)
	}
}

// readFile checks one file and returns how many live rows it has.
func (a *audit) readFile(t *deltalog.Table, n string, add *deltalog.Add) (rows int64, err error) {
	if size := a.sizes[n]; size != add.Size {
		a.report.problem("file %s has %d bytes, the log says %d", n, size, add.Size)
	}
	deleted, err := t.DeletedRows(a.ctx, add.DeletionVector)
	if errors.Is(err, deltalog.ErrUnsupported) {
		a.report.note("not audited: file %s: %v", n, err)
		return 0, nil
	}
	if err != nil {
		a.report.problem("file %s: %v", n, err)
		return 0, nil
	}
	// Statistics are of all rows that are stored, whatever the vector says of them.
	stored := deltalog.DataFile{Path: add.Path, PartitionValues: add.PartitionValues, Unpadded: true}
	own := strings.HasPrefix(a.writers[n], deltalog.DefaultEngineInfo)
	stats, err := parseStatistics(add.Stats)
	switch {
	case err != nil && own:
		a.report.problem("file %s: statistics: %v", n, err)
	case err != nil:
		a.remark(n, "statistics cannot be read: readers do without")
	}
	schema := t.Cached().Schema()
	checks := make([]*columnCheck, len(schema.Fields))
	for i, f := range schema.Fields {
		checks[i] = newColumnCheck(f.Name, f.Type, own, stats.minValues[f.StoredName()], stats.maxValues[f.StoredName()], stats.nullCount[f.StoredName()])
	}
	for rec, err := range t.ReadFile(a.ctx, t.Cached(), stored, nil) {
		if a.ctx.Err() != nil {
			return rows, a.ctx.Err()
		}
		if errors.Is(err, deltalog.ErrUnsupported) {
			a.report.note("not audited: file %s: %v", n, err)
			return rows, nil
		}
		if err != nil {
			a.report.problem("file %s: %v", n, err)
			return rows, nil
		}
		rows += rec.NumRows()
		for i := range schema.Fields {
			checks[i].add(rec.Column(i), 0, rec.Column(i).Len())
		}
		if err := deltalog.CheckNotNull(schema, rec); err != nil {
			a.report.problem("file %s: %v", n, err)
			return rows, nil
		}
	}
	if last, ok := deleted.Last(); ok && last >= rows {
		a.report.problem("file %s has %d rows, its deletion vector names row %d", n, rows, last)
	}
	if stats.numRecords != nil && *stats.numRecords != rows {
		a.report.problem("file %s has %d rows, its statistics say %d", n, rows, *stats.numRecords)
	}
	for _, c := range checks {
		c.end(rows, stats.loose)
		for _, p := range c.bad {
			a.report.problem("file %s: %s", n, p)
		}
		for _, p := range c.notes {
			a.remark(n, p)
		}
	}
	return rows - deleted.Len(), nil
}
