package cdf

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/deltalog/verify"
)

// soakEnv makes the metamorphic test run for so long, such as "10m", instead of a few seeds; seedEnv runs one seed.
const (
	soakEnv = "DELTABUS_SOAK"
	seedEnv = "DELTABUS_SEED"
)

// TestRandomOperations: random operations under random options leave the rows and the feed that a plain model of lists has. A failure names its
// seed; DELTABUS_SEED=n runs it again.
func TestRandomOperations(t *testing.T) {
	t.Parallel()
	if s := os.Getenv(seedEnv); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		randomOperations(t, seed, 200)
		return
	}
	if s := os.Getenv(soakEnv); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		seed := rand.Uint64()
		for end := time.Now().Add(d); time.Now().Before(end) && !t.Failed(); seed++ {
			randomOperations(t, seed, 200)
		}
		return
	}
	for seed := range uint64(16) {
		randomOperations(t, seed, 60)
	}
}

// modelRow is a row as the model has it; p "" is null.
type modelRow struct {
	id int64
	p  string
	n  int64
}

// model is the table and the operations on it.
type model struct {
	t     *testing.T
	r     *rand.Rand
	tab   *deltalog.Table
	st    store.Store
	opts  deltalog.Options
	parts bool
	extra int // columns added, null in every row
	rows  []modelRow
	feed  map[int64][]string // by version, as "type|id|p|n"
	steps []string
}

func randomOperations(t *testing.T, seed uint64, steps int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	m := &model{t: t, r: r, st: store.NewMemory(), parts: r.IntN(2) == 0, feed: map[int64][]string{}}
	m.opts = deltalog.Options{CheckpointInterval: []int64{-1, 1, 3, 10}[r.IntN(4)]}
	spec := deltalog.TableSpec{Configuration: map[string]string{"delta.enableChangeDataFeed": "true"}}
	if m.parts {
		spec.PartitionColumns = []string{"p"}
	}
	for _, c := range []string{"id BIGINT NOT NULL", "p STRING", "n BIGINT NOT NULL"} {
		f, err := deltalog.ParseColumn(c)
		if err != nil {
			t.Fatal(err)
		}
		spec.Schema.Fields = append(spec.Schema.Fields, f)
	}
	var err error
	if m.tab, err = deltalog.Create(context.Background(), m.st, spec, m.opts); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.tab.Close() }()
	operations := []struct {
		name string
		do   func() (version int64, err error)
	}{
		{"append", m.append},
		{"delete", m.delete},
		{"delete partition", m.deletePartition},
		{"update", m.update},
		{"overwrite", m.overwrite},
		{"overwrite partitions", m.overwritePartitions},
		{"replace", m.replace},
		{"merge", m.merge},
		{"merge", m.merge},
		{"optimize", m.optimize},
		{"open anew", m.reopen},
		{"add a column", m.addColumn},
	}
	for step := range steps {
		op := operations[r.IntN(len(operations))]
		if r.IntN(2) == 0 { // most operations leave few files behind, and are of interest where there are many
			op = operations[0]
		}
		m.steps = append(m.steps, op.name)
		before := m.tab.Cached().Version()
		version, err := op.do()
		if err == nil {
			err = m.check(before, version)
		}
		if err == nil && step == steps-1 {
			err = m.audit()
		}
		if err != nil {
			t.Errorf("seed %d, step %d (%s): %v\nsteps: %s", seed, step, op.name, err, strings.Join(m.steps, ", "))
			return
		}
	}
}

func (m *model) text(r modelRow) string { return fmt.Sprintf("%d|%s|%d", r.id, r.p, r.n) }

// changed notes changes of the version that is made next.
func (m *model) changed(kind string, rows ...modelRow) {
	next := m.tab.Cached().Version() + 1
	for _, r := range rows {
		m.feed[next] = append(m.feed[next], kind+"|"+m.text(r))
	}
}

func (m *model) random() modelRow {
	return modelRow{m.r.Int64N(24), []string{"", "a", "b/c d", "é"}[m.r.IntN(4)], m.r.Int64N(100)}
}

func (m *model) some(most int) []modelRow {
	out := make([]modelRow, m.r.IntN(most+1))
	for i := range out {
		out[i] = m.random()
	}
	return out
}

func (m *model) batch(rows []modelRow) arrow.RecordBatch {
	schema, err := deltalog.ArrowSchema(m.tab.Cached().Schema())
	if err != nil {
		m.t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for _, r := range rows {
		b.Field(0).(*array.Int64Builder).Append(r.id)
		if r.p == "" {
			b.Field(1).AppendNull()
		} else {
			b.Field(1).(*array.StringBuilder).Append(r.p)
		}
		b.Field(2).(*array.Int64Builder).Append(r.n)
		for i := range m.extra {
			b.Field(3 + i).AppendNull()
		}
	}
	return b.NewRecordBatch()
}

// batches cuts rows into one or two.
func (m *model) batches(rows []modelRow) []arrow.RecordBatch {
	at := m.r.IntN(len(rows) + 1)
	return []arrow.RecordBatch{m.batch(rows[:at]), m.batch(rows[at:])}
}

func rowAt(rec arrow.RecordBatch, i int) modelRow {
	p := rec.Column(1).(*array.String)
	r := modelRow{id: rec.Column(0).(*array.Int64).Value(i), n: rec.Column(2).(*array.Int64).Value(i)}
	if !p.IsNull(i) {
		r.p = p.Value(i)
	}
	return r
}

// where makes a predicate of a condition on a row.
func where(f func(modelRow) bool) deltalog.Predicate {
	return func(rec arrow.RecordBatch) ([]bool, error) {
		out := make([]bool, rec.NumRows())
		for i := range out {
			out[i] = f(rowAt(rec, i))
		}
		return out, nil
	}
}

// assign makes an Assign of a function of a row.
func (m *model) assign(f func(modelRow) modelRow) deltalog.Assign {
	return func(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
		rows := make([]modelRow, rec.NumRows())
		for i := range rows {
			rows[i] = f(rowAt(rec, i))
		}
		return m.batch(rows), nil
	}
}

// condition selects about a third, all or none of the rows.
func (m *model) condition() func(modelRow) bool {
	a, b := m.r.Int64N(5), m.r.Int64N(4)
	return func(r modelRow) bool { return a == 4 || (r.id+r.n)%(a+1) == b }
}

func (m *model) split(f func(modelRow) bool) (yes, no []modelRow) {
	for _, r := range m.rows {
		if f(r) {
			yes = append(yes, r)
		} else {
			no = append(no, r)
		}
	}
	return yes, no
}

func versionOf(done *deltalog.RowChanges, err error) (int64, error) {
	if err != nil || done.Commit == nil {
		return -1, err
	}
	return done.Commit.Version, nil
}

func (m *model) append() (int64, error) {
	rows := m.some(3)
	m.changed(Insert, rows...)
	c, err := m.tab.Append(context.Background(), m.batches(rows), "WRITE")
	if err != nil {
		return 0, err
	}
	m.rows = append(m.rows, rows...)
	return c.Version, nil
}

func (m *model) delete() (int64, error) {
	f := m.condition()
	gone, kept := m.split(f)
	m.changed(Delete, gone...)
	m.rows = kept
	return versionOf(m.tab.Delete(context.Background(), deltalog.Condition{Where: where(f)}))
}

func (m *model) deletePartition() (int64, error) {
	if !m.parts {
		return m.delete()
	}
	c := deltalog.Condition{Partition: map[string]string{"p": "b/c d"}}
	f := func(r modelRow) bool { return r.p == "b/c d" }
	if m.r.IntN(2) == 0 {
		narrow := m.condition()
		c.Where, f = where(narrow), func(r modelRow) bool { return r.p == "b/c d" && narrow(r) }
	}
	gone, kept := m.split(f)
	m.changed(Delete, gone...)
	m.rows = kept
	return versionOf(m.tab.Delete(context.Background(), c))
}

func (m *model) update() (int64, error) {
	f, p := m.condition(), m.random().p
	set := func(r modelRow) modelRow { return modelRow{r.id, p, r.n + 1} }
	for i, r := range m.rows {
		if f(r) {
			m.rows[i] = set(r)
			m.changed(UpdatePreimage, r)
			m.changed(UpdatePostimage, m.rows[i])
		}
	}
	return versionOf(m.tab.Update(context.Background(), deltalog.Condition{Where: where(f)}, m.assign(set)))
}

func (m *model) overwrite() (int64, error) {
	rows := m.some(12)
	m.changed(Delete, m.rows...)
	m.changed(Insert, rows...)
	m.rows = slices.Clone(rows)
	return versionOf(m.tab.Overwrite(context.Background(), m.batches(rows)))
}

func (m *model) overwritePartitions() (int64, error) {
	rows := m.some(4)
	gone, kept := m.split(func(old modelRow) bool {
		return !m.parts || slices.ContainsFunc(rows, func(r modelRow) bool { return r.p == old.p })
	})
	m.changed(Delete, gone...)
	m.changed(Insert, rows...)
	m.rows = append(kept, rows...)
	return versionOf(m.tab.OverwritePartitions(context.Background(), m.batches(rows)))
}

func (m *model) replace() (int64, error) {
	f := m.condition()
	var rows []modelRow
	for _, r := range m.some(8) {
		if f(r) {
			rows = append(rows, r)
		}
	}
	gone, kept := m.split(f)
	m.changed(Delete, gone...)
	m.changed(Insert, rows...)
	m.rows = append(kept, rows...)
	return versionOf(m.tab.ReplaceWhere(context.Background(), deltalog.Condition{Where: where(f)}, m.batches(rows)))
}

// merge deletes matched rows whose source has an even n, updates the others, inserts what is new, and may touch rows that the source lacks.
func (m *model) merge() (int64, error) {
	source := map[int64]modelRow{}
	for _, r := range m.some(8) {
		source[r.id] = r
	}
	even := func(r modelRow) bool { return r.n%2 == 0 }
	lacking, bySource, inserts := m.condition(), m.r.IntN(3), m.r.IntN(3) > 0
	bump := func(r modelRow) modelRow { return modelRow{r.id, r.p, r.n + 1000} }
	merge := deltalog.Merge{SourceKey: deltalog.KeyColumns("id"), TargetKey: deltalog.KeyColumns("id")}
	merge.Matched = []deltalog.MatchedClause{
		{When: func(p deltalog.Pairs) ([]bool, error) { return where(even)(p.Source) }},
		{Update: func(p deltalog.Pairs) (arrow.RecordBatch, error) { return p.Source, nil }},
	}
	var rows []modelRow
	for _, r := range m.rows {
		s, matched := source[r.id]
		switch {
		case matched && even(s), !matched && bySource == 1 && lacking(r):
			m.changed(Delete, r)
			continue
		case matched:
			m.changed(UpdatePreimage, r)
			m.changed(UpdatePostimage, s)
			r = s
		case bySource == 2 && lacking(r):
			m.changed(UpdatePreimage, r)
			r = bump(r)
			m.changed(UpdatePostimage, r)
		}
		rows = append(rows, r)
	}
	var all []modelRow
	for id := range int64(24) {
		s, ok := source[id]
		if !ok {
			continue
		}
		all = append(all, s)
		if inserts && !slices.ContainsFunc(m.rows, func(r modelRow) bool { return r.id == id }) {
			rows = append(rows, s)
			m.changed(Insert, s)
		}
	}
	merge.Source = m.batches(all)
	if inserts {
		merge.NotMatched = []deltalog.NotMatchedClause{{Insert: func(rec arrow.RecordBatch) (arrow.RecordBatch, error) { return rec, nil }}}
	}
	switch bySource {
	case 1:
		merge.NotMatchedBySource = []deltalog.NotMatchedBySourceClause{{When: where(lacking)}}
	case 2:
		merge.NotMatchedBySource = []deltalog.NotMatchedBySourceClause{{When: where(lacking), Update: m.assign(bump)}}
	}
	m.rows = rows
	return versionOf(m.tab.Merge(context.Background(), merge))
}

func (m *model) optimize() (int64, error) {
	done, err := m.tab.Optimize(context.Background(), deltalog.OptimizeOptions{})
	if err != nil {
		return 0, err
	}
	return done.Version, nil
}

// reopen reads the table from its log, and from a checkpoint if there is one.
func (m *model) reopen() (int64, error) {
	err := m.tab.Close()
	if err == nil {
		m.tab, err = deltalog.Open(context.Background(), m.st, m.opts)
	}
	return -1, err
}

func (m *model) addColumn() (int64, error) {
	if m.extra == 3 {
		return -1, nil
	}
	f, err := deltalog.ParseColumn(fmt.Sprintf("x%d STRING", m.extra))
	if err != nil {
		return 0, err
	}
	c, err := m.tab.AddColumns(context.Background(), deltalog.NewColumn{Field: f})
	if err != nil {
		return 0, err
	}
	m.extra++
	return c.Version, nil
}

// check compares the table and the feed of the version that was made, if one was, with the model.
func (m *model) check(before, version int64) error {
	now := m.tab.Cached()
	switch {
	case version < 0 && (now.Version() != before || len(m.feed[before+1]) > 0):
		return fmt.Errorf("version %d after %d, changes %v", now.Version(), before, m.feed[before+1])
	case version >= 0 && (version != before+1 || now.Version() != version):
		return fmt.Errorf("made version %d after %d, the table is at %d", version, before, now.Version())
	}
	var got, want []string
	for rec, err := range m.tab.Scan(context.Background(), now, nil, nil) {
		if err != nil {
			return err
		}
		for i := range int(rec.NumRows()) {
			got = append(got, m.text(rowAt(rec, i)))
		}
		for i := range m.extra {
			if c := rec.Column(3 + i); c.NullN() != c.Len() {
				return fmt.Errorf("column %s has values", rec.ColumnName(3+i))
			}
		}
	}
	for _, r := range m.rows {
		want = append(want, m.text(r))
	}
	if err := same("rows", got, want); err != nil {
		return err
	}
	if version < 0 {
		return nil
	}
	return m.checkFeed(version, version)
}

func (m *model) checkFeed(from, to int64) error {
	got := map[int64][]string{}
	for b, err := range Read(context.Background(), m.tab, versions(from, to), nil) {
		if err != nil {
			return err
		}
		for i := range int(b.Rows.NumRows()) {
			got[b.Version] = append(got[b.Version], b.ChangeType(i)+"|"+m.text(rowAt(b.Rows, i)))
		}
	}
	for v := from; v <= to; v++ {
		if err := same(fmt.Sprintf("feed of version %d", v), got[v], m.feed[v]); err != nil {
			return err
		}
	}
	return nil
}

// audit looks at the whole at the end.
func (m *model) audit() error {
	if err := m.checkFeed(0, m.tab.Cached().Version()); err != nil {
		return err
	}
	if err := m.tab.Close(); err != nil { // background work may still write
		return err
	}
	report, err := verify.Verify(context.Background(), m.st)
	if err == nil && len(report.Problems) > 0 {
		err = fmt.Errorf("verify: %s", strings.Join(report.Problems, "; "))
	}
	return err
}

func same(what string, got, want []string) error {
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s:\ngot  %v\nwant %v", what, got, want)
	}
	return nil
}
