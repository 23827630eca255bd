// Package carrier has how a stream, or a side of a tunnel, uses its connection: to read, write, wait
// and close. There is one implementation for each kind of connection, in a file of its own.
package carrier

import (
	"net"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A Carrier is how a Stream or a side of a Tunnel uses its connection. There is one implementation
// for each kind of connection, in a file of its own, and nothing above asks which it is:
//
//   - plainCarrier reads and writes a socket;
//   - wrappedCarrier uses the methods of a connection that wraps another one, such as a *tls.Conn;
//   - recordCarrier reads and writes the records of package tlsrecord by the socket below them;
//   - muxedCarrier uses a stream of HTTP/2.
//
// A carrier has no lock. Its owner makes at most one read and one write at a time, and parks the
// connection at most once.
type Carrier interface {
	// NetConn returns the connection, for its addresses and settings.
	NetConn() net.Conn
	// Read returns what has arrived, or 0 and no error if there is nothing. err is an
	// *unwrap.UnfitError if the connection does not say that.
	Read(b []byte, p Patience) (n int, err error)
	// Emptied reports whether a read of n bytes into a buffer of the size has left nothing to read.
	Emptied(n, size int) bool
	// Write writes what the connection takes, which may be nothing. Where a connection does not say
	// what it takes, write waits until the owner's deadline.
	Write(o owner, b []byte) (n int, err error)
	// Unsent returns the number of bytes that write has counted and not sent.
	Unsent() int
	// writer says who writes what was not taken.
	Writer() Writer
	// MayWait reports whether read or write may wait, because they use the methods of the connection.
	// The lot uses them too while it is parked, and a write that a deadline has ended cannot be
	// continued.
	MayWait() bool
	// Park makes the owner's function run when what is awaited happens, once, or after the time left
	// unless that is negative. It fails with the errors of Lot.Park.
	Park(o owner, want parking.Awaited, left time.Duration) error
	// Await adds to what the parked connection waits for, which is armed. It returns what it waits
	// for then. It may make the function run instead.
	Await(o owner, armed, want parking.Awaited) parking.Awaited
	// Wake makes the function of a parked connection run.
	Wake(o owner)
	// quiet reports whether the function runs for another reason than that there is something to
	// read.
	Quiet() bool
	// Failure returns the error with which the connection has ended, if it can be known without a
	// read or a write.
	Failure() error
	// NotifiesOnce reports whether a change is notified once, and a socket's state as long as it
	// lasts. Then the owner must await AwaitReset to learn of a failure, and may stay parked when the
	// peer has ended its stream.
	NotifiesOnce() bool
	// Close closes the connection. If it may be parked, the owner's function runs.
	Close(o owner, parked bool) error
	// Reset is close for a connection that has failed: what was not sent is lost, and the peer learns
	// that it has not received everything.
	Reset(o owner, parked bool) error
}

// A DirectCarrier reads and writes by the socket, in place of which a busy direction of a tunnel
// uses one that waits.
type DirectCarrier interface {
	Carrier
	Spliced() bool // the kernel can move the bytes through a pipe
	// WasReset reports whether what a read has returned as the end of the stream is a reset.
	WasReset() bool
	ReadBy(s Socket, b []byte) (n int, err error)
	WriteBy(s Socket, b []byte) (n int, err error)
}

// A Socket is a nowait.Socket, or a Reader or Writer of it.
type Socket interface {
	Read(b []byte) (n int, err error)
	Write(b []byte) (n int, err error)
}

// Patience says how long a read may wait.
type Patience uint8

const (
	Impatient  Patience = iota // not at all
	ForRecord                  // for the rest of a TLS record: ReadyWait
	UntilUnset                 // until the read deadline that the owner has set
)

// MaxReads bounds the Reads of one call of the function, after which other connections have
// their turn.
const MaxReads = 16

// A Writer says who writes what a connection has not taken.
type Writer uint8

const (
	AnyWriter       Writer = iota // the function if the connection is parked, and otherwise a goroutine
	FunctionWriter                // the function alone, which is woken
	GoroutineWriter               // a goroutine, because write may wait
)

// An owner is a *Stream or a *tunnelSide.
type owner interface {
	Run()                     // the function
	Function() func(net.Conn) // calls run
	// Parked returns the owner as what the lot has of a connection without wrappers, and its function.
	Parked() (net.Conn, func(net.Conn))
	Lot() *parking.Lot
	WriteDeadline() time.Time // zero is none
}

// An Endpoint is the connection of an owner, which has it as a field.
type Endpoint struct {
	Conn   net.Conn      // a *net.TCPConn, a *net.UnixConn, a *Conn or a *MuxedConn
	Socket nowait.Socket // below all wrappers; none if it cannot be used without waiting
	Kind   Kind
	Fresh  bool // a handshake or a header comes before the first byte, and the function has not begun
}

type Kind uint8

const (
	WrappedKind Kind = iota
	plainKind
	recordKind
	MuxedKind
)

func (e *Endpoint) Carrier() Carrier {
	switch e.Kind {
	case plainKind:
		return (*plainCarrier)(e)
	case recordKind:
		return (*recordCarrier)(e)
	case MuxedKind:
		return (*muxedCarrier)(e)
	}
	return (*wrappedCarrier)(e)
}

// Bind makes conn, which is no stream of HTTP/2, the connection of an endpoint. It reports whether a
// wrapper reads a header when it is first used. It fails with a *PanicError of the program's hook. A
// connection that cannot be parked is no error.
func (e *Endpoint) Bind(l *parking.Lot, conn net.Conn) (lazy bool, err error) {
	e.Conn = conn
	if !unwrap.Plain(conn) {
		e.Conn = parking.Wrap(conn)
	}
	found, err := l.Find(conn)
	if err == nil {
		e.Socket = nowait.Of(found.Raw)
	}
	if found.Plain && e.Socket.OK() {
		e.Kind = plainKind
	}
	if !serving.IsPanic(err) {
		err = nil
	}
	return found.Lazy, err
}

// PendingTLS returns the layer whose handshake is not complete, or nil. It fails with a *PanicError
// of the program's hook.
func (e *Endpoint) PendingTLS(l *parking.Lot) (unwrap.TLSConn, error) {
	if c, ok := e.Conn.(*parking.Conn); ok {
		return l.UnfinishedTLS(c)
	}
	return nil, nil
}

// WriteAndWait writes b, and waits until the owner's deadline for the connection to take it.
func (e *Endpoint) WriteAndWait(o owner, b []byte) (n int, err error) {
	e.Conn.SetWriteDeadline(o.WriteDeadline())
	return e.Conn.Write(b)
}

// readAndWait reads what arrives until the read deadline.
func (e *Endpoint) readAndWait(b []byte) (n int, err error) {
	if n, err = parking.ReadPast(e.Conn, b); n > 0 && serving.IsTimeout(err) {
		err = nil
	}
	return n, err
}

// closeIn closes a connection that the lot may have parked.
func (e *Endpoint) closeIn(l *parking.Lot, parked bool) error {
	if parked {
		return l.CloseConn(e.Conn)
	}
	return e.Conn.Close()
}

// resetIn resets a connection that the lot may have parked.
func (e *Endpoint) resetIn(l *parking.Lot, parked bool) error {
	if parked {
		return l.Reset(e.Conn)
	}
	return l.Cut(e.Conn)
}
