package park

import (
	"net"
	"time"

	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A carrier is how a Stream or a side of a Tunnel uses its connection. There is one implementation
// for each kind of connection, in a file of its own, and nothing above asks which it is:
//
//   - plainCarrier reads and writes a socket;
//   - wrappedCarrier uses the methods of a connection that wraps another one, such as a *tls.Conn;
//   - recordCarrier reads and writes the records of package tlsrecord by the socket below them;
//   - muxedCarrier uses a stream of HTTP/2.
//
// A carrier has no lock. Its owner makes at most one read and one write at a time, and parks the
// connection at most once.
type carrier interface {
	// netConn returns the connection, for its addresses and settings.
	netConn() net.Conn
	// read returns what has arrived, or 0 and no error if there is nothing. err is an
	// *unwrap.UnfitError if the connection does not say that.
	read(b []byte, p patience) (n int, err error)
	// emptied reports whether a read of n bytes into a buffer of the size has left nothing to read.
	emptied(n, size int) bool
	// write writes what the connection takes, which may be nothing. Where a connection does not say
	// what it takes, write waits until the owner's deadline.
	write(o owner, b []byte) (n int, err error)
	// unsent returns the number of bytes that write has counted and not sent.
	unsent() int
	// writer says who writes what was not taken.
	writer() queueWriter
	// mayWait reports whether read or write may wait, because they use the methods of the connection.
	// The lot uses them too while it is parked, and a write that a deadline has ended cannot be
	// continued.
	mayWait() bool
	// park makes the owner's function run when what is awaited happens, once, or after the time left
	// unless that is negative. It fails with the errors of Lot.Park.
	park(o owner, want awaited, left time.Duration) error
	// await adds to what the parked connection waits for, which is armed. It returns what it waits
	// for then. It may make the function run instead.
	await(o owner, armed, want awaited) awaited
	// wake makes the function of a parked connection run.
	wake(o owner)
	// quiet reports whether the function runs for another reason than that there is something to
	// read.
	quiet() bool
	// failure returns the error with which the connection has ended, if it can be known without a
	// read or a write.
	failure() error
	// notifiesOnce reports whether a change is notified once, and a socket's state as long as it
	// lasts. Then the owner must await awaitReset to learn of a failure, and may stay parked when the
	// peer has ended its stream.
	notifiesOnce() bool
	// close closes the connection. If it may be parked, the owner's function runs.
	close(o owner, parked bool) error
	// reset is close for a connection that has failed: what was not sent is lost, and the peer learns
	// that it has not received everything.
	reset(o owner, parked bool) error
}

// A directCarrier reads and writes by the socket, in place of which a busy direction of a tunnel
// uses one that waits.
type directCarrier interface {
	carrier
	spliced() bool // the kernel can move the bytes through a pipe
	// wasReset reports whether what a read has returned as the end of the stream is a reset.
	wasReset() bool
	readBy(s socket, b []byte) (n int, err error)
	writeBy(s socket, b []byte) (n int, err error)
}

// A socket is a nowait.Socket, or a Reader or Writer of it.
type socket interface {
	Read(b []byte) (n int, err error)
	Write(b []byte) (n int, err error)
}

// patience says how long a read may wait.
type patience uint8

const (
	impatient  patience = iota // not at all
	forRecord                  // for the rest of a TLS record: readyWait
	untilUnset                 // until the read deadline that the owner has set
)

// A queueWriter says who writes what a connection has not taken.
type queueWriter uint8

const (
	anyWriter       queueWriter = iota // the function if the connection is parked, and otherwise a goroutine
	functionWriter                     // the function alone, which is woken
	goroutineWriter                    // a goroutine, because write may wait
)

// An owner is a *Stream or a *tunnelSide.
type owner interface {
	run()                     // the function
	function() func(net.Conn) // calls run
	// parked returns the owner as what the lot has of a connection without wrappers, and its function.
	parked() (net.Conn, func(net.Conn))
	lot() *Lot
	writeDeadline() time.Time // zero is none
}

// An endpoint is the connection of an owner, which embeds it.
type endpoint struct {
	conn   net.Conn      // a *net.TCPConn, a *net.UnixConn, a *Conn or a *muxedConn
	socket nowait.Socket // below all wrappers; none if it cannot be used without waiting
	kind   carrierKind
	fresh  bool // a handshake or a header comes before the first byte, and the function has not begun
}

type carrierKind uint8

const (
	wrappedKind carrierKind = iota
	plainKind
	recordKind
	muxedKind
)

func (e *endpoint) carrier() carrier {
	switch e.kind {
	case plainKind:
		return (*plainCarrier)(e)
	case recordKind:
		return (*recordCarrier)(e)
	case muxedKind:
		return (*muxedCarrier)(e)
	}
	return (*wrappedCarrier)(e)
}

// bind makes conn, which is no stream of HTTP/2, the connection of an endpoint. It reports whether a
// wrapper reads a header when it is first used. It fails with a *PanicError of the program's hook. A
// connection that cannot be parked is no error.
func (e *endpoint) bind(l *Lot, conn net.Conn) (lazy bool, err error) {
	e.conn = conn
	if !unwrap.Plain(conn) {
		e.conn = Wrap(conn)
	}
	found, err := l.find(conn)
	if err == nil {
		e.socket = nowait.Of(found.Raw)
	}
	if found.Plain && e.socket.OK() {
		e.kind = plainKind
	}
	if !isPanic(err) {
		err = nil
	}
	return found.Lazy, err
}

// pendingTLS returns the layer whose handshake is not complete, or nil. It fails with a *PanicError
// of the program's hook.
func (e *endpoint) pendingTLS(l *Lot) (unwrap.TLSConn, error) {
	if c, ok := e.conn.(*Conn); ok {
		return c.unfinishedTLS(l)
	}
	return nil, nil
}

// writeAndWait writes b, and waits until the owner's deadline for the connection to take it.
func (e *endpoint) writeAndWait(o owner, b []byte) (n int, err error) {
	e.conn.SetWriteDeadline(o.writeDeadline())
	return e.conn.Write(b)
}

// readAndWait reads what arrives until the read deadline.
func (e *endpoint) readAndWait(b []byte) (n int, err error) {
	if n, err = readPast(e.conn, b); n > 0 && isTimeout(err) {
		err = nil
	}
	return n, err
}

// closeIn closes a connection that the lot may have parked.
func (e *endpoint) closeIn(l *Lot, parked bool) error {
	if parked {
		return l.CloseConn(e.conn)
	}
	return e.conn.Close()
}

// resetIn resets a connection that the lot may have parked.
func (e *endpoint) resetIn(l *Lot, parked bool) error {
	if parked {
		return l.reset(e.conn)
	}
	return l.cut(e.conn)
}
