package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/deltabus"
)

// logRow is a row of messages as the harness reads it: without the bus, so that the bus cannot hide what it does wrong.
type logRow struct {
	at  int64
	rec Record
}

var rowColumns = []string{"message_id", "topic", "producer_id", "producer_seq", "published_at", "headers"}

func readRow(b arrow.RecordBatch, i int, version int64) logRow {
	text := func(c int) string { return string([]byte(b.Column(c).(*array.String).Value(i))) }
	r := logRow{
		at: int64(b.Column(4).(*array.Timestamp).Value(i)),
		rec: Record{
			Process: "harness", Kind: KindRow, ID: text(0), Topic: text(1), Producer: text(2),
			Seq: b.Column(3).(*array.Int64).Value(i), Version: version,
		},
	}
	headers := b.Column(5).(*array.Map)
	if headers.IsNull(i) {
		return r
	}
	from, to := headers.ValueOffsets(i)
	keys, values := headers.Keys().(*array.String), headers.Items().(*array.String)
	for j := int(from); j < int(to); j++ {
		v := string([]byte(values.Value(j)))
		switch keys.Value(j) {
		case deltabus.HeaderReplayTo:
			r.rec.ReplayTo = v
		case deltabus.HeaderDeadLetterID:
			r.rec.Origin = v
		case deltabus.HeaderReplayNumber:
			r.rec.Replay, _ = strconv.Atoi(v)
		}
	}
	return r
}

// recordRows puts the log into the history, in the order of docs/design.md.
func (e *env) recordRows() error {
	t := e.bus.Messages()
	snap, err := t.Snapshot(e.ctx)
	if err != nil {
		return err
	}
	first := int64(0)
	if e.backfilled != nil {
		first = *e.backfilled + 1
		old, err := t.SnapshotAt(e.ctx, *e.backfilled)
		if err != nil {
			return err
		}
		var rows []logRow
		for b, err := range t.Scan(e.ctx, old, rowColumns, nil) {
			if err != nil {
				return err
			}
			for i := range int(b.NumRows()) {
				rows = append(rows, readRow(b, i, *e.backfilled))
			}
		}
		e.addRows(rows)
	}
	for v := first; v <= snap.Version(); v++ {
		var rows []logRow
		for b, err := range cdf.Read(e.ctx, t, cdf.Range{StartVersion: &v, EndVersion: &v}, rowColumns) {
			if err != nil {
				return fmt.Errorf("read the log at version %d: %w", v, err)
			}
			for i := range int(b.Rows.NumRows()) {
				rows = append(rows, readRow(b.Rows, i, v))
			}
		}
		e.addRows(rows)
	}
	return nil
}

// addRows records the rows of one version in its order.
func (e *env) addRows(rows []logRow) {
	slices.SortFunc(rows, func(a, b logRow) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rec.Producer, b.rec.Producer), cmp.Compare(a.rec.Seq, b.rec.Seq), cmp.Compare(a.rec.ID, b.rec.ID))
	})
	for i, r := range rows {
		r.rec.Position = int64(i)
		e.h.Add(r.rec)
	}
}
