package deltalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// ErrMultipleMatches says that a MERGE would change one row of the table by several rows of its source.
var ErrMultipleMatches = errors.New("several rows of the source match one row of the table")

// Pairs are rows of the table and the rows of the source that they matched: row i of one with row i of the other.
type Pairs struct{ Target, Source arrow.RecordBatch }

// MatchedClause is WHEN MATCHED [AND When] THEN UPDATE or DELETE.
type MatchedClause struct {
	// When tells which pairs the clause is for, one answer a pair; nil: all that no clause before took.
	When func(Pairs) ([]bool, error)
	// Update makes new rows, as Assign does, of the target's; nil deletes them.
	Update func(Pairs) (arrow.RecordBatch, error)
	// SQL is When as commitInfo tells it.
	SQL string
}

// NotMatchedClause is WHEN NOT MATCHED [AND When] THEN INSERT, for rows of the source.
type NotMatchedClause struct {
	When Predicate
	// Insert makes rows of the table of rows of the source. Required.
	Insert Assign
	SQL    string
}

// NotMatchedBySourceClause is WHEN NOT MATCHED BY SOURCE [AND When] THEN UPDATE or DELETE, for rows of the table.
type NotMatchedBySourceClause struct {
	When Predicate
	// Update makes new rows; nil deletes them.
	Update Assign
	SQL    string
}

// Merge is what Table.Merge does. A row is for the first clause of its kind that takes it; without one it stays as it is.
type Merge struct {
	// Partition narrows the table to files with these partition values, as for FilesIn. Rows elsewhere are taken not to match.
	Partition map[string]string
	// MayMatch, if set, says of a file whether it may hold rows that match, or that a clause for rows without a source is for; as for Condition.
	MayMatch func(*Add) bool
	// Source are rows with any columns, the same in every batch. They are held in memory.
	Source []arrow.RecordBatch
	// SourceKey and TargetKey give keys; rows with equal keys match if On says so too (nil: they do). Without key functions every row matches every
	// other that On lets it, which costs as much as it sounds.
	SourceKey, TargetKey KeyFunc
	On                   func(Pairs) ([]bool, error)
	// SQL is the condition of the match as commitInfo tells it.
	SQL string

	Matched            []MatchedClause
	NotMatched         []NotMatchedClause
	NotMatchedBySource []NotMatchedBySourceClause
}

// Merge merges a source into the table. Only files with rows that are updated or deleted are written anew; then the change data feed has all
// four kinds of changes in change files. Inserts alone are appended. If nothing is to be done nothing is committed. Several rows of the source that
// change one row are ErrMultipleMatches, unless the only clause for matched rows deletes all of them. Conflicts are as for Delete.
func (t *Table) Merge(ctx context.Context, m Merge) (*RowChanges, error) {
	done, err := t.mergeRows(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("merge into %s: %w", t.st.URL(""), err)
	}
	return done, nil
}

func (t *Table) mergeRows(ctx context.Context, m Merge) (*RowChanges, error) {
	for _, c := range m.NotMatched {
		if c.Insert == nil {
			return nil, errors.New("a clause for rows that do not match has no Insert")
		}
	}
	op, err := t.startRows(ctx, "MERGE", len(m.Matched)+len(m.NotMatchedBySource) > 0)
	if err != nil {
		return nil, err
	}
	if err := op.read(m.Partition); err != nil {
		return nil, err
	}
	j, err := newJoin(&m)
	if err != nil {
		return nil, err
	}
	run := merging{Merge: m, op: op, join: j}
	if j.rows > 0 || len(m.NotMatchedBySource) > 0 {
		for add := range op.filesFor(Condition{Partition: m.Partition, MayMatch: m.MayMatch}) {
			if err := run.file(ctx, add); err != nil {
				return nil, err
			}
		}
	}
	op.explicit = op.done.Updated+op.done.Deleted > 0
	op.derived = !op.explicit
	if err := run.inserts(ctx); err != nil {
		return nil, err
	}
	if op.nothing() {
		return &op.done, nil
	}
	if err := op.flush(ctx); err != nil {
		return nil, err
	}
	op.tx.Parameters, op.tx.Metrics = m.parameters(), run.metrics()
	return op.commit(ctx)
}

// merging is a MERGE in progress.
type merging struct {
	Merge
	op   *rowOperation
	join *join

	matchedUpdated, matchedDeleted, bySourceUpdated, bySourceDeleted int64
}

// What becomes of a row of the table.
const (
	stays = iota
	goes
	changes
)

// file merges into the rows of one file.
func (m *merging) file(ctx context.Context, add *Add) error {
	var kept pending
	touched := false
	for rec, err := range m.op.readFile(ctx, add) {
		if err != nil {
			return err
		}
		fate, err := m.batch(ctx, rec)
		if err != nil {
			return err
		}
		var staying, going []int
		for i, f := range fate {
			switch f {
			case stays:
				staying = append(staying, i)
			case goes:
				going = append(going, i)
			}
		}
		if len(staying) == len(fate) {
			kept.add(rec)
			continue
		}
		touched = true
		rows, err := take(rec, staying)
		if err != nil {
			return err
		}
		kept.add(rows)
		gone, err := take(rec, going)
		if err != nil {
			return err
		}
		if err := m.op.change(ctx, ChangeDelete, gone); err != nil {
			return err
		}
	}
	if !touched {
		return nil
	}
	m.op.remove(add)
	m.op.copied += kept.rows
	return m.op.write(ctx, kept.batches...)
}

// batch decides about the rows of a batch of the table, and writes the new rows of those that change.
func (m *merging) batch(ctx context.Context, rec arrow.RecordBatch) (fate []int, err error) {
	fate = make([]int, rec.NumRows())
	left, err := m.join.with(rec)
	if err != nil {
		return nil, err
	}
	matched := make([]bool, rec.NumRows())
	for _, p := range left {
		matched[p.target] = true
	}
	// A clause that deletes whatever matches may meet a row several times.
	deletesAll := len(m.Matched) == 1 && m.Matched[0].When == nil && m.Matched[0].Update == nil
	for _, c := range m.Matched {
		var mine []pair
		if mine, left, err = m.join.choose(rec, left, c.When); err != nil {
			return nil, err
		}
		var once []pair
		for _, p := range mine {
			if fate[p.target] != stays {
				if deletesAll {
					continue
				}
				return nil, NewClassError("DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE", ErrMultipleMatches, "and change it: give each key once")
			}
			fate[p.target] = goes
			if c.Update != nil {
				fate[p.target] = changes
			}
			once = append(once, p)
		}
		n := int64(len(once))
		if c.Update == nil {
			m.matchedDeleted += n
			m.op.done.Deleted += n
			continue
		}
		if n == 0 {
			continue
		}
		pairs, err := m.join.pairs(rec, once)
		if err != nil {
			return nil, err
		}
		m.matchedUpdated += n
		if err := m.update(ctx, pairs.Target, func(arrow.RecordBatch) (arrow.RecordBatch, error) { return c.Update(pairs) }); err != nil {
			return nil, err
		}
	}
	var alone []int
	for i, yes := range matched {
		if !yes {
			alone = append(alone, i)
		}
	}
	return fate, m.unmatched(ctx, rec, alone, fate)
}

// unmatched decides about rows of the table that no row of the source matches.
func (m *merging) unmatched(ctx context.Context, rec arrow.RecordBatch, alone, fate []int) error {
	for _, c := range m.NotMatchedBySource {
		if len(alone) == 0 {
			return nil
		}
		rows, err := take(rec, alone)
		if err != nil {
			return err
		}
		mine, others, err := selectRows(c.When, rows)
		if err != nil {
			return err
		}
		for _, i := range mine {
			fate[alone[i]] = goes
			if c.Update != nil {
				fate[alone[i]] = changes
			}
		}
		n := int64(len(mine))
		if c.Update == nil {
			m.bySourceDeleted += n
			m.op.done.Deleted += n
		} else if n > 0 {
			before, err := take(rows, mine)
			if err != nil {
				return err
			}
			m.bySourceUpdated += n
			if err := m.update(ctx, before, c.Update); err != nil {
				return err
			}
		}
		rest := make([]int, len(others))
		for i, at := range others {
			rest[i] = alone[at]
		}
		alone = rest
	}
	return nil
}

func (m *merging) update(ctx context.Context, before arrow.RecordBatch, assign Assign) error {
	after, err := m.op.assign(ctx, before, assign)
	if err != nil {
		return err
	}
	m.op.done.Updated += before.NumRows()
	return m.op.write(ctx, after)
}

// inserts inserts rows of the source that matched nothing.
func (m *merging) inserts(ctx context.Context) error {
	rows, err := m.join.unmatched()
	if err != nil {
		return err
	}
	for _, c := range m.NotMatched {
		if rows == nil || rows.NumRows() == 0 {
			return nil
		}
		p, err := partRows(rows, c.When)
		if err != nil {
			return err
		}
		rows = p.others
		if p.selected.NumRows() == 0 {
			continue
		}
		fresh, err := c.Insert(p.selected)
		if err != nil {
			return err
		}
		if fresh.NumRows() != p.selected.NumRows() {
			return fmt.Errorf("the insert made %d rows of %d", fresh.NumRows(), p.selected.NumRows())
		}
		if err := m.op.insert(ctx, fresh); err != nil {
			return err
		}
	}
	return nil
}

// clause is a clause as operationParameters has it.
type clause struct {
	Predicate  string `json:"predicate,omitempty"`
	ActionType string `json:"actionType"`
}

func action(deletes bool) string {
	if deletes {
		return "delete"
	}
	return "update"
}

func (m *Merge) parameters() map[string]any {
	matched, notMatched, bySource := []clause{}, []clause{}, []clause{}
	for _, c := range m.Matched {
		matched = append(matched, clause{c.SQL, action(c.Update == nil)})
	}
	for _, c := range m.NotMatched {
		notMatched = append(notMatched, clause{c.SQL, "insert"})
	}
	for _, c := range m.NotMatchedBySource {
		bySource = append(bySource, clause{c.SQL, action(c.Update == nil)})
	}
	return map[string]any{
		"predicate": predicates(m.SQL), "matchedPredicates": string(mustJSON(matched)),
		"notMatchedPredicates": string(mustJSON(notMatched)), "notMatchedBySourcePredicates": string(mustJSON(bySource)),
	}
}

func (m *merging) metrics() map[string]string {
	out := map[string]string{
		"numTargetDeletionVectorsAdded": "0", "numTargetDeletionVectorsUpdated": "0", "numTargetDeletionVectorsRemoved": "0",
	}
	added, removed := m.op.fileBytes()
	for name, n := range map[string]int64{
		"numSourceRows": int64(m.join.rows), "numOutputRows": m.op.outputRows,
		"numTargetRowsCopied": m.op.copied, "numTargetRowsInserted": m.op.done.Inserted,
		"numTargetRowsUpdated": m.op.done.Updated, "numTargetRowsDeleted": m.op.done.Deleted,
		"numTargetRowsMatchedUpdated": m.matchedUpdated, "numTargetRowsMatchedDeleted": m.matchedDeleted,
		"numTargetRowsNotMatchedBySourceUpdated": m.bySourceUpdated, "numTargetRowsNotMatchedBySourceDeleted": m.bySourceDeleted,
		"numTargetFilesAdded": int64(len(m.op.tx.Adds)), "numTargetFilesRemoved": int64(len(m.op.tx.Removes)),
		"numTargetBytesAdded": added, "numTargetBytesRemoved": removed,
		"numTargetChangeFilesAdded": int64(len(m.op.tx.Changes)), "executionTimeMs": m.op.took(),
	} {
		set(out, name, n)
	}
	return out
}
