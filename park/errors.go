package park

import (
	"errors"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/group"
	"github.com/socknotify/socknotify/internal/serving/nethttp"
	"github.com/socknotify/socknotify/internal/serving/parking"
)

var (
	// ErrParked is returned by Park when the connection is already parked.
	ErrParked = parking.ErrParked
	// ErrUnparkable is returned by Park for a connection that cannot be parked. Its read deadline
	// was cleared, and it can be used as before. errors.Is(ErrUnparkable, socknotify.ErrInvalid) is
	// true.
	ErrUnparkable = parking.ErrUnparkable
	// ErrClosed is returned by Park when the lot is closed. errors.Is(ErrClosed, net.ErrClosed) is
	// true.
	ErrClosed = parking.ErrClosed
	// ErrBodyUnread is returned for a request whose connection cannot be taken over because a part
	// of its body was not read: what follows on the connection would begin with that.
	ErrBodyUnread = nethttp.ErrBodyUnread
	// ErrServerClosed is returned by the Serve methods of a Server, and by those that open a Stream,
	// after Shutdown or Close. It is also the cause of the connections that these have ended.
	// errors.Is(ErrServerClosed, net.ErrClosed) is true.
	ErrServerClosed = group.ErrServerClosed
	// ErrTooLong is the cause of a Stream whose peer has sent more than it may, and returned by
	// Suspend for a body that is too long.
	ErrTooLong = errors.New("park: the peer has sent too much")
	// ErrMaxConns is returned for a connection beyond MaxConns.
	ErrMaxConns = group.ErrMaxConns
	// ErrMaxSuspended is returned by Suspend beyond MaxSuspended or MaxSuspendedBytes.
	ErrMaxSuspended = errors.New("park: too many requests wait")
	// ErrClientGone is the cause of a request that no longer waits because its client has gone.
	ErrClientGone = errors.New("park: the client has gone")

	// ErrIdle, ErrMessageTimeout, ErrSlow and ErrHandshake are the causes of connections that were
	// closed because of IdleTimeout, ReadTimeout, WriteTimeout, or MaxQueued with SlowClose, and
	// HandshakeTimeout. errors.Is finds all of these, and ErrWaitTimeout, to be
	// os.ErrDeadlineExceeded.
	ErrIdle           error = serving.TimeoutError("park: idle for too long")
	ErrMessageTimeout error = serving.TimeoutError("park: the message takes too long to arrive")
	ErrSlow           error = serving.TimeoutError("park: the peer does not read")
	ErrHandshake            = group.ErrHandshake
	// ErrWaitTimeout is the cause of a request that has waited for SuspendOptions.Timeout.
	ErrWaitTimeout error = serving.TimeoutError("park: the request has waited for too long")
)

// A PanicError is the cause of a connection of a Server whose handler has panicked. It has the
// Value of the panic, and the Stack.
type PanicError = serving.PanicError

var (
	errTooMany  = errors.New("park: too many connections from one address")
	errPanicked = errors.New("park: a method of the connection panicked")
	errGoexit   = group.ErrGoexit
)
