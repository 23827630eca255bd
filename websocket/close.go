package websocket

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/socknotify/socknotify/stream"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/park"
)

// A Kind says whether a message is text or binary. Its value is that of the operation code in RFC
// 6455.
type Kind byte

const (
	Text   Kind = 1 // UTF-8
	Binary Kind = 2
)

func (k Kind) String() string {
	switch k {
	case Text:
		return "Text"
	case Binary:
		return "Binary"
	}
	return fmt.Sprintf("Kind(%d)", byte(k))
}

// A Code is a status code of the end of a connection. Programs may use 3000 to 4999 for codes of
// their own.
type Code uint16

// The codes of RFC 6455 and its registry.
const (
	CodeNormal          Code = 1000
	CodeGoingAway       Code = 1001 // the server ends, or the page is left
	CodeProtocolError   Code = 1002
	CodeUnsupportedData Code = 1003 // such as a binary message where only text is understood
	CodeNone            Code = 1005 // the peer has sent no code; never sent
	CodeAbnormal        Code = 1006 // the connection ended without a close frame; never sent
	CodeInvalidPayload  Code = 1007 // such as text that is not UTF-8
	CodePolicy          Code = 1008
	CodeTooBig          Code = 1009
	CodeInternalError   Code = 1011
	CodeTryAgainLater   Code = 1013
)

// valid reports whether a code may be sent.
func (c Code) valid() bool {
	return c >= 1000 && c <= 1003 || c >= 1007 && c <= 1014 || c >= 3000 && c <= 4999
}

// A CloseError is the end of a connection by a close frame. [Server.OnClose] gets the one that the
// peer has sent, or the one with which this side has ended the connection. A handler that returns
// one ends the connection with its code.
type CloseError struct {
	Code   Code
	Reason string // UTF-8, at most 123 bytes
	Remote bool   // the peer has ended the connection

	cause error // or nil
}

// Unwrap returns the reason of this package for which the connection was ended, such as ErrTooLong,
// or nil.
func (e *CloseError) Unwrap() error { return e.cause }

func (e *CloseError) Error() string {
	by := "closed"
	if e.Remote {
		by = "closed by the peer"
	}
	if e.Reason == "" {
		return fmt.Sprintf("websocket: %s: %d", by, e.Code)
	}
	return fmt.Sprintf("websocket: %s: %d %s", by, e.Code, e.Reason)
}

// The errors of this package, beside CloseErrors and those of net and os. They are those of package
// park.
var (
	// ErrClosed is returned by calls on a connection that was closed, or that is being closed.
	// errors.Is(ErrClosed, net.ErrClosed) is true.
	ErrClosed = stream.ErrClosed
	// ErrServerClosed is returned by Upgrade after Shutdown or Close, and is the cause of
	// connections that they have ended. errors.Is(ErrServerClosed, net.ErrClosed) is true.
	ErrServerClosed = park.ErrServerClosed
	// ErrQueueFull is returned for a message that was dropped because of SlowDrop.
	ErrQueueFull = stream.ErrQueueFull
	// ErrTooLong is the cause of a connection whose peer has sent more than MaxMessage or MaxFrame
	// allows.
	ErrTooLong = park.ErrTooLong

	// ErrIdle is the cause of a connection that was closed because of IdleTimeout or PongTimeout,
	// ErrMessageTimeout because of ReadTimeout, and ErrSlow because of WriteTimeout or SlowClose.
	// errors.Is finds all of them to be os.ErrDeadlineExceeded.
	ErrIdle           = park.ErrIdle
	ErrMessageTimeout = park.ErrMessageTimeout
	ErrSlow           = park.ErrSlow
)

// A PanicError is the cause of a connection whose handler has panicked. It has the Value of the
// panic, and the Stack.
type PanicError = serving.PanicError

func protocolError(reason string) error { return &CloseError{Code: CodeProtocolError, Reason: reason} }

var (
	errTooBig      error = &CloseError{Code: CodeTooBig, Reason: "message too big", cause: ErrTooLong}
	errNotUTF8     error = &CloseError{Code: CodeInvalidPayload, Reason: "text is not UTF-8"}
	errNotDeflated error = &CloseError{Code: CodeInvalidPayload, Reason: "invalid compressed data"}
	errPings       error = &CloseError{Code: CodePolicy, Reason: "too many pings"}
	errHalfMessage error = &CloseError{Code: CodePolicy, Reason: "incomplete message timed out", cause: ErrMessageTimeout}
)

// errNoMessage ends a connection after IdleTimeout.
var errNoMessage = &CloseError{Code: CodeGoingAway, Reason: "idle", cause: ErrIdle}

// parseClose parses the payload of a close frame. err is a *CloseError if it is not valid.
func parseClose(b []byte) (c *CloseError, err error) {
	if len(b) == 0 {
		return &CloseError{Code: CodeNone, Remote: true}, nil
	}
	if len(b) == 1 {
		return nil, protocolError("close frame of 1 byte")
	}
	c = &CloseError{Code: Code(binary.BigEndian.Uint16(b)), Remote: true}
	if !c.Code.valid() {
		return nil, protocolError("invalid close code")
	}
	if !utf8.Valid(b[2:]) {
		return nil, errNotUTF8
	}
	c.Reason = string(b[2:])
	return c, nil
}

// closeFrame returns a close frame. The reason is cut to the length that fits, at a character.
func closeFrame(code Code, reason string) []byte {
	if code == CodeNone {
		return appendHeader(nil, opClose, false, 0)
	}
	if len(reason) > maxControl-2 {
		end := maxControl - 2
		for end > 0 && !utf8.RuneStart(reason[end]) {
			end--
		}
		reason = reason[:end]
	}
	b := appendHeader(nil, opClose, false, 2+len(reason))
	b = binary.BigEndian.AppendUint16(b, uint16(code))
	return append(b, reason...)
}
