package cdf

import (
	"context"
	"fmt"
	"strings"

	"github.com/deltabus/deltabus-local/deltalog"
)

// source is a file that holds changed rows of a version.
type source struct {
	kind string // the change type of its rows; empty: each row tells its own
	file deltalog.DataFile
	rows int64 // by the statistics; -1 if they do not tell
}

// changes is what a commit changes, by delta.md 3.2.
type changes struct {
	sources []source
	// rewrites is whether rows may come as inserts that were there before.
	rewrites bool
}

// changesOf finds out what c changes. It reads deletion vectors, no rows.
func changesOf(ctx context.Context, t *deltalog.Table, c *deltalog.Commit) (out changes, err error) {
	operation := c.Info().String("operation")
	if explicit := changeFiles(c); explicit != nil {
		return changes{sources: explicit}, nil // complete by themselves: adds and removes only say how they were stored
	}
	if operation == "MERGE" && mergedNothing(c.Info()) {
		return out, nil // files were written anew with the rows they had
	}
	adds, removes, paths := map[string]*deltalog.Add{}, map[string]*deltalog.Remove{}, []string(nil)
	for i := range c.Actions {
		switch a := &c.Actions[i]; {
		case a.Add != nil && a.Add.DataChange:
			adds[a.Add.Path] = a.Add
			paths = append(paths, a.Add.Path)
		case a.Remove != nil && a.Remove.DataChange:
			removes[a.Remove.Path] = a.Remove
			if a.Remove.PartitionValues == nil && len(t.Cached().Metadata().PartitionColumns) > 0 {
				return out, deltalog.NewClassError("DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA", deltalog.ErrCorrupt, "version %d: the remove of %s does not tell its partition", c.Version, a.Remove.Path)
			}
		}
	}
	var deleted, inserted []source
	for i := range c.Actions {
		r := c.Actions[i].Remove
		if r == nil || !r.DataChange {
			continue
		}
		add := adds[r.Path]
		if add == nil {
			deleted = append(deleted, source{Delete, r.DataFile(), -1})
			continue
		}
		gone, back, err := difference(ctx, t, r, add)
		if err != nil {
			return out, fmt.Errorf("version %d: %w", c.Version, err)
		}
		deleted, inserted = append(deleted, gone...), append(inserted, back...)
	}
	for _, path := range paths {
		if add := adds[path]; removes[path] == nil {
			inserted = append(inserted, source{Insert, add.DataFile(), liveRows(add)})
		}
	}
	out.sources = append(deleted, inserted...)
	out.rewrites = len(inserted) > 0 && (len(deleted) > 0 || operation == "RESTORE")
	return out, nil
}

// changeFiles are the change files of a commit.
func changeFiles(c *deltalog.Commit) (out []source) {
	for i := range c.Actions {
		if f := c.Actions[i].CDC; f != nil {
			out = append(out, source{"", deltalog.DataFile{Path: f.Path, PartitionValues: f.PartitionValues, WithChangeType: true}, -1})
		}
	}
	return out
}

// mergedNothing reports whether a MERGE says that no row was inserted, updated or deleted.
func mergedNothing(info deltalog.CommitInfo) bool {
	metrics := info.Map("operationMetrics")
	for _, m := range []string{"numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"} {
		if metrics[m] != "0" {
			return false
		}
	}
	return true
}

// difference is the rows of one file that became dead and that came back, by its vectors before and after.
func difference(ctx context.Context, t *deltalog.Table, before *deltalog.Remove, after *deltalog.Add) (gone, back []source, err error) {
	was, err := t.DeletedRows(ctx, before.DeletionVector)
	if err != nil {
		return nil, nil, err
	}
	is, err := t.DeletedRows(ctx, after.DeletionVector)
	if err != nil {
		return nil, nil, err
	}
	file := deltalog.DataFile{Path: after.Path, PartitionValues: after.PartitionValues}
	if file.Only = is.Without(was); file.Only.Len() > 0 {
		gone = append(gone, source{Delete, file, file.Only.Len()})
	}
	if file.Only = was.Without(is); file.Only.Len() > 0 {
		back = append(back, source{Insert, file, file.Only.Len()})
	}
	return gone, back, nil
}

// liveRows is how many rows of a file are live by its statistics; -1 if they do not tell.
func liveRows(add *deltalog.Add) int64 {
	stats, err := deltalog.ParseStats(add.Stats)
	if err != nil || stats.NumRecords == nil {
		return -1
	}
	if add.DeletionVector != nil {
		return *stats.NumRecords - add.DeletionVector.Cardinality
	}
	return *stats.NumRecords
}

// checkMetadata checks what a commit does to the table: the feed must stay on, and rows of before must fit schema, the one that is read with.
func checkMetadata(c *deltalog.Commit, schema deltalog.Struct) error {
	for i := range c.Actions {
		m := c.Actions[i].Metadata
		if m == nil {
			continue
		}
		if !strings.EqualFold(m.Configuration["delta.enableChangeDataFeed"], "true") {
			return notEnabled(c.Version)
		}
		then, err := deltalog.MappedSchema(m)
		if err != nil {
			return fmt.Errorf("version %d: %w", c.Version, err)
		}
		if err := checkSchema(c.Version, "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE", then, schema); err != nil {
			return err
		}
	}
	return nil
}
