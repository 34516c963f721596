package conformance

import (
	"fmt"
	"slices"

	"github.com/deltabus/deltabus-local/deltabus"
)

// Checker decides one promise over a finished history.
type Checker struct {
	// Name is the field's term for what is checked.
	Name string
	// Promise is what must hold.
	Promise string
	// Check returns a sentence for each breach.
	Check func(h []Record) []string
}

// Checkers returns every checker. All of them hold for every history that ends in a drain: all consumers have read to the
// end, and the harness has recorded every row.
func Checkers() []Checker {
	return []Checker{
		{"lost write", "an event that its producer was told is durable is in the log", checkLostWrite},
		{"phantom", "every row was published, and not by a publish that definitely failed", checkPhantom},
		{"duplicate in log", "a message_id is in the log once", checkDuplicateInLog},
		{"producer order", "the rows of one producer and topic are in the order it published them", checkProducerOrder},
		{"delivery", "every row that a consumer's filter wants was handled or dead-lettered by the end", checkDelivery},
		{"filter", "nothing is delivered that the filter does not want, or that is a replay for another consumer", checkFilter},
		{"order", "first deliveries follow the order of the log", checkOrder},
		{"redelivery", "an event is handled again only after a start, and only if it came after the checkpoint the start found", checkRedelivery},
		{"checkpoint monotone", "a checkpoint never moves back", checkCheckpointMonotone},
		{"checkpoint safety", "a checkpoint covers only what was handled, dead-lettered or not wanted", checkCheckpointSafety},
		{"resume point", "a start finds the last checkpoint that was written", checkResumePoint},
		{"dead letter conservation", "an event ends handled or dead-lettered, not both, and a dead letter has its cause", checkDeadLetters},
		{"retry budget", "an event is attempted no more often than allowed, and dead-lettered when that is used up", checkRetryBudget},
		{"fencing", "after a newer start, an older instance writes no checkpoint", checkFencing},
		{"replay", "a replayed event is in the log once for each replay, with its lineage", checkReplay},
	}
}

// row is a row of the log with its place in the order.
type row struct {
	Record
	n int
}

// rows returns the log in order, and the rows by message_id.
func rows(h []Record) ([]row, map[string][]row) {
	var all []row
	byID := map[string][]row{}
	for _, r := range h {
		if r.Kind == KindRow {
			x := row{r, len(all)}
			all = append(all, x)
			byID[r.ID] = append(byID[r.ID], x)
		}
	}
	return all, byID
}

// covered reports whether the checkpoint c says that x is done.
func covered(c Record, x row) bool {
	if c.Backfill != nil {
		// The order of a backfill is that of the rows as recorded: the harness records a backfilled log in that order.
		return int64(x.n) < c.Position
	}
	return x.Version <= c.Version || (x.Version == c.Version+1 && x.Position < c.Position)
}

func checkLostWrite(h []Record) (bad []string) {
	_, byID := rows(h)
	for _, r := range h {
		if r.Kind == KindPublish && r.Phase == PhaseOK && len(byID[r.ID]) == 0 {
			bad = append(bad, fmt.Sprintf("event %s of %s was acknowledged and is not in the log", r.ID, r.Process))
		}
	}
	return bad
}

func checkPhantom(h []Record) (bad []string) {
	invoked, failed := map[string]bool{}, map[string]bool{}
	for _, r := range h {
		switch {
		case r.Kind == KindPublish && r.Phase == PhaseInvoke, r.Kind == KindReplay:
			invoked[r.ID] = true
		case r.Kind == KindPublish && r.Phase == PhaseFail:
			failed[r.ID] = true
		}
	}
	all, _ := rows(h)
	for _, x := range all {
		if !invoked[x.ID] {
			bad = append(bad, fmt.Sprintf("event %s is in the log at version %d and nobody published it", x.ID, x.Version))
		} else if failed[x.ID] {
			bad = append(bad, fmt.Sprintf("event %s is in the log at version %d though its publish was reported failed", x.ID, x.Version))
		}
	}
	return bad
}

func checkDuplicateInLog(h []Record) (bad []string) {
	all, byID := rows(h)
	for _, x := range all {
		if same := byID[x.ID]; len(same) > 1 && same[0].n == x.n {
			bad = append(bad, fmt.Sprintf("event %s is in the log %d times, first at versions %d and %d", x.ID, len(same), same[0].Version, same[1].Version))
		}
	}
	return bad
}

func checkProducerOrder(h []Record) (bad []string) {
	type key struct{ producer, topic string }
	last := map[key]row{}
	all, _ := rows(h)
	for _, x := range all {
		if x.Replay > 0 {
			continue // a replay gives up its place in the order
		}
		k := key{x.Producer, x.Topic}
		if before, ok := last[k]; ok && x.Seq <= before.Seq {
			bad = append(bad, fmt.Sprintf("producer %s topic %s: sequence %d (version %d) comes after %d (version %d)", x.Producer, x.Topic, x.Seq, x.Version, before.Seq, before.Version))
		}
		last[k] = x
	}
	return bad
}

// consumers returns the consumer ids of a history and the filter of each.
func consumers(h []Record) map[string]string {
	out := map[string]string{}
	for _, r := range h {
		if r.Kind == KindStart {
			out[r.Consumer] = r.Filter
		}
	}
	return out
}

// wants reports whether consumer id with filter is to handle x.
func wants(filter, id string, x Record) bool {
	if x.ReplayTo != "" && x.ReplayTo != id {
		return false
	}
	if x.ReplayTo == id {
		return true
	}
	f, err := deltabus.ParseFilter(filter)
	return err == nil && f.Match(x.Topic)
}

// from returns the first row that consumer id began with: what was before its very first start is not its business.
func from(h []Record, id string) Record {
	for _, r := range h {
		if r.Kind == KindStart && r.Consumer == id {
			return r
		}
	}
	return Record{Version: -1}
}

func checkDelivery(h []Record) (bad []string) {
	all, _ := rows(h)
	for id, filter := range consumers(h) {
		done := map[string]bool{}
		for _, r := range h {
			if r.Consumer == id && (r.Kind == KindDeliver && r.Phase == PhaseOK || r.Kind == KindDeadLetter) {
				done[r.ID] = true
			}
		}
		first := from(h, id)
		for _, x := range all {
			if !done[x.ID] && !covered(first, x) && wants(filter, id, x.Record) {
				bad = append(bad, fmt.Sprintf("consumer %s: event %s (version %d) was never handled", id, x.ID, x.Version))
			}
		}
	}
	return bad
}

func checkFilter(h []Record) (bad []string) {
	_, byID := rows(h)
	all := consumers(h)
	for _, r := range h {
		if r.Kind != KindDeliver || r.Phase != PhaseInvoke {
			continue
		}
		x := byID[r.ID]
		if len(x) == 0 {
			bad = append(bad, fmt.Sprintf("consumer %s: event %s was delivered and is not in the log", r.Consumer, r.ID))
		} else if !wants(all[r.Consumer], r.Consumer, x[0].Record) {
			bad = append(bad, fmt.Sprintf("consumer %s: event %s of topic %s is not for filter %s", r.Consumer, r.ID, r.Topic, all[r.Consumer]))
		}
	}
	return bad
}

func checkOrder(h []Record) (bad []string) {
	_, byID := rows(h)
	last := map[string]row{}
	seen := map[string]map[string]bool{}
	for _, r := range h {
		if r.Kind != KindDeliver || r.Phase != PhaseInvoke || len(byID[r.ID]) == 0 {
			continue
		}
		if seen[r.Consumer] == nil {
			seen[r.Consumer] = map[string]bool{}
		}
		if seen[r.Consumer][r.ID] {
			continue
		}
		seen[r.Consumer][r.ID] = true
		x := byID[r.ID][0]
		if before, ok := last[r.Consumer]; ok && x.n < before.n {
			bad = append(bad, fmt.Sprintf("consumer %s: event %s (row %d) was first delivered after %s (row %d)", r.Consumer, x.ID, x.n, before.ID, before.n))
		}
		last[r.Consumer] = x
	}
	return bad
}

func checkRedelivery(h []Record) (bad []string) {
	_, byID := rows(h)
	type key struct{ consumer, id string }
	handled := map[key]string{}    // in which process
	started := map[string]Record{} // by process: the checkpoint it found
	for _, r := range h {
		switch {
		case r.Kind == KindStart:
			started[r.Process] = r
		case r.Kind == KindDeliver && len(byID[r.ID]) > 0:
			k := key{r.Consumer, r.ID}
			switch r.Phase {
			case PhaseInvoke:
				if covered(started[r.Process], byID[r.ID][0]) {
					bad = append(bad, fmt.Sprintf("consumer %s: process %s got event %s, which the checkpoint it started from had done", r.Consumer, r.Process, r.ID))
				} else if handled[k] == r.Process {
					bad = append(bad, fmt.Sprintf("consumer %s: process %s handled event %s and got it again", r.Consumer, r.Process, r.ID))
				}
			case PhaseOK:
				handled[k] = r.Process
			}
		}
	}
	return bad
}

// before reports whether checkpoint a is behind checkpoint b.
func before(a, b Record) bool {
	// A backfill comes before everything that is read from the feed.
	switch {
	case a.Backfill != nil && b.Backfill == nil:
		return true
	case a.Backfill == nil && b.Backfill != nil:
		return false
	case a.Backfill != nil:
		return a.Position < b.Position
	}
	return a.Version < b.Version || a.Version == b.Version && a.Position < b.Position
}

func checkCheckpointMonotone(h []Record) (bad []string) {
	last := map[string]Record{}
	for _, r := range h {
		if r.Kind != KindCheckpoint {
			continue
		}
		if l, ok := last[r.Consumer]; ok && before(r, l) {
			bad = append(bad, fmt.Sprintf("consumer %s: checkpoint %s moved back to %s", r.Consumer, place(l), place(r)))
		}
		last[r.Consumer] = r
	}
	return bad
}

func place(r Record) string {
	if r.Backfill != nil {
		return fmt.Sprintf("backfill %d/%d", *r.Backfill, r.Position)
	}
	return fmt.Sprintf("%d/%d", r.Version, r.Position)
}

func checkCheckpointSafety(h []Record) (bad []string) {
	all, _ := rows(h)
	filters := consumers(h)
	done := map[string]map[string]bool{}
	for i, r := range h {
		switch {
		case r.Kind == KindDeliver && r.Phase == PhaseOK, r.Kind == KindDeadLetter:
			if done[r.Consumer] == nil {
				done[r.Consumer] = map[string]bool{}
			}
			done[r.Consumer][r.ID] = true
		case r.Kind == KindCheckpoint:
			first := from(h[:i], r.Consumer)
			for _, x := range all {
				if covered(r, x) && !covered(first, x) && wants(filters[r.Consumer], r.Consumer, x.Record) && !done[r.Consumer][x.ID] {
					bad = append(bad, fmt.Sprintf("consumer %s: checkpoint %s covers event %s, which was not handled", r.Consumer, place(r), x.ID))
				}
			}
		}
	}
	return bad
}

func checkResumePoint(h []Record) (bad []string) {
	last := map[string]Record{}
	for _, r := range h {
		switch r.Kind {
		case KindCheckpoint:
			last[r.Consumer] = r
		case KindStart:
			// A crash may hide the last write from the recorder, so what a start finds may be ahead, never behind.
			if l, ok := last[r.Consumer]; ok && before(r, l) {
				bad = append(bad, fmt.Sprintf("consumer %s: process %s started from %s, the checkpoint was %s", r.Consumer, r.Process, place(r), place(l)))
			}
		}
	}
	return bad
}

func checkDeadLetters(h []Record) (bad []string) {
	_, byID := rows(h)
	type key struct{ consumer, id string }
	ok := map[key]bool{}
	dead := map[key]string{} // in which process
	started := map[string]Record{}
	for _, r := range h {
		k := key{r.Consumer, r.ID}
		switch {
		case r.Kind == KindStart:
			started[r.Process] = r
		case r.Kind == KindDeliver && r.Phase == PhaseOK:
			ok[k] = true
			if _, is := dead[k]; is {
				bad = append(bad, fmt.Sprintf("consumer %s: event %s was handled after it had been dead-lettered", r.Consumer, r.ID))
			}
		case r.Kind == KindDeadLetter:
			// A process that is killed between the dead letter and its checkpoint leaves the event to the next one, which says so again.
			process, again := dead[k]
			if again && (process == r.Process || len(byID[r.ID]) > 0 && covered(started[r.Process], byID[r.ID][0])) {
				bad = append(bad, fmt.Sprintf("consumer %s: event %s was dead-lettered again", r.Consumer, r.ID))
			}
			dead[k] = r.Process
			if ok[k] {
				bad = append(bad, fmt.Sprintf("consumer %s: event %s was dead-lettered after it had been handled", r.Consumer, r.ID))
			}
			if r.Error == "" || r.Attempt < 1 {
				bad = append(bad, fmt.Sprintf("consumer %s: dead letter of event %s says neither why nor after how many attempts", r.Consumer, r.ID))
			}
		}
	}
	return bad
}

func checkRetryBudget(h []Record) (bad []string) {
	type key struct{ process, id string }
	tries := map[key]int{}
	budget := map[string]int{} // by process
	for _, r := range h {
		switch {
		case r.Kind == KindStart:
			budget[r.Process] = r.Attempt
		case r.Kind == KindDeliver && r.Phase == PhaseInvoke:
			k := key{r.Process, r.ID}
			if tries[k]++; budget[r.Process] > 0 && tries[k] > budget[r.Process] {
				bad = append(bad, fmt.Sprintf("process %s: event %s was attempted %d times, %d are allowed", r.Process, r.ID, tries[k], budget[r.Process]))
			}
		}
	}
	// An event that failed as often as allowed and was never dead-lettered has been dropped.
	for k, n := range tries {
		if budget[k.process] == 0 || n < budget[k.process] {
			continue
		}
		settled := slices.ContainsFunc(h, func(r Record) bool {
			return r.ID == k.id && (r.Kind == KindDeadLetter || r.Kind == KindDeliver && r.Phase == PhaseOK)
		})
		if !settled {
			bad = append(bad, fmt.Sprintf("process %s: event %s failed %d times and is not a dead letter", k.process, k.id, n))
		}
	}
	slices.Sort(bad)
	return bad
}

func checkFencing(h []Record) (bad []string) {
	newest := map[string]int64{}
	for _, r := range h {
		switch r.Kind {
		case KindStart:
			newest[r.Consumer] = max(newest[r.Consumer], r.Epoch)
		case KindCheckpoint:
			if r.Epoch < newest[r.Consumer] {
				bad = append(bad, fmt.Sprintf("consumer %s: process %s wrote a checkpoint with epoch %d after epoch %d had started", r.Consumer, r.Process, r.Epoch, newest[r.Consumer]))
			}
		}
	}
	return bad
}

func checkReplay(h []Record) (bad []string) {
	_, byID := rows(h)
	for _, r := range h {
		if r.Kind != KindReplay {
			continue
		}
		switch x := byID[r.ID]; {
		case len(x) == 0:
			bad = append(bad, fmt.Sprintf("replay of dead letter %s as event %s is not in the log", r.Origin, r.ID))
		case x[0].Origin != r.Origin || x[0].Replay < 1:
			bad = append(bad, fmt.Sprintf("replayed event %s does not name dead letter %s", r.ID, r.Origin))
		}
	}
	return bad
}
