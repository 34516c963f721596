package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"testing"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/deltalog"
)

// ours reads a table's rows at a version (-1: the newest) with deltalog, as canonical JSON.
func ours(t *testing.T, dir string, version int64) []string {
	t.Helper()
	ctx := context.Background()
	table := openTable(t, dir)
	snap, err := table.Snapshot(ctx)
	if version >= 0 {
		snap, err = table.SnapshotAt(ctx, version)
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for rec, err := range table.Scan(ctx, snap, nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			b, err := deltalog.AppendRowJSON(nil, rec, i)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(b))
		}
	}
	return out
}

// ourChanges reads a table's change feed, each row with _change_type and _commit_version.
func ourChanges(t *testing.T, dir string, from, to int64) []string {
	t.Helper()
	var out []string
	for b, err := range cdf.Read(context.Background(), openTable(t, dir), cdf.Range{StartVersion: &from, EndVersion: &to}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		for i := range int(b.Rows.NumRows()) {
			row, err := deltalog.AppendRowJSON(nil, b.Rows, i)
			if err != nil {
				t.Fatal(err)
			}
			row = append(row[:len(row)-1], fmt.Sprintf(`,"_change_type":%q,"_commit_version":%d}`, b.ChangeType(i), b.Version)...)
			out = append(out, string(row))
		}
	}
	return out
}

// wholeLog fails unless every version from 0 to the newest can be read, and returns the newest.
func wholeLog(t *testing.T, dir string) int64 {
	t.Helper()
	ctx := context.Background()
	table := openTable(t, dir)
	snap, err := table.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for v := range snap.Version() + 1 {
		if _, err := table.ReadCommit(ctx, v); err != nil {
			t.Fatalf("version %d of %d: %v", v, snap.Version(), err)
		}
	}
	return snap.Version()
}

// parse reads a row, numbers as they are written.
func parse(t *testing.T, s string) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(s)))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		t.Fatalf("row %s: %v", s, err)
	}
	return normal(m).(map[string]any)
}

// normal makes values comparable: integers by their digits, other numbers by their value.
func normal(v any) any {
	switch v := v.(type) {
	case json.Number:
		if _, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return v.String()
		}
		f, _ := v.Float64()
		if i := int64(f); float64(i) == f && i < 1<<53 && i > -1<<53 {
			return strconv.FormatInt(i, 10)
		}
		return f
	case map[string]any:
		for k, e := range v {
			v[k] = normal(e)
		}
	case []any:
		for i, e := range v {
			v[i] = normal(e)
		}
	}
	return v
}

// equalRows fails unless both hold the same rows, each as often, in any order. A row is known by its key columns.
func equalRows(t *testing.T, what string, got, want []string, keys ...string) {
	t.Helper()
	compareRows(t, what, got, want, false, keys)
}

// sameRowsAtLeastOnce is equalRows where got may hold a row several times, as replays leave it. It returns how many were extra.
func sameRowsAtLeastOnce(t *testing.T, what string, got, want []string, keys ...string) int {
	t.Helper()
	compareRows(t, what, got, want, true, keys)
	return len(got) - len(want)
}

func compareRows(t *testing.T, what string, got, want []string, repeats bool, keys []string) {
	t.Helper()
	if len(keys) == 0 {
		keys = []string{"id"}
	}
	key := func(m map[string]any) string {
		s := ""
		for _, k := range keys {
			s += fmt.Sprint(m[k]) + "/"
		}
		return s
	}
	wanted := map[string]map[string]any{}
	for _, s := range want {
		m := parse(t, s)
		wanted[key(m)] = m
	}
	if len(wanted) != len(want) {
		t.Fatalf("%s: %d expected rows have %d keys", what, len(want), len(wanted))
	}
	seen := map[string]bool{}
	bad := 0
	report := func(format string, args ...any) {
		if bad++; bad <= 5 {
			t.Errorf(what+": "+format, args...)
		}
	}
	for _, s := range got {
		m := parse(t, s)
		k := key(m)
		w, ok := wanted[k]
		switch {
		case !ok:
			report("row that was not sent: %s", s)
			continue
		case seen[k] && !repeats:
			report("row %s appears twice", k)
		case !reflect.DeepEqual(m, w):
			for c := range w {
				if !reflect.DeepEqual(m[c], w[c]) {
					report("row %s column %s: got %v, want %v", k, c, m[c], w[c])
				}
			}
			for c := range m {
				if _, ok := w[c]; !ok {
					report("row %s has a column %s", k, c)
				}
			}
		}
		seen[k] = true
	}
	for _, s := range want {
		if k := key(parse(t, s)); !seen[k] {
			report("row %s is missing", k)
		}
	}
	if bad > 5 {
		t.Errorf("%s: and %d more", what, bad-5)
	}
}
