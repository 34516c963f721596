package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

var checkpointFile = regexp.MustCompile(`^(\d{20})\.checkpoint\.`)

// TestGoldenCheckpoints reads every table of the golden folder from each of its checkpoints alone: in a copy without the commits up to there and without
// the other checkpoints, the rows of that version and of later ones are the same.
func TestGoldenCheckpoints(t *testing.T) {
	root := os.Getenv(goldenEnv)
	if root == "" {
		t.Fatalf("%s is not set: it names the folder of golden tables (make interop sets it)", goldenEnv)
	}
	logs, err := filepath.Glob(filepath.Join(root, "*", "table", "_delta_log"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, log := range logs {
		dir := filepath.Dir(filepath.Dir(log))
		var c goldenCase
		readJSON(t, filepath.Join(dir, "expected", "case.json"), &c)
		if c.ExpectError != "" {
			continue
		}
		for _, version := range checkpointVersions(t, log) {
			seen++
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(dir), version), func(t *testing.T) {
				t.Parallel()
				fromCheckpoint(t, dir, version)
			})
		}
	}
	if seen == 0 {
		t.Fatalf("no table in %s has a checkpoint", root)
	}
}

func checkpointVersions(t *testing.T, log string) (versions []int64) {
	t.Helper()
	entries, err := os.ReadDir(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if m := checkpointFile.FindStringSubmatch(e.Name()); m != nil {
			version, err := strconv.ParseInt(m[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			versions = append(versions, version)
		}
	}
	return slices.Compact(versions)
}

func fromCheckpoint(t *testing.T, dir string, version int64) {
	ctx := context.Background()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(dir, "table"))); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(copied, "_delta_log")
	entries, err := os.ReadDir(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		v, err := strconv.ParseInt(strings.SplitN(e.Name(), ".", 2)[0], 10, 64)
		commit := strings.HasSuffix(e.Name(), ".json") && !strings.Contains(e.Name(), "checkpoint")
		if err != nil || checkpointFile.MatchString(e.Name()) && v == version || commit && v > version {
			continue
		}
		if err := os.Remove(filepath.Join(log, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	st, err := store.NewLocal(copied, true)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := deltalog.Open(ctx, st, deltalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tab.Close() }()
	checkSummary(t, dir, tab.Cached())
	files, err := filepath.Glob(filepath.Join(dir, "expected", "rows*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name, at := strings.TrimSuffix(filepath.Base(f), ".jsonl"), tab.Cached().Version()
		if name != "rows" && !scan(name, "rows_v%d", &at) {
			t.Errorf("%s: not known what it expects", f)
		}
		if at < version {
			continue
		}
		snap, err := tab.SnapshotAt(ctx, at)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for rec, err := range tab.Scan(ctx, snap, nil, nil) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got = append(got, plainRows(rec, nil)...)
		}
		compareGolden(t, name, got, wantedRows(t, f), "")
	}
}
