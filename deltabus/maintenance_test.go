package deltabus

import (
	"context"
	"fmt"
	"strings"
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

// TestDeadLettersTableStaysSmall while every change of a status replaces the files of a consumer: 15 an hour for 4 hours.
func TestDeadLettersTableStaysSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, st := newTestBus(t)
		const hours, perHour = 4, 15
		letters := make([]DeadLetter, hours*perHour)
		for i := range letters {
			letters[i] = DeadLetter{
				ID: fmt.Sprint(i), Consumer: "c", Event: event(fmt.Sprint(i), "t", int64(i)), Error: "no", Status: StatusOpen,
				FirstFailedAt: time.Now(), DeadLetteredAt: time.Now(),
			}
			if err := b.backend.addDeadLetter(t.Context(), letters[i], false); err != nil {
				t.Fatal(err)
			}
		}
		var sizes []int
		for i, d := range letters {
			<-time.After(time.Hour / perHour)
			if _, err := b.DeadLetters().Discard(t.Context(), DeadLetterFilter{IDs: []string{d.ID}}); err != nil {
				t.Fatal(err)
			}
			if i%perHour == perHour-1 {
				n := 0
				for f, err := range st.List(t.Context(), "main/deltabus/dead_letters/", "") {
					if err != nil {
						t.Fatal(err)
					}
					if strings.HasSuffix(f.Name, ".parquet") && !strings.Contains(f.Name, "/_delta_log/") {
						n++
					}
				}
				sizes = append(sizes, n)
			}
		}
		// The one with all of them, and those that were replaced in the last hour.
		for hour, n := range sizes[1:] {
			if n > 1+perHour+1 {
				t.Errorf("after %d hours: %d files (%v)", hour+2, n, sizes)
			}
		}
		left, err := b.DeadLetters().List(t.Context(), DeadLetterFilter{Status: StatusDiscarded})
		if err != nil || len(left) != len(letters) {
			t.Errorf("%d dead letters are discarded, %v", len(left), err)
		}
	})
}
