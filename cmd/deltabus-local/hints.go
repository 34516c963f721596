package main

import (
	"errors"
	"io/fs"
	"net"
	"slices"
	"syscall"

	"github.com/deltabus/deltabus-local/cdf"
	"github.com/deltabus/deltabus-local/deltabus"
	"github.com/deltabus/deltabus-local/deltalog"
	"github.com/deltabus/deltabus-local/deltalog/store"
	"github.com/deltabus/deltabus-local/emulator"
	"github.com/deltabus/deltabus-local/internal/catalog"
	"github.com/deltabus/deltabus-local/internal/databricks"
)

// adviceError is an error that says itself what to do next.
type adviceError struct {
	error
	advice string
}

func (e *adviceError) Unwrap() error { return e.error }

// advise adds what to do next to an error, if there is one.
func advise(err error, advice string) error {
	if err == nil {
		return nil
	}
	return &adviceError{err, advice}
}

// hints is what to do next after an error that is one of these. The first that fits counts, so causes that say most come first.
var hints = []struct {
	errors []error
	next   string
}{
	{[]error{errNoWorkspace}, "start one with 'deltabus-local serve', or point --data-dir or --host at one"},
	{[]error{deltabus.ErrFenced}, "do not restart this instance: the other one goes on"},
	{[]error{deltabus.ErrFilterChanged}, "use --change-filter to go on with the new one"},
	{
		[]error{deltabus.ErrPositionExpired, deltabus.ErrTableRecreated, deltabus.ErrHistoryRewritten},
		"use --reset with --from earliest, latest or version:N",
	},
	{[]error{syscall.ENOSPC}, "free space on that disk and run it again: what was acknowledged is safe, what was not is to be sent again"},
	{[]error{store.ErrSyncFailed}, "check that disk, then start again: what was acknowledged before is in the tables"},
	{[]error{deltalog.ErrCorrupt}, "'deltabus-local table verify TABLE' says what is wrong with it; bring the files that it names back from a copy"},
	{[]error{deltalog.ErrUnsupported}, "docs/compatibility.md lists what is supported; use another reader, or a copy of the table without the feature"},
	{
		[]error{fs.ErrPermission, syscall.EROFS},
		"get write permission for it, or choose another place (--data-dir): verbs that only read need none",
	},
	{[]error{deltabus.ErrNoBus}, "make one with 'deltabus-local serve --bus CATALOG.SCHEMA', or name another with --bus"},
	{[]error{deltabus.ErrNoSuchDeadLetter}, "'deltabus-local deadletters list' shows the ones there are"},
	{[]error{deltalog.ErrNotTable}, "'deltabus-local table list' shows the tables there are"},
	{[]error{fs.ErrNotExist}, "check the path: its directory has to be there"},
	{[]error{syscall.ENOTDIR}, "that is a file: name a directory"},
	{[]error{deltalog.ErrTableExists}, "'deltabus-local table show TABLE' shows it; choose another name for a new one"},
	{[]error{deltalog.ErrVersionNotFound, cdf.ErrRange, cdf.ErrExpired}, "'deltabus-local table history TABLE' shows the versions there are"},
	{[]error{cdf.ErrNotEnabled}, "it has a change data feed from the version on that sets delta.enableChangeDataFeed, as 'table create --cdf' does; 'table rows' reads it without"},
	{[]error{cdf.ErrRewritten, cdf.ErrIncompatibleSchema}, "choose a range without that version by --from and --to, or read 'table rows --version N'"},
	{[]error{deltalog.ErrConflict}, "another writer was quicker: run it again"},
	{[]error{deltalog.ErrOutcomeUnknown}, "look whether it is done ('deltabus-local table history TABLE') before you run it again"},
	{[]error{catalog.ErrDamaged}, "move that file away: the next start makes it anew from the tables in the directory"},
	{[]error{catalog.ErrNotFound}, noParent},
	{[]error{catalog.ErrName}, "name it by letters, digits and underscores, parted by dots, like main.default.orders"},
	{[]error{deltabus.ErrTopic, deltabus.ErrInvalidMessage}, "mend the event and publish it again; 'deltabus-local publish --help' says what it may have"},
	{[]error{deltabus.ErrSpoolInUse}, "end the publisher that has it, or give --spool another file"},
	{[]error{deltabus.ErrSpoolFailed}, "check the file of --spool and its disk"},
	{[]error{deltabus.ErrRefused}, "mend the event or the table, and publish it again"},
	{[]error{deltabus.ErrBufferFull}, "publish it again, more slowly"},
}

const noParent = "'deltabus-local table list' shows what there is; catalog main always is, others are made by 'serve --seed FILE' or Unity Catalog's API"

// hint is what to do next after an error of a verb. Every error has something.
func hint(verb string, err error) string {
	var advice *adviceError
	var usage *usageError
	var locked *emulator.LockedError
	var op *net.OpError
	var dns *net.DNSError
	var api *databricks.APIError
	var undelivered *deltabus.UndeliveredError
	switch {
	case errors.As(err, &advice):
		return advice.advice
	case errors.As(err, &usage):
		return "see '" + verb + " --help'"
	case errors.Is(err, deltabus.ErrTableDropped):
		what := "a server that starts ('deltabus-local serve --bus CATALOG.SCHEMA') makes what is missing of a bus, empty"
		if errors.As(err, &undelivered) {
			what += "; publish what has no receipt again then"
		}
		return what
	case errors.As(err, &locked), errors.As(err, &op) && op.Op == "listen", isAny(err, emulator.ErrLocation, deltabus.ErrSpoolExpired):
		return "" // it ends with that itself
	}
	for _, h := range hints {
		if isAny(err, h.errors...) {
			return h.next
		}
	}
	switch {
	case errors.As(err, &undelivered):
		if slices.ContainsFunc(undelivered.Messages, func(m deltabus.Undelivered) bool { return m.Spooled }) {
			return "they are kept: 'deltabus-local publish' with the same --spool delivers them"
		}
		return "publish them again, with the same message_id where they may be there; --spool FILE would have kept them"
	case op != nil, errors.As(err, &dns):
		return "is the server running there? 'deltabus-local config' shows which --host is meant and why; 'deltabus-local serve' starts one"
	case databricks.IsNotFound(err):
		return noParent
	case errors.As(err, &api):
		return "that is the server's answer, and its log has more; 'deltabus-local table verify TABLE' looks at a table without it"
	}
	return "'deltabus-local doctor' checks this machine; with --log-level debug the verb says more"
}
