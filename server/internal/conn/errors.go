package conn

import (
	"errors"

	"github.com/socknotify/socknotify/internal/serving"
)

// Errors that package server exports, and documents.
var (
	ErrQueueFull            = errors.New("server: write queue is full")
	ErrOverload             = errors.New("server: too many bytes queued")
	ErrTooLong              = errors.New("server: message is too long")
	ErrIdle           error = serving.TimeoutError("server: idle for too long")
	ErrSlow           error = serving.TimeoutError("server: peer reads too slowly")
	ErrMessageTimeout error = serving.TimeoutError("server: message takes too long to arrive")
	ErrHandshake      error = serving.TimeoutError("server: header or TLS handshake takes too long")
)

// A Refusal is the error for a connection that a limit forbids.
type Refusal string

func (r Refusal) Error() string { return string(r) }

const (
	ErrTooMany        Refusal = "too many connections"
	ErrTooManyAddr    Refusal = "too many connections from one address"
	ErrAcceptRate     Refusal = "too many new connections"
	ErrAcceptRateAddr Refusal = "too many new connections from one address"
)

var (
	errLost      = errors.New("server: connection failed for an unknown reason")
	errHijacked  = errors.New("server: connection is hijacked")
	errStreaming = errors.New("server: Hijack while a Stream or SendFile is unfinished")
	errNotCalled = errors.New("server: Hijack called outside the handler's calls for the " +
		"connection")
	errPreambleLong = errors.New("server: header is too long")
	errCrowded      = errors.New("server: TLS handshake ended to make room for another: " +
		"peer did not answer")
)

// A lostError is a failure of the socket that was found after a notification.
type lostError struct{ err error }

func (e *lostError) Error() string { return "server: connection: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }
