//go:build !linux

package main

import "time"

func processStart() startTime { return startTime{time.Now()} }
