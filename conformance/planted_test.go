package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// sound is a history with nothing wrong in it: two producers, one consumer that is killed once and resumes, one event that
// is retried, one poison event that is dead-lettered and replayed, one event of a topic that nobody asked for.
func sound() []Record {
	var h []Record
	add := func(r Record) { r.Index = len(h); h = append(h, r) }
	publish := func(id, topic, producer string, seq int64) {
		add(Record{Process: producer, Kind: KindPublish, Phase: PhaseInvoke, ID: id, Topic: topic, Producer: producer, Seq: seq})
		add(Record{Process: producer, Kind: KindPublish, Phase: PhaseOK, ID: id, Topic: topic, Producer: producer, Seq: seq})
	}
	publish("a0", "orders.new", "pa", 0)
	publish("a1", "orders.new", "pa", 1)
	publish("b0", "audit.x", "pb", 0)
	publish("a2", "orders.poison", "pa", 2)
	publish("a3", "orders.new", "pa", 3)
	add(Record{Process: "pb", Kind: KindPublish, Phase: PhaseInvoke, ID: "b1", Topic: "orders.new", Producer: "pb", Seq: 1})
	add(Record{Process: "pb", Kind: KindPublish, Phase: PhaseFail, ID: "b1", Topic: "orders.new", Producer: "pb", Seq: 1})

	start := func(process string, version, position, epoch int64) {
		add(Record{Process: process, Kind: KindStart, Consumer: "c", Filter: "orders.>", Version: version, Position: position, Epoch: epoch, Attempt: 2})
	}
	deliver := func(process, id string, attempt int, ok bool) {
		phase := PhaseOK
		if !ok {
			phase = PhaseFail
		}
		add(Record{Process: process, Kind: KindDeliver, Phase: PhaseInvoke, Consumer: "c", ID: id, Attempt: attempt})
		add(Record{Process: process, Kind: KindDeliver, Phase: phase, Consumer: "c", ID: id, Attempt: attempt})
	}
	checkpoint := func(process string, version, position, epoch int64) {
		add(Record{Process: process, Kind: KindCheckpoint, Consumer: "c", Version: version, Position: position, Epoch: epoch})
	}
	start("c-1", -1, 0, 1)
	deliver("c-1", "a0", 1, true)
	checkpoint("c-1", 0, 1, 1) // version 1, row 0 done
	deliver("c-1", "a1", 1, true)
	add(Record{Process: "c-1", Kind: KindCrash})
	start("c-2", 0, 1, 2)
	deliver("c-2", "a1", 1, true) // again, since it came after the checkpoint
	checkpoint("c-2", 1, 1, 2)
	deliver("c-2", "a2", 1, false)
	deliver("c-2", "a2", 2, false)
	add(Record{Process: "c-2", Kind: KindDeadLetter, Consumer: "c", ID: "a2", Attempt: 2, Error: "poison"})
	checkpoint("c-2", 1, 2, 2)
	deliver("c-2", "a3", 1, false)
	deliver("c-2", "a3", 2, true)
	checkpoint("c-2", 2, 0, 2)
	add(Record{Process: "operator", Kind: KindReplay, ID: "r2", Origin: "dl-a2", Consumer: "c"})
	deliver("c-2", "r2", 1, true)
	checkpoint("c-2", 3, 0, 2)
	add(Record{Process: "c-2", Kind: KindStop})

	row := func(id, topic, producer string, seq, version, position int64) {
		add(Record{Process: "harness", Kind: KindRow, ID: id, Topic: topic, Producer: producer, Seq: seq, Version: version, Position: position})
	}
	row("a0", "orders.new", "pa", 0, 1, 0)
	row("a1", "orders.new", "pa", 1, 1, 1)
	row("b0", "audit.x", "pb", 0, 2, 0)
	row("a2", "orders.poison", "pa", 2, 2, 1)
	row("a3", "orders.new", "pa", 3, 2, 2)
	add(Record{Process: "harness", Kind: KindRow, ID: "r2", Topic: "orders.poison", Producer: "pa", Seq: 2, Version: 3, Position: 0, Replay: 1, Origin: "dl-a2", ReplayTo: "c"})
	return h
}

// breaches runs the checker of that name.
func breaches(t *testing.T, name string, h []Record) []string {
	t.Helper()
	for _, c := range Checkers() {
		if c.Name == name {
			return c.Check(h)
		}
	}
	t.Fatalf("no checker named %q", name)
	return nil
}

func TestSoundHistoryHasNoBreach(t *testing.T) {
	t.Parallel()
	for _, c := range Checkers() {
		if bad := c.Check(sound()); len(bad) > 0 {
			t.Errorf("%s: %s", c.Name, strings.Join(bad, "; "))
		}
	}
}

// without drops the records that match.
func without(h []Record, match func(Record) bool) []Record {
	var out []Record
	for _, r := range h {
		if !match(r) {
			out = append(out, r)
		}
	}
	return out
}

// change applies f to every record.
func change(h []Record, f func(*Record)) []Record {
	for i := range h {
		f(&h[i])
	}
	return h
}

// after inserts extra behind the last record that matches.
func after(h []Record, match func(Record) bool, extra ...Record) []Record {
	for i := len(h) - 1; i >= 0; i-- {
		if match(h[i]) {
			return append(append(append([]Record(nil), h[:i+1]...), extra...), h[i+1:]...)
		}
	}
	panic("no record matches")
}

func is(kind Kind, id string) func(Record) bool {
	return func(r Record) bool { return r.Kind == kind && r.ID == id }
}

func start2(r Record) bool { return r.Kind == KindStart && r.Process == "c-2" }

// plants are histories with one fault each, by the checker that must find it.
var plants = []struct {
	checker, fault string
	history        func() []Record
}{
	{"lost write", "an acknowledged row is not in the log", func() []Record { return without(sound(), is(KindRow, "b0")) }},
	{"phantom", "a row that nobody published", func() []Record {
		return append(sound(), Record{Kind: KindRow, ID: "z", Topic: "orders.new", Version: 4})
	}},
	{"phantom", "a row whose publish was reported failed", func() []Record {
		return append(sound(), Record{Kind: KindRow, ID: "b1", Topic: "orders.new", Producer: "pb", Seq: 1, Version: 4})
	}},
	{"duplicate in log", "a retried batch is there twice", func() []Record {
		return append(sound(), Record{Kind: KindRow, ID: "a0", Topic: "orders.new", Producer: "pa", Seq: 0, Version: 4})
	}},
	{"producer order", "two rows of one producer and topic are swapped", func() []Record {
		return change(sound(), func(r *Record) {
			if r.Kind == KindRow && r.ID == "a0" {
				r.Seq = 1
			} else if r.Kind == KindRow && r.ID == "a1" {
				r.Seq = 0
			}
		})
	}},
	{"delivery", "an event is skipped", func() []Record { return without(sound(), is(KindDeliver, "a3")) }},
	{"filter", "an event of another topic is delivered", func() []Record {
		return after(sound(), is(KindDeliver, "a3"), Record{Process: "c-2", Kind: KindDeliver, Phase: PhaseInvoke, Consumer: "c", ID: "b0", Topic: "audit.x", Attempt: 1})
	}},
	{"filter", "a replay for one consumer reaches another", func() []Record {
		return change(sound(), func(r *Record) {
			if r.ReplayTo != "" {
				r.ReplayTo = "someone-else"
			}
		})
	}},
	{"order", "an event overtakes another", func() []Record {
		return after(sound(), func(r Record) bool { return r.Kind == KindStart && r.Process == "c-1" },
			Record{Process: "c-1", Kind: KindDeliver, Phase: PhaseInvoke, Consumer: "c", ID: "a3", Attempt: 1})
	}},
	{"redelivery", "an event from before the checkpoint comes again after a start", func() []Record {
		return after(sound(), start2, Record{Process: "c-2", Kind: KindDeliver, Phase: PhaseInvoke, Consumer: "c", ID: "a0", Attempt: 1})
	}},
	{"redelivery", "a handled event comes again without a start", func() []Record {
		return after(sound(), is(KindDeliver, "a3"), Record{Process: "c-2", Kind: KindDeliver, Phase: PhaseInvoke, Consumer: "c", ID: "a3", Attempt: 3})
	}},
	{"checkpoint monotone", "the position moves back", func() []Record {
		return append(sound(), Record{Process: "c-2", Kind: KindCheckpoint, Consumer: "c", Version: 1, Position: 1, Epoch: 2})
	}},
	{"checkpoint safety", "the checkpoint is written before the event is handled", func() []Record {
		return after(sound(), start2, Record{Process: "c-2", Kind: KindCheckpoint, Consumer: "c", Version: 2, Position: 0, Epoch: 2})
	}},
	{"resume point", "a start goes back to the beginning", func() []Record {
		return change(sound(), func(r *Record) {
			if start2(*r) {
				r.Version, r.Position = -1, 0
			}
		})
	}},
	{"dead letter conservation", "an event is handled and dead-lettered", func() []Record {
		return after(sound(), is(KindDeadLetter, "a2"), Record{Process: "c-2", Kind: KindDeliver, Phase: PhaseOK, Consumer: "c", ID: "a2"})
	}},
	{"dead letter conservation", "a dead letter is written twice", func() []Record {
		return after(sound(), is(KindDeadLetter, "a2"), Record{Process: "c-2", Kind: KindDeadLetter, Consumer: "c", ID: "a2", Attempt: 2, Error: "poison"})
	}},
	{"dead letter conservation", "a dead letter does not say why", func() []Record {
		return change(sound(), func(r *Record) {
			if r.Kind == KindDeadLetter {
				r.Error = ""
			}
		})
	}},
	{"retry budget", "one attempt too many", func() []Record {
		return after(sound(), func(r Record) bool { return r.ID == "a2" && r.Kind == KindDeliver },
			Record{Process: "c-2", Kind: KindDeliver, Phase: PhaseInvoke, Consumer: "c", ID: "a2", Attempt: 3})
	}},
	{"retry budget", "an event whose attempts are used up is dropped", func() []Record { return without(sound(), is(KindDeadLetter, "a2")) }},
	{"fencing", "the old instance writes a checkpoint after the new one started", func() []Record {
		return after(sound(), start2, Record{Process: "c-1", Kind: KindCheckpoint, Consumer: "c", Version: 0, Position: 2, Epoch: 1})
	}},
	{"replay", "a replay never reaches the log", func() []Record { return without(sound(), is(KindRow, "r2")) }},
	{"replay", "a replayed row lost its lineage", func() []Record {
		return change(sound(), func(r *Record) {
			if r.Kind == KindRow {
				r.Origin = ""
			}
		})
	}},
}

func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	for _, p := range plants {
		t.Run(p.checker+"/"+p.fault, func(t *testing.T) {
			t.Parallel()
			if bad := breaches(t, p.checker, p.history()); len(bad) == 0 {
				t.Errorf("checker %q does not find: %s", p.checker, p.fault)
			}
		})
	}
}

func TestPlantedFaultForEveryChecker(t *testing.T) {
	t.Parallel()
	planted := map[string]bool{}
	for _, p := range plants {
		planted[p.checker] = true
	}
	for _, c := range Checkers() {
		if !planted[c.Name] {
			t.Errorf("checker %q has no planted fault", c.Name)
		}
		if c.Promise == "" || c.Check == nil {
			t.Errorf("checker %q: incomplete", fmt.Sprint(c.Name))
		}
	}
}
