package main

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// processStart asks the kernel when this process was started, so that loading the binary counts too.
func processStart() startTime {
	now := time.Now()
	data, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return startTime{now}
	}
	// The 22nd field is the start in ticks of 10 ms since boot; the name, in brackets, may hold blanks.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 20 {
		return startTime{now}
	}
	ticks, err := strconv.ParseInt(string(fields[19]), 10, 64)
	if err != nil {
		return startTime{now}
	}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return startTime{now}
	}
	age := time.Duration(boot.Nano()) - time.Duration(ticks)*10*time.Millisecond
	return startTime{now.Add(-age)}
}
