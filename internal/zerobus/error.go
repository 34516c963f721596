package zerobus

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deltabus/deltabus-local/internal/databricks"
)

// Sentinels; test with errors.Is.
var (
	// ErrClosed: the stream was closed by its user.
	ErrClosed = errors.New("zerobus stream is closed")
	// ErrTooLarge: one Ingest exceeds MaxPayload. The stream stays usable.
	ErrTooLarge = errors.New("ingest payload too large")
)

// Error is why a stream ended.
type Error struct {
	// Op is "open" for the setup of a stream, "stream" for what came later.
	Op string
	// Code is the gRPC status; codes.OK if the server ended the stream without an error.
	Code codes.Code
	// Message is the server's, as it came, or the client's own.
	Message string
	// Closing marks an end that the server had announced (CloseStreamSignal).
	Closing bool
	// Protocol marks a server that broke the protocol (an acknowledgement out of range): never retried.
	Protocol bool
	// Cause is what lies below, or nil.
	Cause error
}

// Error is "zerobus OP: CODE: MESSAGE".
func (e *Error) Error() string { return fmt.Sprintf("zerobus %s: %s: %s", e.Op, e.Code, e.Message) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Retryable reports whether a new stream may go on where this one ended, by the official SDKs' classification.
func (e *Error) Retryable() bool {
	if e.Protocol {
		return false
	}
	var oauth *databricks.OAuthError
	if errors.As(e.Cause, &oauth) {
		return oauth.Retryable()
	}
	switch e.Code {
	case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied, codes.OutOfRange, codes.Unimplemented, codes.NotFound:
		return false
	}
	return true
}

// Settled reports whether the server is known to have ended the stream itself. If not (a lost connection, a server
// that does not answer), it may still be writing what it received.
func (e *Error) Settled() bool {
	switch e.Code {
	case codes.OK, codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied, codes.OutOfRange, codes.Unimplemented, codes.NotFound,
		codes.FailedPrecondition, codes.ResourceExhausted, codes.Aborted, codes.DataLoss, codes.AlreadyExists:
		return !e.Protocol
	case codes.Unavailable:
		return e.Closing || strings.Contains(e.Message, "Error Code: 6002")
	}
	return false
}

// asError turns what gRPC or the token fetch returned into an *Error.
func asError(op string, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var oauth *databricks.OAuthError
	if errors.As(err, &oauth) {
		code := codes.Unavailable
		if !oauth.Retryable() {
			code = codes.Unauthenticated
		}
		return &Error{Op: op, Code: code, Message: err.Error(), Cause: err}
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return &Error{Op: op, Code: s.Code(), Message: s.Message(), Cause: err}
}

func protocolError(format string, args ...any) *Error {
	return &Error{Op: "stream", Code: codes.Internal, Message: fmt.Sprintf(format, args...), Protocol: true}
}

// isTokenError reports whether the token endpoint, not the stream, refused.
func isTokenError(e *Error) bool {
	var oauth *databricks.OAuthError
	return errors.As(e.Cause, &oauth)
}
