package zerobusfake

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabus/deltabus-local/deltalog/store"
)

// TestSpacingOfCommits: on the bubble's clock a commit takes no time, so an acknowledgement takes as long as the commit was put off.
func TestSpacingOfCommits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		streams  int
		interval time.Duration
		each     time.Duration // from one acknowledgement of a stream to its next
	}{
		{"a lone record", 1, 0, loneSpacing},
		{"two streams", 2, 0, groupSpacing},
		{"sixteen streams", 16, 0, groupSpacing},
		{"an interval, a lone record", 1, 70 * time.Millisecond, 70 * time.Millisecond},
		{"an interval, four streams", 4, 70 * time.Millisecond, 70 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, store.NewMemory())
				f.server.cfg.CommitInterval = tt.interval
				clients := make([]*client, tt.streams)
				for i := range clients {
					clients[i] = f.json()
				}
				const rounds = 10
				var start time.Time
				var version int64
				for n := range rounds + 1 {
					for i, c := range clients {
						c.send(jsonRecord(int64(n), fmt.Sprintf(`{"id":%d}`, i)))
					}
					for _, c := range clients {
						c.until(int64(n))
					}
					if n == 0 { // this one met an idle table
						start, version = time.Now(), f.table.Cached().Version()
					}
				}
				// The first round of several streams may be two commits: the first record did not wait for the others.
				if took, want := time.Since(start), rounds*tt.each; took > want || took < want-tt.each {
					t.Errorf("%d acknowledgements in a row took %s, want %s", rounds, took, want)
				}
				if commits := f.table.Cached().Version() - version; commits > rounds {
					t.Errorf("%d commits for %d rounds", commits, rounds)
				}
			})
		})
	}
}

// TestIdleTableCommitsAtOnce: nobody waits who comes after a pause.
func TestIdleTableCommitsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, store.NewMemory())
		c := f.json()
		for n := range int64(5) {
			<-time.After(groupSpacing)
			start := time.Now()
			c.send(jsonRecord(n, `{"id":1}`))
			c.until(n)
			if took := time.Since(start); took > 0 {
				t.Errorf("record %d waited %s", n, took)
			}
		}
	})
}
