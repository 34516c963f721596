package deltabus

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestCheckpointsTableStaysSmall has a consumer write a checkpoint every 5 s for 6 hours, and looks at the files, data and log.
func TestCheckpointsTableStaysSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := newTestBus(t)
		const hours = 6
		const perHour = int(time.Hour / (5 * time.Second))
		batch := make([]Event, hours*perHour)
		for i := range batch {
			batch[i] = event(fmt.Sprint(i), "t", int64(i))
		}
		appendEvents(t, b, batch...)
		files := func() (n int) {
			for _, err := range st.List(t.Context(), "main/deltabus/checkpoints/", "") {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			return n
		}
		var sizes []int
		handled := 0
		c, err := b.Consumer("c", "t", func(context.Context, Event) error {
			if handled++; handled%perHour == 0 {
				sizes = append(sizes, files())
			}
			<-time.After(5 * time.Second)
			return nil
		}, UntilCurrent(), WithCheckpointEvery(1, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		// One hour's files and commits stay, and what comes between two cleanings.
		for hour, n := range sizes {
			if n > 2*(perHour+1000)+1000 {
				t.Errorf("after %d hours: %d files (%v)", hour+1, n, sizes)
				break
			}
		}
		if len(sizes) != hours {
			t.Errorf("sizes %v", sizes)
		}
	})
}
