package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
)

// errWorkerFailed is what a handler fails with when an event tells it to.
var errWorkerFailed = errors.New("told to fail")

// RunWorker does what spec says on an open bus; spec.Produce.Zerobus wants a bus with an endpoint. What happens is given to record before
// the worker goes on. die ends the process on the spot, as far as the target can.
func RunWorker(ctx context.Context, spec WorkerSpec, bus *deltabus.Bus, record func(Record), die func()) error {
	say := func(r Record) {
		r.Process = spec.Name
		record(r)
	}
	var err error
	switch {
	case spec.Produce != nil:
		err = produce(ctx, spec.Produce, bus, say)
	case spec.Consume != nil:
		err = consume(ctx, spec.Consume, bus, say, die)
	default:
		err = errors.New("a worker without a task")
	}
	stop := Record{Kind: KindStop}
	if err != nil {
		stop.Error = err.Error()
	}
	say(stop)
	return err
}

func produce(ctx context.Context, p *ProduceSpec, bus *deltabus.Bus, say func(Record)) error {
	opts := []deltabus.PublisherOption{
		deltabus.WithSource("conformance"), deltabus.WithBatches(20*time.Millisecond, 1000, 1<<20),
		deltabus.WithRecovery(300 * time.Millisecond), deltabus.WithSettleDelay(200 * time.Millisecond), deltabus.WithProbe(100*time.Millisecond, 200*time.Millisecond),
	}
	if p.Spool != "" {
		opts = append(opts, deltabus.WithSpool(p.Spool))
	}
	pub, err := bus.Publisher(opts...)
	if err != nil {
		return err
	}
	deliveries := make([]*deltabus.Delivery, 0, p.Count)
	reported := 0
	report := func(wait bool) error {
		for ; reported < len(deliveries); reported++ {
			d := deliveries[reported]
			if wait {
				if _, err := d.Wait(ctx); ctx.Err() != nil {
					return err
				}
			}
			select {
			case <-d.Done():
			default:
				return nil
			}
			r := d.Receipt()
			out := Record{Kind: KindPublish, Phase: PhaseOK, ID: r.MessageID, Producer: r.ProducerID, Seq: r.ProducerSeq, Error: string(r.Path)}
			if err := d.Err(); err != nil {
				out.Phase, out.Error = PhaseInfo, err.Error()
				if errors.Is(err, deltabus.ErrRefused) {
					out.Phase = PhaseFail
				}
			}
			say(out)
		}
		return nil
	}
	for i := p.First; i < p.First+p.Count; i++ {
		m := deltabus.Message{
			ID: fmt.Sprintf("%s-%d", p.Prefix, i), Topic: p.Topics[i%len(p.Topics)], Headers: p.Headers, Payload: []byte(strconv.Itoa(i)),
		}
		say(Record{Kind: KindPublish, Phase: PhaseInvoke, ID: m.ID, Topic: m.Topic})
		d, err := pub.PublishAsync(ctx, m)
		if err != nil {
			return errors.Join(err, pub.Close(ctx))
		}
		deliveries = append(deliveries, d)
		if p.PauseMicros > 0 {
			select {
			case <-time.After(time.Duration(p.PauseMicros) * time.Microsecond):
			case <-ctx.Done():
			}
		}
		if err := report(false); err != nil || ctx.Err() != nil {
			return errors.Join(ctx.Err(), pub.Close(ctx))
		}
	}
	err = pub.Flush(ctx)
	return errors.Join(err, report(true), pub.Close(ctx))
}

func consume(ctx context.Context, c *ConsumeSpec, bus *deltabus.Bus, say func(Record), die func()) error {
	retries, every := c.Retries, c.Every
	if retries == 0 {
		retries = 3
	}
	if every == 0 {
		every = 10
	}
	from, err := deltabus.ParseFrom(orEarliest(c.From))
	if err != nil {
		return err
	}
	filter, err := deltabus.ParseFilter(c.Filter)
	if err != nil {
		return err
	}
	event := func(kind Kind, e deltabus.Event) Record {
		return Record{Kind: kind, Consumer: c.ID, ID: e.ID, Topic: e.Topic, Version: e.Version, Attempt: e.Attempt, Replay: e.Replay, Origin: e.DeadLetterID}
	}
	place := func(kind Kind, cp deltabus.Checkpoint) Record {
		return Record{Kind: kind, Consumer: c.ID, Version: cp.Version, Position: cp.Position, Backfill: cp.Backfill, Epoch: cp.Epoch}
	}
	observer := deltabus.Observer{
		Start: func(cp deltabus.Checkpoint, retries int) {
			r := place(KindStart, cp)
			r.Filter, r.Attempt = filter.String(), retries
			say(r)
		},
		Deliver: func(e deltabus.Event) {
			r := event(KindDeliver, e)
			r.Phase = PhaseInvoke
			say(r)
		},
		Outcome: func(e deltabus.Event, err error) {
			r := event(KindDeliver, e)
			r.Phase = PhaseOK
			if err != nil {
				r.Phase, r.Error = PhaseFail, err.Error()
			}
			say(r)
		},
		Checkpoint: func(cp deltabus.Checkpoint) { say(place(KindCheckpoint, cp)) },
		DeadLetter: func(d deltabus.DeadLetter) {
			r := event(KindDeadLetter, d.Event)
			r.Attempt, r.Error = d.Attempts, d.Error
			say(r)
		},
	}
	opts := []deltabus.ConsumerOption{
		deltabus.WithFrom(from), deltabus.WithObserver(observer), deltabus.WithCheckpointEvery(every, time.Second), deltabus.WithPollInterval(10 * time.Millisecond),
		deltabus.WithRetry(deltabus.RetryPolicy{MaxAttempts: retries, Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond}),
	}
	if !c.Follow {
		opts = append(opts, deltabus.UntilCurrent())
	}
	consumer, err := bus.Consumer(c.ID, c.Filter, func(_ context.Context, e deltabus.Event) error {
		if c.Mended {
			return nil
		}
		return behave(e, die)
	}, opts...)
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

func orEarliest(from string) string {
	if from == "" {
		return "earliest"
	}
	return from
}

// behave does what the event's headers say.
func behave(e deltabus.Event, die func()) error {
	if e.Headers[HeaderKill] != "" {
		die()
		return deltabus.Stop(errors.New("killed"))
	}
	switch e.Headers[HeaderAnswer] {
	case "skip":
		return deltabus.Skip(errWorkerFailed)
	case "panic":
		panic(errWorkerFailed)
	}
	switch fail := e.Headers[HeaderFail]; fail {
	case "":
		return nil
	case "always":
		return errWorkerFailed
	default:
		n, err := strconv.Atoi(fail)
		if err != nil {
			return deltabus.Skip(err)
		}
		if e.Attempt <= n {
			return errWorkerFailed
		}
		return nil
	}
}
