package emulator_test

import (
	"context"
	"fmt"
	"log"
	"testing"

	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/emulator"
)

// A workspace in memory with one table, made before it is ready. An SDK is given URL for both of its arguments.
func ExampleStart() {
	ctx := context.Background()
	seed, err := emulator.ParseSeed([]byte(`
tables:
  - name: main.shop.orders
    columns: [id BIGINT NOT NULL, item STRING]
    cdf: true
`))
	if err != nil {
		log.Fatal(err)
	}
	e, err := emulator.Start(ctx, emulator.WithSeed(seed))
	if err != nil {
		log.Fatal(err)
	}
	tables, err := e.Workspace().List(ctx, "main", "shop")
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range tables {
		fmt.Println(t.FullName, t.Type)
	}
	if err := e.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: main.shop.orders MANAGED
}

// In a test, Run fails it when the start does, and stops the emulator at its end. Without a port clients connect by DialContext.
func ExampleRun() {
	test := func(t *testing.T) {
		e := emulator.Run(t, emulator.WithoutListener())
		id, err := deltalog.ParseColumn("id BIGINT NOT NULL")
		if err != nil {
			t.Fatal(err)
		}
		spec := deltalog.TableSpec{Schema: deltalog.Struct{Fields: []deltalog.Field{id}}}
		if _, err := e.CreateTable(t.Context(), "main.default.events", spec); err != nil {
			t.Fatal(err)
		}
	}
	_ = test // go test calls it
}
