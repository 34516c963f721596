package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

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

// afterSignal is a context that outlives ctx, which the first signal ends: until the next one, or until nothing has made progress for so long
// as patience. The caller cancels it.
func afterSignal(ctx context.Context, patience time.Duration) (after context.Context, progress, cancel func()) {
	after, end := context.WithCancelCause(context.WithoutCancel(ctx))
	moved := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() {
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(again)
		timer := time.NewTimer(patience)
		defer timer.Stop()
		for {
			select {
			case <-moved:
				timer.Reset(patience)
				continue
			case <-timer.C:
				end(fmt.Errorf("a signal, and nothing more became durable for %s", patience))
			case <-again:
				end(errors.New("a second signal"))
			case <-after.Done():
			}
			return
		}
	})
	progress = func() {
		select {
		case moved <- struct{}{}:
		default:
		}
	}
	return after, progress, func() { stop(); end(nil) }
}
