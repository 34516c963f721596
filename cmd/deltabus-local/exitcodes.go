package main

import (
	"errors"

	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/internal/catalog"
	"github.com/deltabus/deltabus-local/internal/databricks"
)

// Exit codes; exitCodes says what each means.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 3
	exitFenced   = 4
	exitDecision = 5
)

// exitCodes is the documentation: help exit-codes prints it, and a test compares docs/cli.md with it.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "done"},
	{exitFailed, "failed"},
	{exitUsage, "wrong usage: flags, arguments, configuration, input lines"},
	{exitNotFound, "not found: no workspace, bus, catalog, table, version or dead letter"},
	{exitFenced, "fenced: another instance of the consumer has taken over. **Do not restart.**"},
	{exitDecision, "the consumer needs a decision: its position expired, its table was recreated, history was rewritten, or its filter changed"},
}

func exitCode(err error) int {
	var usage *usageError
	switch {
	case errors.As(err, &usage), isAny(err, deltabus.ErrInvalidMessage, deltabus.ErrTopic):
		return exitUsage
	case errors.Is(err, deltabus.ErrFenced):
		return exitFenced
	case isAny(err, deltabus.ErrPositionExpired, deltabus.ErrTableRecreated, deltabus.ErrHistoryRewritten, deltabus.ErrFilterChanged):
		return exitDecision
	case databricks.IsNotFound(err), isAny(err, deltalog.ErrNotTable, deltabus.ErrTableDropped, deltabus.ErrNoBus, deltabus.ErrNoSuchDeadLetter, errNoWorkspace, catalog.ErrNotFound, deltalog.ErrVersionNotFound):
		return exitNotFound
	}
	return exitFailed
}

// isAny reports whether err is one of targets.
func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
