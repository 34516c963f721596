package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// judges are asked the same questions.
var judges = []*judge{deltaRS, spark}

// oddLabel gives a partition column values whose paths have to be escaped.
var oddLabel = column{"label", "label STRING", "optional string", same(func(i int) string {
	return quote([]string{"plain", "a/b c%d=é?#", "日本 {x}", "100%"}[i%4])
})}

// commitTimestamp differs from run to run.
var commitTimestamp = regexp.MustCompile(`,"_commit_timestamp":"[^"]+Z"`)

// TestJudgesReadOurTables: delta-rs and Spark read what was written here, row for row as we do: every version of interest, the
// change feed, and from a checkpoint alone. Both then append, and we and the SDK go on.
func TestJudgesReadOurTables(t *testing.T) {
	s := serve(t)
	checkpoints := map[string]string{"delta.checkpointInterval": "3"}
	feed := map[string]string{"delta.checkpointInterval": "3", "delta.enableChangeDataFeed": "true"}
	partitioned := append(append([]column{}, everything...), oddLabel)
	for _, table := range []struct {
		name        string
		columns     []column
		partitionBy []string
		properties  map[string]string
	}{
		{"plain", everything, nil, checkpoints},
		{"feed", everything, nil, feed},
		{"partitioned", partitioned, []string{"flag", "label"}, feed},
	} {
		t.Run(table.name, func(t *testing.T) {
			const n, batch = 200, 25
			name := "main.judged." + table.name
			dir := s.createTable(name, definitions(table.columns), table.partitionBy, table.properties)
			input, expected := writeRows(t, table.columns, 0, n)
			sent(t, s.ingest(name, input, arguments{"mode": "batch", "batch": batch, "ack": 1}), n)

			newest := wholeLog(t, dir)
			if newest < 4 {
				t.Fatalf("only %d versions: too few for a checkpoint between", newest)
			}
			equalRows(t, "deltalog", ours(t, dir, -1), expected)
			equalRows(t, "table rows", lines(cli(t, "", "table", "rows", dir)), expected)
			equalRows(t, "table rows by name", lines(cli(t, "", "table", "rows", name, "--data-dir", s.dir)), expected)
			hasFeed := table.properties["delta.enableChangeDataFeed"] != ""
			for _, j := range judges {
				equalRows(t, j.script+" newest", j.rows(t, dir, -1), expected)
				equalRows(t, j.script+" version 2", j.rows(t, dir, 2), ours(t, dir, 2))
				if !hasFeed {
					continue
				}
				if j == deltaRS && table.partitionBy != nil {
					continue // delta-rs 1.6.6 cannot read a feed with escaped partition paths (spark.md 6)
				}
				equalRows(t, j.script+" feed", j.changes(t, dir, 1, newest), ourChanges(t, dir, 1, newest))
				equalRows(t, j.script+" part of the feed", j.changes(t, dir, 2, 3), ourChanges(t, dir, 2, 3))
			}
			if hasFeed {
				var feed []string
				for _, l := range lines(cli(t, "", "table", "changes", dir, "--from", "1", "--to", strconv.FormatInt(newest, 10))) {
					feed = append(feed, commitTimestamp.ReplaceAllString(l, ""))
				}
				equalRows(t, "table changes", feed, ourChanges(t, dir, 1, newest))
			}
			onlyCheckpoint := withoutCommitsBeforeCheckpoint(t, dir)
			equalRows(t, "deltalog from the checkpoint", ours(t, onlyCheckpoint, -1), expected)
			for _, j := range judges {
				equalRows(t, j.script+" from the checkpoint", j.rows(t, onlyCheckpoint, -1), expected)
			}

			// Both append rows of the table with other ids; then the SDK goes on.
			for k, j := range judges {
				const below = 10
				add := 1_000_000 * (k + 1)
				var version int64
				j.must(t, "append", map[string]any{"path": dir, "source": dir, "key": "id", "below": below, "add": add}, &version)
				for i := range below {
					expected = append(expected, strings.Replace(expected[i], fmt.Sprintf(`{"id":%d,`, i), fmt.Sprintf(`{"id":%d,`, i+add), 1))
				}
				equalRows(t, "after an append by "+j.script, ours(t, dir, -1), expected)
			}
			input, more := writeRows(t, table.columns, n, n+50)
			sent(t, s.ingest(name, input, arguments{"mode": "batch", "batch": 50}), 50)
			expected = append(expected, more...)
			equalRows(t, "deltalog after appends", ours(t, dir, -1), expected)
			for _, j := range judges {
				equalRows(t, j.script+" after appends", j.rows(t, dir, -1), expected)
			}
			if hasFeed {
				newest = wholeLog(t, dir)
				equalRows(t, "spark.py feed after appends", spark.changes(t, dir, 1, newest), ourChanges(t, dir, 1, newest))
			}

			// Spark's own default for timestamps is INT96, which delta-rs cannot read outside of the years 1677 to 2262.
			spark.must(t, "append", map[string]any{"path": dir, "source": dir, "key": "id", "below": 10, "add": 3_000_000, "timestamps": "INT96"}, nil)
			equalRows(t, "deltalog after INT96", ours(t, dir, -1), spark.rows(t, dir, -1))
			cli(t, "", "table", "verify", dir)
		})
	}
}

// withoutCommitsBeforeCheckpoint is a copy of a table whose commits up to its last checkpoint are gone, as after a log cleanup: it can
// only be read from the checkpoint.
func withoutCommitsBeforeCheckpoint(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(to, "_delta_log", "*.checkpoint.parquet"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no checkpoint in %s (%v)", dir, err)
	}
	last, err := strconv.Atoi(strings.TrimLeft(filepath.Base(found[len(found)-1])[:20], "0"))
	if err != nil {
		t.Fatal(err)
	}
	for v := range last {
		if err := os.Remove(filepath.Join(to, "_delta_log", fmt.Sprintf("%020d.json", v))); err != nil {
			t.Fatal(err)
		}
	}
	return to
}
