package deltabus_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog/store"
)

// A consumer goes on from its stored checkpoint, one event after the other.
func ExampleConsumer() {
	ctx := context.Background()
	bus := newBus(ctx,
		deltabus.Message{Topic: "orders.new", Payload: []byte("first")},
		deltabus.Message{Topic: "audit", Payload: []byte("not for us")},
		deltabus.Message{Topic: "orders.paid", Payload: []byte("second")},
	)
	handle := func(_ context.Context, e deltabus.Event) error {
		fmt.Printf("%s: %s\n", e.Topic, e.Payload)
		return nil // done; an error would try again, and then make it a dead letter
	}
	for range 2 { // the second run finds nothing new
		consumer, err := bus.Consumer("billing", "orders.*", handle, deltabus.UntilCurrent())
		if err != nil {
			log.Fatal(err)
		}
		if err := consumer.Run(ctx); err != nil {
			log.Fatal(err)
		}
	}
	all, err := bus.Consumers(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range all {
		fmt.Println(c.Consumer, c.State, "events behind:", *c.LagEvents)
	}
	// Output:
	// orders.new: first
	// orders.paid: second
	// billing current events behind: 0
}

// What fails too often is kept with its error, and replayed once the handler is mended.
func ExampleDeadLetters() {
	ctx := context.Background()
	bus := newBus(ctx, deltabus.Message{Topic: "orders.new", Payload: []byte("12,50")}, deltabus.Message{Topic: "orders.new", Payload: []byte("9.50")})
	consume := func(handle deltabus.Handler) {
		consumer, err := bus.Consumer("billing", "orders.>", handle, deltabus.UntilCurrent())
		if err != nil {
			log.Fatal(err)
		}
		if err := consumer.Run(ctx); err != nil {
			log.Fatal(err)
		}
	}
	consume(func(_ context.Context, e deltabus.Event) error {
		if string(e.Payload) == "12,50" {
			return deltabus.Skip(errors.New("not a number")) // trying again would not help
		}
		fmt.Printf("handled %s\n", e.Payload)
		return nil
	})

	letters := bus.DeadLetters()
	open, err := letters.List(ctx, deltabus.DeadLetterFilter{Consumer: "billing", Status: deltabus.StatusOpen})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range open {
		fmt.Printf("dead: %s after %d attempt: %s\n", d.Event.Payload, d.Attempts, d.Error)
	}
	if _, err := letters.Replay(ctx, deltabus.DeadLetterFilter{Consumer: "billing"}, deltabus.ToConsumer); err != nil {
		log.Fatal(err)
	}
	consume(func(_ context.Context, e deltabus.Event) error {
		fmt.Printf("handled %s, replay %d\n", e.Payload, e.Replay)
		return nil
	})
	// Output:
	// handled 9.50
	// dead: 12,50 after 1 attempt: not a number
	// handled 12,50, replay 1
}

// newBus makes a bus in memory with messages in it.
func newBus(ctx context.Context, messages ...deltabus.Message) *deltabus.Bus {
	bus, err := deltabus.Init(ctx, deltabus.Config{Workspace: deltabus.OnStore(store.NewMemory())})
	if err != nil {
		log.Fatal(err)
	}
	publisher, err := bus.Publisher(deltabus.WithBatches(10*time.Millisecond, 1000, 1<<20))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := publisher.Publish(ctx, messages...); err != nil {
		log.Fatal(err)
	}
	if err := publisher.Close(ctx); err != nil {
		log.Fatal(err)
	}
	return bus
}
