package deltalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// ms is a time in ms since the epoch.
func ms(n int64) time.Time { return time.UnixMilli(n) }

// ictCommit is a bare commit whose file is of the time file, and which carries the time ict, if not zero. config, if not nil, is set in it, and the
// feature listed if there is a config.
type ictCommit struct {
	file, ict int64
	config    map[string]string
}

func ictTable(t *testing.T, st store.Store, feature bool, commits ...ictCommit) {
	t.Helper()
	for v, c := range commits {
		info := CommitInfo{"operation": json.RawMessage(`"WRITE"`)}
		if c.ict != 0 {
			info["inCommitTimestamp"] = json.RawMessage(fmt.Sprint(c.ict))
		}
		actions := []Action{{CommitInfo: info}}
		if c.config != nil || v == 0 {
			p := &Protocol{MinReaderVersion: 1, MinWriterVersion: 7, WriterFeatures: []string{"appendOnly"}}
			if feature {
				p.WriterFeatures = append(p.WriterFeatures, "inCommitTimestamp")
			}
			schema := `{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}`
			actions = append(actions, Action{Protocol: p}, Action{Metadata: &Metadata{ID: "x", Format: Format{Provider: "parquet"}, SchemaString: schema, PartitionColumns: []string{}, Configuration: c.config}})
		}
		data, err := encodeCommit(actions)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Put(t.Context(), logName(int64(v)), data, store.PutOptions{ModTime: ms(c.file)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInCommitTimestamps: which time a commit has, whichever way it is read, and which version a time means.
func TestInCommitTimestamps(t *testing.T) {
	t.Parallel()
	on := func(since ...int64) map[string]string {
		config := map[string]string{"delta.enableInCommitTimestamps": "true"}
		if len(since) > 0 {
			config["delta.inCommitTimestampEnablementVersion"] = fmt.Sprint(since[0])
		}
		return config
	}
	for name, c := range map[string]struct {
		feature bool
		commits []ictCommit
		want    []int64
		at      map[int64]int64 // version of a time; -1: none
	}{
		"from the first version": {
			true,
			[]ictCommit{{9000, 1000, on()}, {8000, 2000, nil}, {7000, 3000, nil}},
			[]int64{1000, 2000, 3000},
			map[int64]int64{999: -1, 1000: 0, 1999: 0, 2000: 1, 2500: 1, 3000: 2, 9000: 2},
		},
		"switched on later, after file times of a copy": {
			true,
			[]ictCommit{{9000, 0, nil}, {9000, 1, nil}, {9005, 0, nil}, {9000, 4000, on(3)}, {9000, 5000, nil}},
			[]int64{9000, 9001, 9005, 4000, 5000},
			map[int64]int64{3999: -1, 4000: 3, 4999: 3, 5000: 4, 9001: 4},
		},
		"switched on later": {
			true,
			[]ictCommit{{1000, 0, nil}, {2000, 0, nil}, {9000, 4000, on(2)}, {9000, 5000, nil}},
			[]int64{1000, 2000, 4000, 5000},
			map[int64]int64{999: -1, 1000: 0, 2000: 1, 3999: 1, 4000: 2, 5000: 3},
		},
		"the property without the feature": {
			false, []ictCommit{{1000, 7, on()}, {2000, 8, nil}}, []int64{1000, 2000}, map[int64]int64{1000: 0, 2000: 1},
		},
		"the feature without the property": {
			true, []ictCommit{{1000, 7, nil}, {2000, 8, nil}}, []int64{1000, 2000}, map[int64]int64{1000: 0, 2000: 1},
		},
		"a commit that lacks it": {
			true, []ictCommit{{900, 1000, on()}, {2000, 0, nil}, {100, 3000, nil}}, []int64{1000, 2000, 3000}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := store.NewMemory()
			ictTable(t, st, c.feature, c.commits...)
			last := int64(len(c.want) - 1)
			check := func(how string) {
				t.Helper()
				tab, err := Open(t.Context(), st, quiet)
				if err != nil {
					t.Fatal(err)
				}
				if got := tab.Cached().Timestamp(); !got.Equal(ms(c.want[last])) {
					t.Errorf("%s: opened at %d", how, got.UnixMilli())
				}
				var history []int64
				for c, err := range tab.History(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					history = append(history, c.Timestamp.UnixMilli())
				}
				slices.Reverse(history)
				if !slices.Equal(history, c.want) {
					t.Errorf("%s: history %v, want %v", how, history, c.want)
				}
				for v, want := range c.want {
					if s, err := tab.SnapshotAt(t.Context(), int64(v)); err != nil || !s.Timestamp().Equal(ms(want)) {
						t.Errorf("%s: version %d: %v, want %d", how, v, err, want)
					}
				}
				for at, want := range c.at {
					v, err := tab.VersionAt(t.Context(), ms(at))
					if want < 0 && !errors.Is(err, ErrVersionNotFound) || want >= 0 && (err != nil || v != want) {
						t.Errorf("%s: at %d: version %d, %v, want %d", how, at, v, err, want)
					}
				}
			}
			check("by the commits")
			tab, err := Open(t.Context(), st, quiet)
			if err != nil {
				t.Fatal(err)
			}
			if err := tab.Checkpoint(t.Context(), tab.Cached()); err != nil {
				t.Fatal(err)
			}
			check("by the checkpoint")
		})
	}
}

// TestSnapshotAtTime: the edges are errors of Spark's classes.
func TestSnapshotAtTime(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	ictTable(t, st, false, ictCommit{1000, 0, nil}, ictCommit{2000, 0, nil}, ictCommit{2000, 0, nil}, ictCommit{5000, 0, nil})
	tab, err := Open(t.Context(), st, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[int64]int64{1000: 0, 1999: 0, 2000: 1, 2001: 2, 4999: 2, 5000: 3} {
		if s, err := tab.SnapshotAtTime(t.Context(), ms(at)); err != nil || s.Version() != want {
			t.Errorf("at %d: %v, want version %d", at, err, want)
		}
	}
	for at, want := range map[int64][2]string{999: {"DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION", "42816"}, 5001: {"DELTA_TIMESTAMP_GREATER_THAN_COMMIT", "42816"}} {
		_, err := tab.SnapshotAtTime(t.Context(), ms(at))
		var class *ClassError
		if !errors.Is(err, ErrVersionNotFound) || !errors.As(err, &class) || class.Class != want[0] || class.SQLState() != want[1] {
			t.Errorf("at %d: %v", at, err)
		}
	}
	_, err = tab.SnapshotAt(t.Context(), 4)
	if !errors.Is(err, ErrVersionNotFound) || !strings.Contains(err.Error(), "[DELTA_VERSION_NOT_FOUND]") || !strings.HasSuffix(err.Error(), "SQLSTATE: 22003") {
		t.Errorf("a version that is not there yet: %v", err)
	}
}

func TestParseTimestamp(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-01-31":                       "2026-01-31T00:00:00Z",
		"2026-01-31 12:00:00":              "2026-01-31T12:00:00Z",
		"2026-01-31 12:00:00.123":          "2026-01-31T12:00:00.123Z",
		"2026-01-31T12:00:00.123456":       "2026-01-31T12:00:00.123456Z",
		"2026-01-31T12:00:00.123456Z":      "2026-01-31T12:00:00.123456Z",
		"2026-01-31 12:00:00.123456+02:00": "2026-01-31T10:00:00.123456Z",
		"":                                 "", "1": "", "yesterday": "", "2026-13-01": "", "2026-01-31 12:00": "",
	} {
		at, err := ParseTimestamp(text)
		if want == "" && (err == nil || !strings.Contains(err.Error(), "[DELTA_TIMESTAMP_INVALID]")) {
			t.Errorf("%q: %v, %v", text, at, err)
		}
		if got := at.UTC().Format(time.RFC3339Nano); want != "" && (err != nil || got != want) {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
		}
	}
}
