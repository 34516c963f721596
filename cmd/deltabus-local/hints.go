package main

import (
	"errors"
	"slices"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog"
)

// hint is what to do next.
func hint(err error) string {
	var usage *usageError
	var undelivered *deltabus.UndeliveredError
	switch {
	case errors.Is(err, errNoWorkspace):
		return "start one with 'deltabus-local serve', or point --data-dir or --host at one"
	case errors.Is(err, deltabus.ErrNoBus):
		return "make one with 'deltabus-local serve --bus CATALOG.SCHEMA', or name another with --bus"
	case errors.Is(err, deltabus.ErrTableDropped):
		what := "a server that starts ('deltabus-local serve --bus CATALOG.SCHEMA') makes what is missing of a bus, empty"
		if errors.As(err, &undelivered) {
			what += "; publish what has no receipt again then"
		}
		return what
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
	case errors.As(err, &undelivered):
		if slices.ContainsFunc(undelivered.Messages, func(m deltabus.Undelivered) bool { return m.Spooled }) {
			return "they are kept: 'deltabus-local publish' with the same --spool delivers them"
		}
		return "publish them again, with the same message_id where they may be there; --spool FILE would have kept them"
	case errors.As(err, &usage):
		return "see --help"
	}
	return ""
}
