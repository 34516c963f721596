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
// the checkpoint is within follows when its rows are read again. What is no longer there to be read is not remembered.
func (c *Consumer) remember(ctx context.Context) error {
	after := max(c.at.Since, c.at.Version-maxWindowVersions)
	if c.o.dedup == 0 || after >= c.at.Version {
		return nil
	}
	first, err := insistOn(ctx, c, "read messages", func() (int64, error) {
		v, _, err := c.bus.backend.earliest(ctx)
		return v, err
	})
	if err != nil {
		return err
	}
	var f feed // one reads them all: to begin at a version costs a look at the table as it was then
	for v := max(first, after+1); v <= c.at.Version; v++ {
		ids, err := insistOn(ctx, c, "read messages", func() (ids []string, err error) {
			if f == nil {
				f = c.bus.backend.follow(v-1, []string{"topic", "headers", "message_id"})
			}
			if ids, err = c.nextIDs(ctx, f); err != nil {
				f = nil
			}
			return ids, err
		})
		if errors.Is(err, cdf.ErrExpired) || errors.Is(err, cdf.ErrRewritten) || errors.Is(err, cdf.ErrNotEnabled) {
			continue // which of its rows were new cannot be told any more
		}
		if err != nil {
			return err
		}
		for _, id := range ids {
			c.seen.add(id)
		}
	}
	return nil
}

// nextIDs is the ids of the next version that this consumer wants, in any order.
func (c *Consumer) nextIDs(ctx context.Context, f feed) ([]string, error) {
	v, err := f.Next(ctx)
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
