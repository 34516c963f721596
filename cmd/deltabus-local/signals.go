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

// untilSecondSignal is a context that outlives ctx, which the first signal ends, until the next one. The caller cancels it.
func untilSecondSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	second, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(again)
		select {
		case <-again:
			cancel()
		case <-second.Done():
		}
	})
	return second, func() { stop(); cancel() }
}
