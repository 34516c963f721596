package main

import (
	"time"
)

// startTime is when the process began, as well as the system tells.
type startTime struct{ at time.Time }

func (s startTime) elapsed() time.Duration { return time.Since(s.at) }
