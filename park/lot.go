package park

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify"
)

// Config configures a [Lot]. The zero value sets no limits. A negative number means none, as 0
// does.
type Config struct {
	// IdleTimeout is the time that a connection may stay parked; Options.IdleTimeout overrides it.
	// When it expires, the function runs and its Read fails with os.ErrDeadlineExceeded. The
	// timeout is never early. It is 0.2 seconds late, and some per cent on a busy machine. 0 means none.
	IdleTimeout time.Duration
	// MaxRunning limits the number of functions that run concurrently. 0 means no limit.
	// Connections that become ready while the limit is reached wait, in order, and have no idle
	// timeout then; Stats.Waiting counts them. Functions should bound the time that they wait for
	// the rest of a message by a read deadline: each one that waits is one of the limit. If
	// functions wait for each other, the limit must be high enough for all of them to run.
	MaxRunning int
	// Backend is the backend of the lot's port, one of socknotify.Backends. The empty string
	// selects the default.
	Backend string
	// Name, if not empty, names the lot in profiles and in the log: the goroutines that run
	// functions have the label socknotify_server of package runtime/pprof with this value, and log
	// lines have it as "name".
	Name string
	// TimeCalls makes the lot measure how long functions take, for Stats.CallTime. It costs two
	// readings of the clock for each call.
	TimeCalls bool
	// Unwrap, if not nil, returns the connection directly below a wrapper; [Lot.Park] describes
	// what the lot does with it. If it returns nil, the lot looks for methods and embedded
	// connections. If it returns its argument, the lot does not look below it. It may be called
	// concurrently, and must not call the lot or use the connection other than to find the one
	// below. A panic of it is logged, counted in Stats.Panics, and ends the connection; Park fails
	// with it.
	Unwrap func(net.Conn) net.Conn
	// Logger receives one warning for each type of connections that cannot be parked, and panics of
	// a connection's methods when the lot calls them: at most ten lines of each message in a
	// second. Its handler must not call the lot or a parked connection, because the lot may hold a
	// lock. For the same reason the Read, SetReadDeadline and Close methods of a connection must
	// not call the lot, or the [Conn] around the connection. nil is slog.Default.
	Logger *slog.Logger
}

// A Lot holds parked connections. Its methods may be called concurrently. The functions that it
// runs may call all of them except Shutdown, which waits for the functions to return.
type Lot struct{ engine *parking.Lot }

// New returns a new lot. The caller must close it with Close or Shutdown. New fails with the errors
// of socknotify.New, which is socknotify.ErrInvalid for a Backend that does not exist.
func New(config Config) (*Lot, error) {
	return openLot(config, func() *slog.Logger { return config.Logger })
}

// Open is New with a function that is called for each message, in place of Config.Logger.
func openLot(config Config, logger func() *slog.Logger) (*Lot, error) {
	engine, err := parking.Open(parking.Config(config), logger)
	if err != nil {
		return nil, err
	}
	return &Lot{engine}, nil
}

// Engine is for other packages of this module, which park what this package does not know.
func (l *Lot) Engine() *parking.Lot { return l.engine }

// A Key identifies a parked connection on the lot's port. It is opaque.
type Key = parking.Key

// Port returns the lot's port for observation, for example by package debug. The lot owns the port:
// the caller must not register sockets with it, dequeue from it, or close it.
func (l *Lot) Port() *socknotify.Port[parking.Key] { return l.engine.Port() }

// Options are the options of [Lot.ParkWith].
type Options struct {
	// IdleTimeout overrides Config.IdleTimeout. 0 uses the lot's timeout; a negative value means no timeout.
	IdleTimeout time.Duration
	// Reader is the reader through which the function reads the connection, if there is one. If it has
	// buffered bytes, the function runs immediately.
	Reader *bufio.Reader
	// Writable makes the function run also when a Write would not block, for a program that has queued what the
	// connection did not take. The function then has possibly nothing to read.
	Writable bool
}

// Park parks an idle connection. f runs once, on a goroutine of the lot, when a Read of the connection would not
// block:
//
//   - The connection has bytes, the peer has closed it, or it has failed.
//   - The idle timeout has expired. Read fails with os.ErrDeadlineExceeded.
//   - The connection was closed by [Lot.CloseConn], or because the lot was closed. Read fails with net.ErrClosed.
//
// In rare cases f runs although there is nothing to read, and Read blocks.
//
// The caller must not use the connection after Park, because f may already be running. If Park fails, f never runs
// and the caller still owns the connection. Park clears the read deadline and leaves the write deadline unchanged.
//
// The socket below a wrapped connection is what Config.Unwrap returns, what the methods NetConn, Unwrap, Raw and TCPConn
// return, or an embedded connection, through any number of layers, down to one with a SyscallConn method. Such a wrapper
// may hold bytes that it has read. So Park reads from it with a deadline in the past, which does not touch the socket.
// Bytes mean that the connection is not idle, and f runs immediately. os.ErrDeadlineExceeded means that it has none. Park
// fails with [ErrUnparkable] if there is any other error that does not end the connection, or if no socket is found. The
// lot logs the first such connection of each type.
//
// A wrapper with both methods Raw and TCPConn, such as that of go-proxyproto, reads a header when it is first used. At
// the first Park of such a connection a goroutine of the lot calls its RemoteAddr method, which waits for the header,
// before f runs or the connection waits for its next byte. The idle timeout, and closing the lot, also end that wait.
//
// A *net.TCPConn or *net.UnixConn is passed to f unchanged. For any other connection f receives a [*Conn] around it. The
// program must use that Conn from then on, because the Conn may hold bytes that were read ahead. A program that wants f to
// receive the connection that it parked calls [Wrap] first and uses the result everywhere. A program that reads the
// connection through a bufio.Reader must use [Lot.ParkWith] for the same reason.
//
// A function that parks its connection should return soon. If the connection is a [*Conn] that holds bytes, or whose
// bytes arrive in quick succession, the worker that runs f also runs the next call, after f has returned. If f takes
// more than 5 milliseconds to return, another worker runs the next call, about 10 milliseconds after Park at most.
//
// A panic in f ends the process, as in any goroutine. runtime.Goexit ends f alone.
//
// Park fails with ErrClosed, ErrParked, ErrUnparkable, with a *PanicError if Config.Unwrap has panicked, and with the errors of the port and the operating system, such as
// net.ErrClosed.
func (l *Lot) Park(conn net.Conn, f func(net.Conn)) error { return l.engine.Park(conn, f) }

// ParkWith is [Lot.Park] with options.
func (l *Lot) ParkWith(conn net.Conn, o Options, f func(net.Conn)) error {
	return l.engine.ParkWith(conn, parking.Options{IdleTimeout: o.IdleTimeout, Reader: o.Reader, Writable: o.Writable}, f)
}

// Unpark takes a connection back. It reports whether the connection was parked. If so, the function of that parking
// does not run, and the caller owns the connection. Otherwise the connection was not parked, or its function has
// begun or is about to begin.
//
// Unpark returns false if bytes were read ahead from a connection that was parked without [Wrap]. Those bytes are in
// the [*Conn] that only the function receives, so the function runs. Unpark of that Conn, or of a Conn that was
// parked, takes the connection back with its bytes.
//
// The lot and its port keep a record of a connection until it is closed, even while it is not parked. Unpark removes
// that record. It must be called before another lot or port can use the connection.
func (l *Lot) Unpark(conn net.Conn) bool { return l.engine.Unpark(conn) }

// Wake runs the function of a parked connection now, on a goroutine of the lot, although there may be nothing to read. It
// is for a goroutine that has something for the function to do, such as to write what the goroutine has queued. Wake
// reports whether the connection was parked; if not, its function is running or about to run, or the lot does not have
// the connection. If a wrapper is still to read a header, as [Lot.Park] describes, the function runs after that.
func (l *Lot) Wake(conn net.Conn) bool { return l.engine.Wake(conn) }

// CloseConn closes a connection. If the connection is parked, its function runs immediately, and Read fails there
// with net.ErrClosed. If a program calls the Close method of a parked connection instead, the lot needs up to ten
// seconds to find that out.
func (l *Lot) CloseConn(conn net.Conn) error { return l.engine.CloseConn(conn) }

// Shutdown closes the lot and waits until every function has returned. From then on Park fails with
// ErrClosed. Connections that are parked are closed, and their functions run; Read fails there with
// net.ErrClosed. If ctx is done before every function has returned, Shutdown returns the cause of
// ctx. If ctx is nil, Shutdown does nothing and fails with socknotify.ErrInvalid.
func (l *Lot) Shutdown(ctx context.Context) error { return l.engine.Shutdown(ctx) }

// Close closes the lot like Shutdown, but does not wait for functions to return. The lot's port is
// closed when the last function has returned. Close always returns nil.
func (l *Lot) Close() error { return l.engine.Close() }

// Stats returns the current counters.
func (l *Lot) Stats() Stats {
	c := l.engine.Counts()
	return Stats{Parked: c.Parked, Waiting: c.Waiting, Running: c.Running, Workers: c.Workers, Panics: c.Panics,
		Parks: c.Parks, AtOnce: c.AtOnce, Expired: c.Expired, Unparkable: c.Unparkable, CallTime: c.CallTime}
}

// A Conn wraps a connection that may have read bytes ahead, such as a *tls.Conn. There is no method
// to ask for such bytes. So Park reads from the wrapped connection with a deadline in the past, which
// returns buffered bytes and does not read from the socket. The Conn keeps the result in a pooled
// buffer until Read has returned all of it.
//
// Besides those of net.Conn it has the methods NetConn, which returns the wrapped connection, and
// CloseWrite, which calls that of the wrapped connection and fails with errors.ErrUnsupported if
// there is none. The Close method of the wrapped connection is called once. The methods may be
// called concurrently if those of the wrapped connection may.
type Conn = parking.Conn

// Wrap returns a Conn that wraps conn. If conn is a *Conn, Wrap returns conn itself.
func Wrap(conn net.Conn) *Conn { return parking.Wrap(conn) }
