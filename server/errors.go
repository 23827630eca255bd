package server

import (
	"errors"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/server/internal/conn"
	"github.com/socknotify/socknotify/server/internal/engine"
)

var (
	// ErrServerClosed is returned by Serve after Shutdown or Close, and is the cause of connections
	// that Close has ended. It matches net.ErrClosed with errors.Is.
	ErrServerClosed = engine.ErrServerClosed
	// ErrQueueFull is returned by Write if MaxQueued bytes are queued already. Nothing was taken.
	ErrQueueFull = conn.ErrQueueFull
	// ErrOverload is returned by Write because of MaxQueuedTotal. Nothing was taken.
	ErrOverload = conn.ErrOverload
	// ErrTooLong is returned by the methods of the input for a message of more than
	// Server.MaxMessage bytes, and for a line that is longer than the handler allows.
	ErrTooLong = conn.ErrTooLong

	// ErrIdle is the cause of a connection that was closed after IdleTimeout, ErrSlow after
	// WriteTimeout or by SlowClose, and ErrMessageTimeout after ReadTimeout. ErrHandshake is logged
	// for a connection whose header or TLS handshake was not complete within HandshakeTimeout. All
	// match os.ErrDeadlineExceeded with errors.Is.
	ErrIdle           = conn.ErrIdle
	ErrSlow           = conn.ErrSlow
	ErrMessageTimeout = conn.ErrMessageTimeout
	ErrHandshake      = conn.ErrHandshake
)

// A PanicError is the cause of a connection whose handler panicked. It has the Value of the panic,
// and the Stack.
type PanicError = serving.PanicError

var errNoCertificate = errors.New("server: neither files nor TLSConfig have a certificate")
