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

// Publish returns when the messages are committed to the table; Config.Zerobus makes them take the faster way.
func ExamplePublisher() {
	ctx := context.Background()
	bus, err := deltabus.Init(ctx, deltabus.Config{Workspace: deltabus.OnStore(store.NewMemory())})
	if err != nil {
		log.Fatal(err)
	}
	publisher, err := bus.Publisher(deltabus.WithSource("shop"), deltabus.WithBatches(10*time.Millisecond, 1000, 1<<20))
	if err != nil {
		log.Fatal(err)
	}
	receipts, err := publisher.Publish(ctx,
		deltabus.Message{Topic: "orders.new", Key: "42", Payload: []byte(`{"total":9.5}`), ContentType: "application/json"},
		deltabus.Message{Topic: "orders.paid", Key: "42"},
	)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range receipts {
		fmt.Println(r.ProducerSeq, r.Path)
	}
	if err := publisher.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 0 batch
	// 1 batch
}

// PublishAsync returns at once; Flush and Close wait, and say what did not make it.
func ExamplePublisher_PublishAsync() {
	ctx := context.Background()
	bus, err := deltabus.Init(ctx, deltabus.Config{Workspace: deltabus.OnStore(store.NewMemory())})
	if err != nil {
		log.Fatal(err)
	}
	publisher, err := bus.Publisher()
	if err != nil {
		log.Fatal(err)
	}
	delivery, err := publisher.PublishAsync(ctx, deltabus.Message{Topic: "orders.new"})
	if err != nil {
		log.Fatal(err) // not accepted
	}
	if err := publisher.Flush(ctx); err != nil {
		log.Print(err)
	}
	fmt.Println(delivery.Err(), delivery.Receipt().ProducerSeq)

	_, err = publisher.PublishAsync(ctx, deltabus.Message{Topic: "not a topic"})
	fmt.Println(errors.Is(err, deltabus.ErrInvalidMessage))

	if err := publisher.Close(ctx); err != nil {
		var undelivered *deltabus.UndeliveredError
		if errors.As(err, &undelivered) {
			for _, m := range undelivered.Messages {
				fmt.Println("not known to be durable:", m.Message.ID, m.Err)
			}
		}
	}
	// Output:
	// <nil> 0
	// true
}
