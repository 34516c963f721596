package zerobusfake

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/deltabus/deltabus-local/deltalog"
)

// The codes of the real service that stand in its messages (zerobus.md 9). Clients are told not to parse them; people do read them.
const (
	codeNonIncrementalOffset = 4002
	codeRecord               = 4044
	codeStreamTimeout        = 6002
)

// coded is an error of the form "<text>. Error Code: <n>, Error State: <m>."
func coded(c codes.Code, code, state int, format string, args ...any) error {
	return status.Errorf(c, "%s. Error Code: %d, Error State: %d.", brief(fmt.Sprintf(format, args...), maxText), code, state)
}

// recordError is a record that cannot be decoded.
type recordError struct{ text string }

func (e *recordError) Error() string { return e.text }

func badRecord(format string, args ...any) error {
	return &recordError{fmt.Sprintf(format, args...)}
}

// status is what the client gets.
func (e *recordError) status() error {
	return coded(codes.InvalidArgument, codeRecord, 3, "Record decoder/encoder error: %s", e.text)
}

func invalid(format string, args ...any) error {
	return status.Error(codes.InvalidArgument, brief(fmt.Sprintf(format, args...), maxText))
}

// A status travels in the trailers, which clients bound (hyper: 16 KiB): a longer one breaks the stream instead of ending it, and the
// client tries again for ever. So what a client sent is quoted up to a limit. Bytes.
const (
	maxText   = 1024 // a whole text
	maxQuoted = 256  // a name within it, so that what is said after the name is kept
)

// brief is s, or its beginning when it is longer than limit.
func brief(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}

func unimplemented(what string) error {
	return status.Errorf(codes.Unimplemented, "%s is not implemented by deltabus-local yet", what)
}

// tableStatus is what clients hear of a table that cannot be opened or written. A fault that lasts has a code that they do not retry (zerobus.md
// 5.6; INTERNAL, DATA_LOSS and FAILED_PRECONDITION they would try for ever).
func tableStatus(table string, err error) error {
	switch {
	case errors.Is(err, deltalog.ErrNotTable), errors.Is(err, deltalog.ErrRecreated):
		return notFound(table)
	case errors.Is(err, deltalog.ErrUnsupported):
		return status.Error(codes.Unimplemented, brief(fmt.Sprintf("table %s: %v", table, err), maxText))
	case errors.Is(err, deltalog.ErrConflict): // passes
	case errors.Is(err, deltalog.ErrCorrupt), errors.Is(err, deltalog.ErrVersionNotFound):
		return invalid("table %s is damaged, see table verify: %v", table, err)
	}
	return status.Error(codes.Unavailable, brief(fmt.Sprintf("table %s: %v", table, err), maxText))
}

// malformed is a record whose bytes are no protobuf; n is what protowire answered. The library's own texts begin, on purpose, with
// one of two kinds of blank as the build goes, so they are cut: the same record gets the same answer from every binary.
func malformed(n int) error {
	text := strings.TrimLeft(strings.TrimPrefix(protowire.ParseError(n).Error(), "proto:"), " \u00a0")
	return badRecord("invalid protobuf: %s", text)
}
