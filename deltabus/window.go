package deltabus

import (
	"context"
	"errors"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/deltabus/deltabus-local/cdf"
)

// window remembers the last ids, up to limit.
type window struct {
	limit int
	ids   map[string]struct{}
	ring  []string
	next  int
}

func newWindow(limit int) *window { return &window{limit: limit, ids: map[string]struct{}{}} }

func (w *window) has(id string) bool {
	_, ok := w.ids[id]
	return ok
}

func (w *window) add(id string) {
	if w.limit == 0 || w.has(id) {
		return
	}
	if len(w.ring) < w.limit {
		w.ring = append(w.ring, id)
	} else {
		delete(w.ids, w.ring[w.next])
		w.ring[w.next] = id
		w.next = (w.next + 1) % w.limit
	}
	w.ids[id] = struct{}{}
}

// maxWindowVersions bounds how many versions a start reads back for the dedup window: where each has one event, reading a whole window back
// would take seconds.
const maxWindowVersions = 10_000

// remember fills the dedup window with what was settled in the versions before the checkpoint. What was settled of the version (or the backfill) that
// the checkpoint is within follows when its rows are read again.
func (c *Consumer) remember(ctx context.Context) error {
	if c.o.dedup == 0 || c.at.Version < 0 {
		return nil
	}
	var ids [][]string // newest version first
	total := 0
	for v := c.at.Version; v > max(c.at.Since, c.at.Version-maxWindowVersions) && total < c.o.dedup; v-- {
		got, err := insistOn(ctx, c, "read messages", func() ([]string, error) { return c.idsOf(ctx, v) })
		if errors.Is(err, cdf.ErrExpired) || errors.Is(err, cdf.ErrRewritten) || errors.Is(err, cdf.ErrNotEnabled) {
			break // as far back as the feed goes
		}
		if err != nil {
			return err
		}
		ids = append(ids, got)
		total += len(got)
	}
	for i := len(ids) - 1; i >= 0; i-- {
		for _, id := range ids[i] {
			c.seen.add(id)
		}
	}
	return nil
}

// idsOf is the ids of a version that this consumer wants, in any order.
func (c *Consumer) idsOf(ctx context.Context, version int64) ([]string, error) {
	v, err := c.bus.backend.follow(version-1, []string{"topic", "headers", "message_id"}).Next(ctx)
	if err != nil || v == nil {
		return nil, err
	}
	var out []string
	for batch, err := range v.Inserts() {
		if err != nil {
			return nil, err
		}
		for i := range int(batch.Rows.NumRows()) {
			if c.wantsRow(batch.Rows, i) {
				out = append(out, strings.Clone(batch.Rows.Column(2).(*array.String).Value(i)))
			}
		}
	}
	return out, nil
}
