package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// goldenEnv names the folder of tables that other engines wrote, each with what reading it must give (its INDEX.md says how they were made).
const goldenEnv = "DELTABUS_GOLDEN"

// goldenCase is expected/case.json, as far as it says what must happen.
type goldenCase struct {
	Note        string `json:"note"`
	ExpectError string `json:"expectError"`
	CDFErrors   []struct {
		Start, End int64
		Expect     string
	} `json:"cdfErrors"`
	RowErrors []struct {
		Version int64
		Expect  string
	} `json:"rowErrors"`
	ICT        map[string]int64 `json:"ict"`
	TimeTravel map[string]any   `json:"timeTravel"`
}

// goldenSummary is expected/summary.json.
type goldenSummary struct {
	Version       int64
	NumFiles      int
	SizeInBytes   int64
	Columns       []string
	Configuration map[string]string
	TableID       string
	Protocol      deltalog.Protocol
	Txns          map[string]json.Number
}

// TestGolden reads every table of the folder: rows, rows of each version, feeds and errors.
func TestGolden(t *testing.T) {
	root := os.Getenv(goldenEnv)
	if root == "" {
		t.Fatalf("%s is not set: it names the folder of golden tables (make interop sets it)", goldenEnv)
	}
	cases, err := filepath.Glob(filepath.Join(root, "*", "expected", "case.json"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("no golden table in %s: %v", root, err)
	}
	for _, c := range cases {
		dir := filepath.Dir(filepath.Dir(c))
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			golden(t, dir)
		})
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func golden(t *testing.T, dir string) {
	ctx := context.Background()
	var c goldenCase
	readJSON(t, filepath.Join(dir, "expected", "case.json"), &c)
	st, err := store.NewLocal(filepath.Join(dir, "table"), true)
	if err != nil {
		t.Fatal(err)
	}
	before := fingerprint(t, filepath.Join(dir, "table"))
	defer func() {
		if after := fingerprint(t, filepath.Join(dir, "table")); after != before {
			t.Errorf("reading changed the table:\n%s\nwas\n%s", after, before)
		}
	}()
	tab, err := deltalog.Open(ctx, st, deltalog.Options{})
	// Of a table whose rows nobody tells, it is enough that it is refused properly.
	if _, noRows := os.Stat(filepath.Join(dir, "expected", "rows.jsonl")); c.ExpectError != "" || noRows != nil && err != nil {
		if err == nil {
			t.Fatalf("opened, expected: %s", c.ExpectError)
		}
		if !errors.Is(err, deltalog.ErrUnsupported) && !errors.Is(err, deltalog.ErrCorrupt) && !errors.Is(err, deltalog.ErrNotTable) {
			t.Fatalf("refused by %v, expected: %s", err, c.ExpectError)
		}
		wantError(t, "open", err, c.ExpectError)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tab.Close() }()
	snap, err := tab.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	checkSummary(t, dir, snap)
	rows := func(version int64) ([]string, error) {
		s := snap
		if version >= 0 {
			if s, err = tab.SnapshotAt(ctx, version); err != nil {
				return nil, err
			}
		}
		var out []string
		for rec, err := range tab.Scan(ctx, s, nil, nil) {
			if err != nil {
				return nil, err
			}
			out = append(out, plainRows(rec, nil)...)
		}
		return out, nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "expected", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".jsonl")
		want := wantedRows(t, f)
		var got []string
		var err error
		var start, end int64
		var version int64
		switch {
		case name == "rows":
			got, err = rows(-1)
		case scan(name, "rows_v%d", &version):
			got, err = rows(version)
		case scan(name, "cdf_%d_%d", &start, &end):
			got, err = feed(ctx, tab, start, end)
		default:
			t.Errorf("%s: not known what it expects", f)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ignore := ""
		if m := regexp.MustCompile(`(\w+) was written in zone`).FindStringSubmatch(c.Note); m != nil {
			ignore = m[1] // the table does not say which zone: readers differ
		}
		compareGolden(t, name, got, want, ignore)
	}
	for _, e := range c.CDFErrors {
		_, err := feed(ctx, tab, e.Start, e.End)
		wantError(t, fmt.Sprintf("feed %d..%d", e.Start, e.End), err, e.Expect)
	}
	for _, e := range c.RowErrors {
		_, err := rows(e.Version)
		wantError(t, fmt.Sprintf("rows of version %d", e.Version), err, e.Expect)
	}
	checkInCommitTimes(t, tab, c.ICT)
	for v, ms := range c.ICT {
		version, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		s, err := tab.SnapshotAt(ctx, version)
		if err != nil {
			t.Error(err)
		} else if s.Timestamp().UnixMilli() != ms {
			t.Errorf("version %s is of %d, expected %d", v, s.Timestamp().UnixMilli(), ms)
		}
	}
}

// checkInCommitTimes checks that times by version, given in ms, lead to those versions, and that the feed from them on begins there and has them.
func checkInCommitTimes(t *testing.T, tab *deltalog.Table, times map[string]int64) {
	t.Helper()
	ctx := context.Background()
	for v, ms := range times {
		version, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if next, ok := times[strconv.FormatInt(version+1, 10)]; ok && next <= ms {
			continue // made so on purpose: no time means this version
		}
		at := time.UnixMilli(ms)
		s, err := tab.SnapshotAtTime(ctx, at)
		if err != nil || s.Version() != version {
			t.Errorf("at %s: %v, expected version %d", at, err, version)
		}
		for b, err := range cdf.Read(ctx, tab, cdf.Range{StartTime: at}, nil) {
			if err != nil {
				t.Errorf("feed from %s: %v", at, err)
				break
			}
			if want := times[strconv.FormatInt(b.Version, 10)]; b.Version < version || b.Timestamp.UnixMilli() != want {
				t.Errorf("feed from %s (version %d): version %d at %d, expected %d", at, version, b.Version, b.Timestamp.UnixMilli(), want)
			}
		}
	}
}

func scan(s, format string, into ...any) bool {
	n, err := fmt.Sscanf(s, format, into...)
	return err == nil && n == len(into)
}

func wantError(t *testing.T, what string, err error, expect string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, expected %s", what, expect)
		return
	}
	for _, class := range regexp.MustCompile(`[A-Z]+(?:_[A-Z]+)+(?:\.[A-Z_]+)?`).FindAllString(expect, -1) {
		var is *deltalog.ClassError
		if !strings.Contains(err.Error(), class) || strings.HasPrefix(class, "DELTA_") && (!errors.As(err, &is) || is.SQLState() == "") {
			t.Errorf("%s: %v, expected %s", what, err, expect)
		}
	}
}

func checkSummary(t *testing.T, dir string, snap *deltalog.Snapshot) {
	t.Helper()
	var want goldenSummary
	readJSON(t, filepath.Join(dir, "expected", "summary.json"), &want)
	names := []string{}
	for _, f := range snap.Schema().Fields {
		names = append(names, f.Name)
	}
	if snap.Version() != want.Version || snap.NumFiles() != want.NumFiles || snap.Size() != want.SizeInBytes {
		t.Errorf("version %d, %d files, %d bytes, expected %d, %d, %d", snap.Version(), snap.NumFiles(), snap.Size(), want.Version, want.NumFiles, want.SizeInBytes)
	}
	if !slices.Equal(names, want.Columns) {
		t.Errorf("columns %v, expected %v", names, want.Columns)
	}
	if snap.Metadata().ID != want.TableID {
		t.Errorf("table id %s, expected %s", snap.Metadata().ID, want.TableID)
	}
	for app, v := range want.Txns {
		if txn, ok := snap.Txn(app); !ok || fmt.Sprint(txn.Version) != v.String() {
			t.Errorf("txn of %s is %+v, expected %s", app, txn, v)
		}
	}
}

// feed is the change rows of versions, without their times.
func feed(ctx context.Context, tab *deltalog.Table, start, end int64) ([]string, error) {
	var out []string
	for b, err := range cdf.Read(ctx, tab, cdf.Range{StartVersion: &start, EndVersion: &end}, nil) {
		if err != nil {
			return nil, err
		}
		out = append(out, plainRows(b.Rows, func(i int, row map[string]any) {
			row["_change_type"], row["_commit_version"] = b.ChangeType(i), json.Number(fmt.Sprint(b.Version))
		})...)
	}
	return out, nil
}

// plainRows are the rows as text that is equal for equal rows.
func plainRows(rec arrow.RecordBatch, more func(i int, row map[string]any)) []string {
	out := make([]string, rec.NumRows())
	for i := range out {
		row := map[string]any{}
		for c, f := range rec.Schema().Fields() {
			row[f.Name] = plainValue(rec.Column(c), i)
		}
		if more != nil {
			more(i, row)
		}
		out[i] = plainText(row)
	}
	return out
}

// plainValue is a value as the golden rows have it: times and dates as text, decimals exact, binary escaped.
func plainValue(a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.Binary:
		var b strings.Builder
		for _, c := range a.Value(i) {
			if c < 0x20 || c >= 0x7f || c == '\\' || c == '"' || c == '\'' {
				fmt.Fprintf(&b, "\\x%02X", c)
			} else {
				b.WriteByte(c)
			}
		}
		return b.String()
	case *array.Float32:
		return float64(a.Value(i))
	case *array.Float64:
		return a.Value(i)
	case *array.Date32:
		return a.Value(i).ToTime().Format(time.DateOnly)
	case *array.Timestamp:
		text := strings.TrimSuffix(strings.TrimRight(time.UnixMicro(int64(a.Value(i))).UTC().Format("2006-01-02 15:04:05.000000"), "0"), ".")
		if a.DataType().(*arrow.TimestampType).TimeZone != "" {
			text += "+00"
		}
		return text
	case *array.Decimal128:
		return json.Number(a.Value(i).ToString(a.DataType().(*arrow.Decimal128Type).Scale))
	case *array.Map:
		out := map[string]any{}
		from, to := a.ValueOffsets(i)
		for j := from; j < to; j++ {
			out[fmt.Sprint(plainValue(a.Keys(), int(j)))] = plainValue(a.Items(), int(j))
		}
		return out
	case *array.List:
		out := []any{}
		from, to := a.ValueOffsets(i)
		for j := from; j < to; j++ {
			out = append(out, plainValue(a.ListValues(), int(j)))
		}
		return out
	case *array.Struct:
		out := map[string]any{}
		for c := range a.NumField() {
			out[a.DataType().(*arrow.StructType).Field(c).Name] = plainValue(a.Field(c), i)
		}
		return out
	case *array.String:
		return a.Value(i)
	case *array.Boolean:
		return a.Value(i)
	}
	return json.Number(a.ValueStr(i))
}

// plainText writes a value with its keys in order and its numbers in one form, so that 1, 1.0 and 1e0 are the same.
func plainText(v any) string {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		parts := make([]string, len(keys))
		for i, k := range keys {
			parts[i] = strconv.Quote(plainKey(k)) + ": " + plainText(v[k])
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = plainText(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
		return plainText(json.Number(strconv.FormatFloat(v, 'g', -1, 64)))
	case json.Number:
		if r, ok := new(big.Rat).SetString(v.String()); ok {
			return r.RatString()
		}
		return v.String()
	case string:
		if f, err := strconv.ParseFloat(v, 64); err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
			return fmt.Sprint(f)
		}
		return strconv.Quote(v)
	}
	return fmt.Sprint(v)
}

// plainKey is a key of an object: that of a map may be a number.
func plainKey(k string) string {
	if r, ok := new(big.Rat).SetString(k); ok {
		return r.RatString()
	}
	return k
}

func wantedRows(t *testing.T, path string) []map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.UseNumber()
		var row map[string]any
		if err := dec.Decode(&row); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, row)
	}
	return out
}

func compareGolden(t *testing.T, name string, got []string, wanted []map[string]any, ignore string) {
	t.Helper()
	want := make([]string, len(wanted))
	for i, row := range wanted {
		want[i] = plainText(row)
	}
	if ignore != "" {
		cut := regexp.MustCompile(strconv.Quote(ignore) + `: ("[^"]*"|[^,}]*)`)
		for _, rows := range [][]string{got, want} {
			for i := range rows {
				rows[i] = cut.ReplaceAllString(rows[i], "")
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if slices.Equal(got, want) {
		return
	}
	t.Errorf("%s: %d rows, expected %d%s", name, len(got), len(want), firstDifference(got, want))
}

func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return "\n missing " + want[i]
		case i >= len(want):
			return "\n too many " + got[i]
		case got[i] != want[i]:
			return "\n     got " + got[i] + "\nexpected " + want[i]
		}
	}
	return ""
}

// fingerprint is every file of a directory with its size and time.
func fingerprint(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			fmt.Fprintf(&out, "%s %d %s\n", path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}
