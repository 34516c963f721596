package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
)

// Scenarios returns every scenario, in the order in which they are best read.
func Scenarios() []Scenario {
	return []Scenario{
		{"publish-zerobus", "events published through Zerobus are durable and delivered", "the main way in", Must, nil, publishZerobus},
		{"publish-batch", "without an endpoint events are written in batches", "a bus must work where Zerobus is not to be had", Must, nil, publishBatch},
		{"publish-switch", "a publisher goes over to batches when the endpoint dies, and back", "an outage of the endpoint must cost nothing", Must, nil, publishSwitch},
		{"topic-filters", "a consumer gets what its filter wants, and nothing else", "handlers rely on it", Must, nil, topicFilters},
		{"order-of-producers", "events of one producer and topic keep their order among many producers", "state is built from order", Must, nil, orderOfProducers},
		{"consumer-crash", "a killed consumer resumes behind its checkpoint", "a deployment kills consumers every day", Must, nil, consumerCrash},
		{"consumer-crashes", "a consumer that is killed again and again still handles everything", "crash loops happen", Must, nil, consumerCrashes},
		{"consumer-crash-first-event", "a consumer killed before its first checkpoint starts at the beginning", "nothing may be skipped at a first start", Must, nil, consumerCrashFirst},
		{"producer-crash-spool", "a killed producer with a spool loses nothing that it accepted", "an event that was accepted is a promise", Must, nil, producerCrash},
		{"server-crash", "a killed server has what it acknowledged", "an acknowledgement is a promise", Must, nil, serverCrash},
		{"server-crash-consumer", "a consumer outlives the server", "the tables are the broker, not the server", Must, nil, serverCrashConsumer},
		{"fencing", "a second instance takes over and the first stops", "two instances must not both move a position", Must, nil, fencing},
		{"poison", "a poison event becomes a dead letter with its cause, and the rest goes on", "one bad event must not stop a bus", Must, nil, poison},
		{"retry-budget", "an event that fails less often than the budget is handled", "most failures pass", Must, nil, retryBudget},
		{"handler-answers", "skip and panic make dead letters at once and after the budget", "a handler knows when trying again is useless", Must, nil, handlerAnswers},
		{"replay-to-consumer", "a replay reaches the consumer that failed, alone", "others have handled the event already", Must, nil, replayToConsumer},
		{"replay-fails-again", "a replayed event that fails again keeps its lineage", "an operator must see that the mend was none", Must, nil, replayFailsAgain},
		{"late-consumer", "a consumer that comes late gets everything from the beginning", "history is kept", Must, nil, lateConsumer},
		{"backfill", "a consumer that starts beyond the feed reads the table, then the feed", "the log is cleaned, the history is not", Must, nil, backfill},
		{"duplicates", "a message published twice under one id is handled once", "producers retry", Must, []string{"duplicate in log"}, duplicates},
		{"handler-kills-process", "an event that kills the process becomes a dead letter at the budget", "otherwise it kills every restart", Must, nil, handlerKills},
		{"idle-poll", "an idle consumer writes nothing and gets a new event within a second", "polling must be cheap and quick", Should, nil, idlePoll},
		{"filter-change", "another filter under the same id is refused", "events would be skipped without a word", Must, nil, filterChange},
	}
}

const many = 300

func publishZerobus(e *env) error {
	return lines(
		e.runWorker(producer("p1", ProduceSpec{Count: many, Topics: []string{"a.x", "a.y"}, Zerobus: true})),
		e.pathIs("zerobus", many),
		e.runWorker(consumer("c1", ConsumeSpec{ID: "c", Filter: "a.*"})),
	)
}

// pathIs checks that so many events went a way.
func (e *env) pathIs(path string, n int) error {
	got := e.h.Count(func(r Record) bool { return acked(r) && r.Error == path })
	e.expect(got >= n, "%d events were acknowledged by way of %s, expected %d", got, path, n)
	return nil
}

func publishBatch(e *env) error {
	return lines(
		e.runWorker(producer("p1", ProduceSpec{Count: many, Topics: []string{"a"}})),
		e.pathIs("batch", many),
		e.runWorker(consumer("c1", ConsumeSpec{ID: "c", Filter: "a"})),
	)
}

func publishSwitch(e *env) error {
	p, err := e.spawn(producer("p1", ProduceSpec{Count: 4000, Topics: []string{"a"}, Zerobus: true, PauseMicros: 700}))
	if err != nil {
		return err
	}
	byPath := func(path string) func(Record) bool {
		return func(r Record) bool { return acked(r) && r.Error == path }
	}
	if err := e.await(200, "event through Zerobus", byPath("zerobus")); err != nil {
		return err
	}
	if err := e.i.KillServer(e.ctx); err != nil {
		return err
	}
	if err := e.await(200, "event by batch", byPath("batch")); err != nil {
		return err
	}
	before := e.h.Count(byPath("zerobus"))
	if err := e.i.StartServer(e.ctx); err != nil {
		return err
	}
	if err := e.await(before+100, "event through Zerobus again", byPath("zerobus")); err != nil {
		return err
	}
	return lines(p.Wait(), e.runWorker(consumer("c1", ConsumeSpec{ID: "c", Filter: "a", Every: 100})))
}

func topicFilters(e *env) error {
	err := e.runWorker(producer("p1", ProduceSpec{Count: 120, Topics: []string{"orders.new", "orders.eu.new", "orders", "audit.x"}}))
	for name, filter := range map[string]string{"one": "orders.*", "rest": "orders.>", "exact": "orders", "several": "audit.>,orders", "all": ">"} {
		err = errors.Join(err, e.runWorker(consumer("c-"+name, ConsumeSpec{ID: name, Filter: filter})))
	}
	for id, want := range map[string]int{"one": 30, "rest": 60, "exact": 30, "several": 60, "all": 120} {
		got := e.h.Count(handledBy(id))
		e.expect(got == want, "consumer %s handled %d events, expected %d", id, got, want)
	}
	return lines(err)
}

func orderOfProducers(e *env) error {
	var all []Worker
	for i := range 4 {
		w, err := e.spawn(producer(fmt.Sprintf("p%d", i), ProduceSpec{Count: many, Topics: []string{"a", "b"}, Zerobus: i%2 == 0, PauseMicros: 200}))
		if err != nil {
			return err
		}
		all = append(all, w)
	}
	c, err := e.spawn(consumer("c1", ConsumeSpec{ID: "c", Filter: "a,b", Follow: true}))
	if err != nil {
		return err
	}
	for _, w := range all {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	return lines(e.await(4*many, "handled event", handledBy("c")), e.kill(c, "c1"))
}

// crashAfter lets a consumer handle n events and kills it.
func (e *env) crashAfter(name string, spec ConsumeSpec, n int) error {
	spec.Follow = true
	before := e.h.Count(handledBy(spec.ID))
	w, err := e.spawn(consumer(name, spec))
	if err != nil {
		return err
	}
	return lines(e.await(before+n, "handled event", handledBy(spec.ID)), e.kill(w, name))
}

func consumerCrash(e *env) error {
	spec := ConsumeSpec{ID: "c", Filter: "a"}
	return lines(
		e.runWorker(producer("p1", ProduceSpec{Count: many, Topics: []string{"a"}, Zerobus: true})),
		e.crashAfter("c1", spec, 137),
		e.runWorker(consumer("c2", spec)),
	)
}

func consumerCrashes(e *env) error {
	spec := ConsumeSpec{ID: "c", Filter: "a", Every: 7}
	for i := range 8 {
		// A round's events outnumber what it waits for: the last round may have handled all before the kill came.
		err := lines(
			e.runWorker(producer(fmt.Sprintf("p%d", i), ProduceSpec{Count: 60, Topics: []string{"a"}, Zerobus: true})),
			e.crashAfter(fmt.Sprintf("c%d", i), spec, 11+3*i),
		)
		if err != nil {
			return err
		}
	}
	return e.runWorker(consumer("last", spec))
}

func consumerCrashFirst(e *env) error {
	spec := ConsumeSpec{ID: "c", Filter: "a", Every: 1000}
	return lines(
		e.runWorker(producer("p1", ProduceSpec{Count: 50, Topics: []string{"a"}})),
		e.crashAfter("c1", spec, 1),
		e.runWorker(consumer("c2", spec)),
	)
}

func producerCrash(e *env) error {
	dir, err := os.MkdirTemp("", "deltabus-spool-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	spec := ProduceSpec{Count: 100_000, Topics: []string{"a"}, Prefix: "p", Zerobus: true, Spool: filepath.Join(dir, "spool.db"), PauseMicros: 300}
	p, err := e.spawn(producer("p1", spec))
	if err != nil {
		return err
	}
	if err := lines(e.await(200, "acknowledged event", acked), e.kill(p, "p1")); err != nil {
		return err
	}
	published := e.h.Count(func(r Record) bool { return r.Kind == KindPublish && r.Phase == PhaseInvoke })
	spec.First, spec.Count, spec.PauseMicros = published+1000, 100, 0 // other ids: what was accepted comes from the spool
	return lines(e.runWorker(producer("p2", spec)), e.runWorker(consumer("c1", ConsumeSpec{ID: "c", Filter: "a"})))
}

func serverCrash(e *env) error {
	var all []Worker
	for i := range 3 {
		w, err := e.spawn(producer(fmt.Sprintf("p%d", i), ProduceSpec{Count: 1500, Topics: []string{"a"}, Zerobus: true, PauseMicros: 400}))
		if err != nil {
			return err
		}
		all = append(all, w)
	}
	for round := range 3 {
		if err := e.await(300*(round+1), "acknowledged event", acked); err != nil {
			return err
		}
		if err := lines(e.i.KillServer(e.ctx), e.i.StartServer(e.ctx)); err != nil {
			return err
		}
	}
	for _, w := range all {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	return e.runWorker(consumer("c1", ConsumeSpec{ID: "c", Filter: "a", Every: 200}))
}

func serverCrashConsumer(e *env) error {
	c, err := e.spawn(consumer("c1", ConsumeSpec{ID: "c", Filter: "a", Follow: true}))
	if err != nil {
		return err
	}
	return lines(
		e.runWorker(producer("p1", ProduceSpec{Count: 100, Topics: []string{"a"}, Zerobus: true})),
		e.i.KillServer(e.ctx),
		e.runWorker(producer("p2", ProduceSpec{Count: 100, Topics: []string{"a"}})), // straight on the tables
		e.await(200, "handled event", handledBy("c")),
		e.i.StartServer(e.ctx),
		e.runWorker(producer("p3", ProduceSpec{Count: 100, Topics: []string{"a"}, Zerobus: true})),
		e.await(300, "handled event", handledBy("c")),
		e.kill(c, "c1"),
	)
}

func fencing(e *env) error {
	if err := e.runWorker(producer("p1", ProduceSpec{Count: many, Topics: []string{"a"}})); err != nil {
		return err
	}
	first, err := e.spawn(consumer("c1", ConsumeSpec{ID: "c", Filter: "a", Follow: true}))
	if err != nil {
		return err
	}
	if err := e.await(many, "handled event", handledBy("c")); err != nil {
		return err
	}
	second, err := e.spawn(consumer("c2", ConsumeSpec{ID: "c", Filter: "a", Follow: true}))
	if err != nil {
		return err
	}
	if err := e.await(2, "start", func(r Record) bool { return r.Kind == KindStart }); err != nil {
		return err
	}
	if err := e.runWorker(producer("p2", ProduceSpec{Count: 50, Topics: []string{"a"}})); err != nil {
		return err
	}
	err = first.Wait()
	e.expect(err != nil && strings.Contains(err.Error(), deltabus.ErrFenced.Error()), "the first instance ended with %v", err)
	// The second may have handled again what came after the first's last checkpoint: only events of now show that it got through to the end.
	return lines(e.runWorker(producer("p3", ProduceSpec{Count: 50, Topics: []string{"a"}})), e.await(50, "new event handled by the second", func(r Record) bool {
		return r.Process == "c2" && r.Kind == KindDeliver && r.Phase == PhaseOK && strings.HasPrefix(r.ID, "p3-")
	}), e.kill(second, "c2"))
}

func poison(e *env) error {
	err := lines(
		e.runWorker(producer("p1", ProduceSpec{Count: 20, Topics: []string{"a"}})),
		e.runWorker(producer("bad", ProduceSpec{Count: 2, Topics: []string{"a"}, Headers: map[string]string{HeaderFail: "always"}})),
		e.runWorker(producer("p2", ProduceSpec{Count: 20, Topics: []string{"a"}})),
		e.runWorker(consumer("c1", ConsumeSpec{ID: "c", Filter: "a"})),
	)
	dead, listErr := e.bus.DeadLetters().List(e.ctx, deltabus.DeadLetterFilter{Consumer: "c"})
	e.expect(len(dead) == 2, "%d dead letters, expected 2", len(dead))
	for _, d := range dead {
		e.expect(d.Attempts == 3 && len(d.Log) == 3 && d.Error == errWorkerFailed.Error() && d.Event.Topic == "a" && d.Status == deltabus.StatusOpen, "dead letter %+v", d)
	}
	return lines(err, listErr)
}

func retryBudget(e *env) error {
	err := lines(
		e.runWorker(producer("p1", ProduceSpec{Count: 10, Topics: []string{"a"}, Headers: map[string]string{HeaderFail: "2"}})),
		e.runWorker(consumer("c1", ConsumeSpec{ID: "c", Filter: "a", Retries: 3})),
	)
	e.expect(e.h.Count(handledBy("c")) == 10, "%d events were handled", e.h.Count(handledBy("c")))
	return err
}

func handlerAnswers(e *env) error {
	err := lines(
		e.runWorker(producer("skip", ProduceSpec{Count: 2, Topics: []string{"a"}, Headers: map[string]string{HeaderAnswer: "skip"}})),
		e.runWorker(producer("panic", ProduceSpec{Count: 2, Topics: []string{"a"}, Headers: map[string]string{HeaderAnswer: "panic"}})),
		e.runWorker(producer("good", ProduceSpec{Count: 2, Topics: []string{"a"}})),
		e.runWorker(consumer("c1", ConsumeSpec{ID: "c", Filter: "a", Retries: 2})),
	)
	dead, listErr := e.bus.DeadLetters().List(e.ctx, deltabus.DeadLetterFilter{})
	e.expect(len(dead) == 4, "%d dead letters, expected 4", len(dead))
	for _, d := range dead {
		if strings.HasPrefix(d.Event.ID, "skip") {
			e.expect(d.Attempts == 1, "a skipped event was tried %d times", d.Attempts)
		} else {
			e.expect(d.Attempts == 2 && d.ErrorType == "panic" && d.Stack != "", "a panicking event: %+v", d)
		}
	}
	return lines(err, listErr)
}

func replayToConsumer(e *env) error {
	c := ConsumeSpec{ID: "c", Filter: "a"}
	err := lines(
		e.runWorker(producer("bad", ProduceSpec{Count: 3, Topics: []string{"a"}, Headers: map[string]string{HeaderFail: "always"}})),
		e.runWorker(consumer("c1", c)),
		e.runWorker(consumer("other1", ConsumeSpec{ID: "other", Filter: "a", Mended: true})),
	)
	n, replayErr := e.replay("c", deltabus.ToConsumer)
	e.expect(n == 3, "%d dead letters were replayed", n)
	c.Mended = true
	err = lines(err, replayErr, e.runWorker(consumer("c2", c)), e.runWorker(consumer("other2", ConsumeSpec{ID: "other", Filter: "a", Mended: true})))
	e.expect(e.h.Count(handledBy("c")) == 3, "the consumer handled %d replayed events", e.h.Count(handledBy("c")))
	e.expect(e.h.Count(handledBy("other")) == 3, "the other consumer handled %d events, expected the 3 originals", e.h.Count(handledBy("other")))
	return err
}

func replayFailsAgain(e *env) error {
	c := ConsumeSpec{ID: "c", Filter: "a"}
	err := lines(
		e.runWorker(producer("bad", ProduceSpec{Count: 1, Topics: []string{"a"}, Headers: map[string]string{HeaderFail: "always"}})),
		e.runWorker(consumer("c1", c)),
	)
	_, replayErr := e.replay("c", deltabus.ToTopic)
	err = lines(err, replayErr, e.runWorker(consumer("c2", c)))
	dead, listErr := e.bus.DeadLetters().List(e.ctx, deltabus.DeadLetterFilter{Consumer: "c"})
	if len(dead) != 2 {
		return lines(err, listErr, fmt.Errorf("%d dead letters, expected 2", len(dead)))
	}
	e.expect(dead[0].Status == deltabus.StatusReplayed && dead[1].Status == deltabus.StatusOpen, "they are %s and %s", dead[0].Status, dead[1].Status)
	e.expect(dead[1].Origin == dead[0].ID && dead[1].Replay == 1 && dead[0].ReplayMessageID == dead[1].Event.ID, "lineage is lost: %+v", dead[1])
	return lines(err, listErr)
}

func lateConsumer(e *env) error {
	err := e.runWorker(producer("p1", ProduceSpec{Count: many, Topics: []string{"a"}, Zerobus: true}))
	for i := range 3 {
		err = errors.Join(err, e.runWorker(producer(fmt.Sprintf("q%d", i), ProduceSpec{Count: 10, Topics: []string{"a"}})))
	}
	err = errors.Join(err, e.runWorker(consumer("c1", ConsumeSpec{ID: "late", Filter: "a"})), e.runWorker(consumer("c2", ConsumeSpec{ID: "latest", Filter: "a", From: "latest"})))
	e.expect(e.h.Count(handledBy("late")) == many+30, "the late consumer handled %d", e.h.Count(handledBy("late")))
	e.expect(e.h.Count(handledBy("latest")) == 0, "a consumer from latest handled %d", e.h.Count(handledBy("latest")))
	return lines(err)
}

func backfill(e *env) error {
	for i := range 6 {
		if err := e.runWorker(producer(fmt.Sprintf("p%d", i), ProduceSpec{Count: 25, Topics: []string{"a", "b"}})); err != nil {
			return err
		}
	}
	// What log cleanup does after the retention: a checkpoint, and the commits before it are gone.
	t := e.bus.Messages()
	snap, err := t.Snapshot(e.ctx)
	if err != nil {
		return err
	}
	if err := t.Checkpoint(e.ctx, snap); err != nil {
		return err
	}
	for v := range snap.Version() {
		if err := t.Store().Delete(e.ctx, fmt.Sprintf("_delta_log/%020d.json", v)); err != nil {
			return err
		}
	}
	at := snap.Version()
	e.backfilled = &at
	spec := ConsumeSpec{ID: "c", Filter: "a"}
	err = lines(
		e.crashAfter("c1", spec, 31),
		e.runWorker(producer("after", ProduceSpec{Count: 20, Topics: []string{"a"}})),
		e.runWorker(consumer("c2", spec)),
	)
	return err
}

func duplicates(e *env) error {
	p := ProduceSpec{Count: 40, Topics: []string{"a"}, Prefix: "same"}
	err := lines(
		e.runWorker(producer("p1", p)),
		e.crashAfter("c1", ConsumeSpec{ID: "c", Filter: "a"}, 25),
		e.runWorker(producer("p2", p)), // as a producer does that lost its acknowledgements
		e.runWorker(consumer("c2", ConsumeSpec{ID: "c", Filter: "a"})),
	)
	last := map[string]int{}
	for _, r := range e.h.Records() {
		if r.Process == "c2" && r.Kind == KindDeliver && r.Phase == PhaseOK {
			last[r.ID]++
		}
	}
	for id, n := range last {
		e.expect(n == 1, "event %s was handled %d times by one process", id, n)
	}
	return err
}

func handlerKills(e *env) error {
	err := lines(
		e.runWorker(producer("p1", ProduceSpec{Count: 15, Topics: []string{"a"}})),
		e.runWorker(producer("killer", ProduceSpec{Count: 1, Topics: []string{"a"}, Headers: map[string]string{HeaderKill: "yes"}})),
		e.runWorker(producer("p2", ProduceSpec{Count: 15, Topics: []string{"a"}})),
	)
	deaths := 0
	for ; err == nil && deaths < 12; deaths++ {
		name := fmt.Sprintf("c%d", deaths)
		w, spawnErr := e.spawn(consumer(name, ConsumeSpec{ID: "c", Filter: "a", Retries: 3}))
		if spawnErr != nil {
			return spawnErr
		}
		if waitErr := w.Wait(); waitErr == nil {
			break
		} else if !errors.Is(waitErr, errKilled) {
			return waitErr
		}
		e.h.Add(Record{Process: name, Kind: KindCrash})
	}
	e.expect(deaths >= 3 && deaths <= 6, "the process died %d times, the budget is 3", deaths)
	dead, listErr := e.bus.DeadLetters().List(e.ctx, deltabus.DeadLetterFilter{})
	e.expect(len(dead) == 1 && dead[0].Event.ID == "killer-0" && dead[0].ErrorType == "crashed", "dead letters: %+v", dead)
	return lines(err, listErr)
}

func idlePoll(e *env) error {
	c, err := e.spawn(consumer("c1", ConsumeSpec{ID: "c", Filter: "a", Follow: true, From: "latest"}))
	if err != nil {
		return err
	}
	if err := e.await(1, "start", func(r Record) bool { return r.Kind == KindStart }); err != nil {
		return err
	}
	count := func(r Record) bool { return r.Kind == KindCheckpoint }
	select {
	case <-time.After(time.Second): // long enough to be idle
	case <-e.ctx.Done():
	}
	e.expect(e.h.Count(count) == 0, "an idle consumer wrote %d checkpoints", e.h.Count(count))
	if err := e.runWorker(producer("p1", ProduceSpec{Count: 1, Topics: []string{"a"}})); err != nil {
		return err
	}
	start := time.Now()
	err = e.await(1, "handled event", handledBy("c"))
	e.expect(time.Since(start) < time.Second, "a new event took %s", time.Since(start))
	return lines(err, e.kill(c, "c1"))
}

func filterChange(e *env) error {
	err := lines(
		e.runWorker(producer("p1", ProduceSpec{Count: 10, Topics: []string{"a", "b"}})),
		e.runWorker(consumer("c1", ConsumeSpec{ID: "c", Filter: "a"})),
	)
	changed := e.runWorker(consumer("c2", ConsumeSpec{ID: "c", Filter: "a,b"}))
	e.expect(changed != nil && strings.Contains(changed.Error(), deltabus.ErrFilterChanged.Error()), "another filter: %v", changed)
	return err
}
