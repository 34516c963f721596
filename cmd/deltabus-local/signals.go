package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/deltabus/deltabus-local/deltabus"
)

// secondSignal makes the signal after the one that ended ctx cut the running handler off.
func (a *app) secondSignal(ctx context.Context, c *deltabus.Consumer) {
	<-ctx.Done()
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	<-again
	c.Stop() // the end of ctx was the first
}
