package main

import (
	"errors"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog"
)

// hint is what to do next.
func hint(err error) string {
	var usage *usageError
	switch {
	case errors.Is(err, errNoWorkspace):
		return "start one with 'deltabus-local serve', or point --data-dir or --host at one"
	case errors.Is(err, deltabus.ErrNoBus):
		return "make one with 'deltabus-local serve --bus CATALOG.SCHEMA', or name another with --bus"
	case errors.Is(err, deltalog.ErrNotTable):
		return "'deltabus-local table list' shows the tables there are"
	case errors.Is(err, deltabus.ErrFenced):
		return "do not restart this instance: the other one goes on"
	case errors.Is(err, deltabus.ErrNoSuchDeadLetter):
		return "'deltabus-local deadletters list' shows the ones there are"
	case errors.Is(err, deltabus.ErrFilterChanged):
		return "use --change-filter to go on with the new one"
	case errors.Is(err, deltabus.ErrPositionExpired), errors.Is(err, deltabus.ErrTableRecreated), errors.Is(err, deltabus.ErrHistoryRewritten):
		return "use --reset with --from earliest, latest or version:N"
	case errors.As(err, &usage):
		return "see --help"
	}
	return ""
}
