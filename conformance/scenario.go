package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
)

// Level is how binding a scenario is.
type Level string

// The levels.
const (
	Must   Level = "MUST"
	Should Level = "SHOULD"
)

// Scenario is one promise, told as what is done and what must hold after it.
type Scenario struct {
	// ID is a stable word with dashes.
	ID    string
	Title string
	// Why is what a user would lose without it.
	Why   string
	Level Level
	// Except names checkers that do not apply, since the scenario does on purpose what they find.
	Except []string
	run    func(*env) error
}

// Select returns the scenarios with these ids, all if there are none.
func Select(ids []string) ([]Scenario, error) {
	all := Scenarios()
	if len(ids) == 0 {
		return all, nil
	}
	var out []Scenario
	for _, id := range ids {
		i := slices.IndexFunc(all, func(s Scenario) bool { return s.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("no scenario %q: 'conformance list' shows them", id)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// Result is what became of a scenario.
type Result struct {
	ID       string        `json:"id"`
	Target   string        `json:"target"`
	Level    Level         `json:"level"`
	Duration time.Duration `json:"duration_ns"`
	// Breaches are what did not hold; none is a pass.
	Breaches []string `json:"breaches"`
	history  *History
}

// WriteHistory writes the history to DIR/ID.jsonl.
func (r *Result) WriteHistory(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, r.ID+".jsonl"))
	if err != nil {
		return err
	}
	_, err = r.history.WriteTo(f)
	return errors.Join(err, f.Close())
}

// scenarioTime bounds one scenario.
const scenarioTime = 2 * time.Minute

// Run runs a scenario against a fresh instance of target and checks its history.
func Run(ctx context.Context, target Target, s Scenario) *Result {
	ctx, cancel := context.WithTimeout(ctx, scenarioTime)
	defer cancel()
	start := time.Now()
	r := &Result{ID: s.ID, Target: target.Name(), Level: s.Level, Breaches: []string{}, history: NewHistory(nil)}
	defer func() { r.Duration = time.Since(start) }()
	i, err := target.Start(ctx)
	if err != nil {
		r.Breaches = append(r.Breaches, fmt.Sprintf("the target did not start: %v", err))
		return r
	}
	e := &env{ctx: ctx, i: i, h: r.history, bus: i.Bus()}
	err = s.run(e)
	if err == nil {
		err = e.recordRows()
	}
	if err == nil {
		err = e.checkDeadLetterTable()
	}
	e.killAll()
	if closeErr := i.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		r.Breaches = append(r.Breaches, err.Error())
	}
	r.Breaches = append(r.Breaches, e.wrong...)
	for _, c := range Checkers() {
		if slices.Contains(s.Except, c.Name) || err != nil {
			continue
		}
		for _, b := range c.Check(r.history.Records()) {
			r.Breaches = append(r.Breaches, c.Name+": "+b)
		}
	}
	return r
}

// env is what a scenario works with.
type env struct {
	ctx     context.Context
	i       Instance
	h       *History
	bus     *deltabus.Bus
	workers []Worker
	wrong   []string
	// backfilled is the version whose rows were read by a backfill; the rows are recorded in that order.
	backfilled *int64
}

// expect notes what does not hold.
func (e *env) expect(ok bool, format string, args ...any) {
	if !ok {
		e.wrong = append(e.wrong, fmt.Sprintf(format, args...))
	}
}

func (e *env) spawn(spec WorkerSpec) (Worker, error) {
	w, err := e.i.Spawn(e.ctx, spec, e.h.Add)
	if err == nil {
		e.workers = append(e.workers, w)
	}
	return w, err
}

// run runs a worker to its end.
func (e *env) runWorker(spec WorkerSpec) error {
	w, err := e.spawn(spec)
	if err != nil {
		return err
	}
	if err := w.Wait(); err != nil {
		return fmt.Errorf("worker %s: %w", spec.Name, err)
	}
	return nil
}

// kill kills a worker and notes it.
func (e *env) kill(w Worker, name string) error {
	err := w.Kill()
	e.h.Add(Record{Process: name, Kind: KindCrash})
	return err
}

func (e *env) killAll() {
	for _, w := range e.workers {
		_ = w.Kill() // most have ended
	}
}

// await waits until so many records match.
func (e *env) await(n int, what string, match func(Record) bool) error {
	for e.h.Count(match) < n {
		select {
		case <-e.ctx.Done():
			return fmt.Errorf("waiting for %d × %s, there are %d: %w", n, what, e.h.Count(match), e.ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

func handledBy(consumer string) func(Record) bool {
	return func(r Record) bool {
		return r.Kind == KindDeliver && r.Phase == PhaseOK && r.Consumer == consumer
	}
}

func acked(r Record) bool { return r.Kind == KindPublish && r.Phase == PhaseOK }

func producer(name string, p ProduceSpec) WorkerSpec {
	if p.Prefix == "" {
		p.Prefix = name
	}
	return WorkerSpec{Name: name, Produce: &p}
}

func consumer(name string, c ConsumeSpec) WorkerSpec {
	return WorkerSpec{Name: name, Consume: &c}
}

// replay replays the open dead letters of a consumer.
func (e *env) replay(consumer string, to deltabus.ReplayTarget) (int, error) {
	done, err := e.bus.DeadLetters().Replay(e.ctx, deltabus.DeadLetterFilter{Consumer: consumer}, to)
	for _, d := range done {
		e.h.Add(Record{Process: "operator", Kind: KindReplay, ID: d.ReplayMessageID, Origin: d.ID, Consumer: consumer})
	}
	return len(done), err
}

// checkDeadLetterTable looks at the table itself: an event is a dead letter of a consumer once, however often that was told.
func (e *env) checkDeadLetterTable() error {
	all, err := e.bus.DeadLetters().List(e.ctx, deltabus.DeadLetterFilter{})
	seen := map[string]bool{}
	for _, d := range all {
		e.expect(!seen[d.ID], "dead letter %s is in the table twice", d.ID)
		seen[d.ID] = true
	}
	return err
}

// lines joins what failed.
func lines(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}
