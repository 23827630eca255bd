package server

import (
	"errors"
	"fmt"
	"net"

	"github.com/socknotify/socknotify/internal/serving"
)

var (
	// ErrServerClosed is returned by Serve after Shutdown or Close, and is the cause of connections
	// that Close has ended. It matches net.ErrClosed with errors.Is.
	ErrServerClosed error = serving.ClosedError("server: closed")
	// ErrQueueFull is returned by Write if MaxQueued bytes are queued already. Nothing was taken.
	ErrQueueFull = errors.New("server: write queue is full")
	// ErrOverload is returned by Write because of MaxQueuedTotal. Nothing was taken.
	ErrOverload = errors.New("server: too many bytes queued")
	// ErrTooLong is returned by the methods of the input for a message of more than
	// Server.MaxMessage bytes, and for a line that is longer than the handler allows.
	ErrTooLong = errors.New("server: message is too long")

	// ErrIdle is the cause of a connection that was closed after IdleTimeout, ErrSlow after
	// WriteTimeout or by SlowClose, and ErrMessageTimeout after ReadTimeout. ErrHandshake is logged
	// for a connection whose header or TLS handshake was not complete within HandshakeTimeout. All
	// match os.ErrDeadlineExceeded with errors.Is.
	ErrIdle           error = serving.TimeoutError("server: idle for too long")
	ErrSlow           error = serving.TimeoutError("server: peer reads too slowly")
	ErrMessageTimeout error = serving.TimeoutError("server: message takes too long to arrive")
	ErrHandshake      error = serving.TimeoutError("server: header or TLS handshake takes too long")
)

// A lostError is a failure of the socket that was found after a notification.
type lostError struct{ err error }

func (e *lostError) Error() string { return "server: connection: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// A PanicError is the cause of a connection whose handler panicked. It has the Value of the panic, and
// the Stack.
type PanicError = serving.PanicError

var (
	errLost           = errors.New("server: connection failed for an unknown reason")
	errHijacked       = errors.New("server: connection is hijacked")
	errNoSocket       = invalid("listener or socket is nil")
	errNoContext      = invalid("context is nil")
	errStreaming      = errors.New("server: Hijack while a Stream or SendFile is unfinished")
	errNotCalled      = errors.New("server: Hijack called outside the handler's calls for the connection")
	errNoCertificate  = errors.New("server: neither files nor TLSConfig have a certificate")
	errPreambleLong   = errors.New("server: header is too long")
	errTooMany        = errors.New("too many connections")
	errTooManyAddr    = errors.New("too many connections from one address")
	errAcceptRate     = errors.New("too many new connections")
	errAcceptRateAddr = errors.New("too many new connections from one address")
	errCrowded        = errors.New("server: TLS handshake ended to make room for another: " +
		"peer did not answer")
	// errClosedElsewhere is the error of Serve for a listener or a socket that was closed, but not
	// by the server.
	errClosedElsewhere = fmt.Errorf("closed while it was served: %w", net.ErrClosed)
)
