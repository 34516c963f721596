// Command serve runs an emulator for the interop tests.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/deltabus/deltabus-local/emulator"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "")
	dir := flag.String("data-dir", "", "")
	ready := flag.String("ready-file", "", "")
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		os.Args = append(os.Args[:1], os.Args[2:]...)
	}
	flag.Parse()
	e, err := emulator.Start(context.Background(), emulator.WithListen(*listen), emulator.WithDataDir(*dir))
	if err == nil {
		err = e.Info().WriteFile(*ready)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	<-c
	_ = e.Stop(context.Background())
}
