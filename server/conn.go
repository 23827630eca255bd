package server

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/socknotify/socknotify/server/internal/conn"
)

// A Key is a completion key of a server's ports, which stands for a connection or a listener. It
// has no methods: it is for the types of the ports that Server.OnStart is given.
type Key = conn.Key

// A Conn is a connection of a server. Read may be called from the handler's calls, and by the
// goroutine that the handler has given the connection to after Pause. All other methods may be
// called by any goroutine at any time.
//
// An idle Conn has no goroutine and no buffer.
type Conn[S any] struct {
	connection // first: see connOf; its methods are those of a Conn

	// Value belongs to the handler.
	Value S
}

// A connection is a Conn without the handler's state.
type connection struct{ in conn.Conn }

// Read receives the bytes that have arrived, without waiting. It returns sock.ErrWouldBlock if
// there are none, and io.EOF at the end of the stream, after which the connection can still be
// written to. If the previous receive drained the socket, Read makes no system call. While the peer
// does not read what is written, nothing is received from it (see Server.MaxQueued).
//
// A failure, such as a reset by the peer, ends the connection.
func (c *connection) Read(b []byte) (int, error) { return c.in.Read(b) }

// Peek returns the next n bytes without consuming them.
//
// Peek, Next, Discard, Until, Line and Mark are the input, an alternative to Read. They receive into memory
// of the connection, which has none while no bytes are left over. They may be called where Read may.
// The slices that they return are valid until the handler's call returns, or until Resume if they were called after Pause. If
// too few bytes have arrived, they consume nothing and return sock.ErrWouldBlock; Data is then not
// called before as many have come as were asked for, or the stream has ended. At its end they
// return io.EOF, or io.ErrUnexpectedEOF if a part of a message is left over. Beyond
// Server.MaxMessage they return [ErrTooLong]. While the write queue is full they return
// sock.ErrWouldBlock, and Data is called when it is no longer.
//
// If Data consumes something and leaves more, without asking for bytes that have not arrived, it is
// called again soon. If it consumes nothing, it is called when more bytes have come. Read, and the
// net.Conn of Hijack, return the bytes of the input first.
func (c *connection) Peek(n int) ([]byte, error) { return c.in.Peek(n) }

// Next returns the next n bytes and consumes them. See Peek.
func (c *connection) Next(n int) ([]byte, error) { return c.in.Next(n) }

// Discard consumes the next n bytes. See Peek. To skip more than Server.MaxMessage bytes, use Read.
func (c *connection) Discard(n int) error { return c.in.Discard(n) }

// Until consumes the bytes up to a delimiter and returns them with it. See Peek. If there is none among the
// first most bytes, it returns [ErrTooLong]; 0 means Server.MaxMessage.
func (c *connection) Until(delim byte, most int) ([]byte, error) { return c.in.Until(delim, most) }

// Line consumes a line and returns it without its end, which is "\n" or "\r\n". See Peek. A line that has
// more than most bytes, its end included, is [ErrTooLong]; 0 means Server.MaxMessage.
func (c *connection) Line(most int) ([]byte, error) { return c.in.Line(most) }

// Mark begins a message that several calls of the input consume. If one of them returns
// sock.ErrWouldBlock, everything since Mark is unread, and the next Data begins the message again.
// MaxMessage bounds the bytes since Mark.
//
// The mark holds until the next Mark, or until the handler's call returns. A mark of a goroutine
// that has the connection after Pause holds until Resume. That goroutine should call Mark before it
// uses the input, because the handler's call may still be running, and its mark may still hold.
//
// What Read returns after Mark belongs to the message, and is unread with it. Read itself does not
// go back to the mark. If it takes more than MaxMessage bytes since Mark, the calls of the input
// return [ErrTooLong] until the next Mark.
func (c *connection) Mark() { c.in.Mark() }

// Buffered returns the number of bytes of the input that were received and not consumed.
func (c *connection) Buffered() int { return c.in.Buffered() }

// Write writes all of b or nothing, without waiting, and does not keep b. If less than
// Server.MaxQueued bytes are queued, it sends what the system takes and queues the rest. Otherwise
// it returns [ErrQueueFull], and Writable is called when there is room. It returns [ErrOverload]
// where Server.MaxQueuedTotal would be exceeded, and net.ErrClosed after Close or CloseWrite.
//
// What is written while Data or Writable runs, in writes of at most 16 KiB, is sent together when
// the call returns. If the call takes long, it is sent after a tenth of a second.
func (c *connection) Write(b []byte) (int, error) { return c.in.Write(b) }

// Writev is like [Conn.Write] for several slices. They are sent as if they were one, and none of
// them is kept.
func (c *connection) Writev(bufs [][]byte) (total int, err error) { return c.in.Writev(bufs) }

// WantWritable has the handler's Writable called when at most half of the write queue is in use:
// soon, if that is so already. A handler that has much to write calls it to let other connections
// be served in between. Writable is not called if the handler is no WritableHandler. WantWritable
// also has the reader of a [Conn.Stream] read again that had nothing.
func (c *connection) WantWritable() { c.in.WantWritable() }

// Queued returns the number of bytes that were written and not yet taken by the system.
func (c *connection) Queued() int { return c.in.Queued() }

// Stream sends what r returns until io.EOF, after all that was written before. It returns at once:
// r is read by a worker, where Writable would be called, a piece of at most Server.BufferSize at a
// time, whenever the system has taken all that is queued. So an answer of any size needs the memory
// of one piece. Until r has ended Data and Writable are not called. What is written in between is
// sent after it. [ErrQueueFull] and net.ErrClosed are returned as by [Conn.Write].
//
// A Read of r that blocks occupies a worker, as a handler does. If r returns sock.ErrWouldBlock, it
// is read again after [Conn.WantWritable]. Any other error than io.EOF closes the connection at
// once, with that error as the cause.
//
// Close and CloseWrite take effect after the end of r, and Shutdown waits for it. While the peer
// does not take what is sent, Server.WriteTimeout applies; while r has nothing, the idle timeout
// does. [Conn.Hijack] fails before the end of r. If r is an io.Closer, the server closes it: at its
// end, before the handler's Close, or if Stream returns an error.
func (c *connection) Stream(r io.Reader) error { return c.in.Stream(r) }

// SendFile is like [Conn.Stream] for n bytes of a file from an offset, without an effect on the
// file's position. A negative n means up to the present end of the file. Without TLS the bytes are
// sent by sendfile(2) where the system has it, and never queued. If the file is shorter, the
// connection is closed with io.ErrUnexpectedEOF as the cause.
//
// The server closes f, as Stream does. To send one open file to several connections, use Stream
// with an [io.SectionReader].
func (c *connection) SendFile(f *os.File, off, n int64) error { return c.in.SendFile(f, off, n) }

// CloseWrite ends the stream to the peer after what was written so far. The connection is closed
// once the end of the peer's stream was received as well.
func (c *connection) CloseWrite() error { return c.in.CloseWrite() }

// Close closes the connection when what was written has been sent, or the peer has not taken any of
// it for Server.WriteTimeout. Nothing is received any more. As with any TCP connection, bytes of
// the peer that were not read make the system reset it. The handler's Close follows. A second Close
// returns net.ErrClosed.
func (c *connection) Close() error { return c.in.Close() }

// Abort closes the connection now. What is queued is dropped, and a TCP peer receives a reset.
func (c *connection) Abort() error { return c.in.Abort() }

// Pause stops calls of Data, once the present call has returned, until [Conn.Resume]. What is
// written is still sent. It is for a handler that gives its request to another goroutine, which
// writes the answer. The handler must call Pause before it starts that goroutine.
func (c *connection) Pause() { c.in.Pause() }

// Resume gives a connection back to the server after Pause or Hijack. Data is then called even if
// nothing has arrived, so that a handler can go on with what it has received before. The net.Conn
// of Hijack is closed, and no call of it may be under way. On any other connection Resume does
// nothing.
func (c *connection) Resume() error { return c.in.Resume() }

// Hijack gives the connection to a goroutine that may block: the calls of the net.Conn wait as
// usual. Hijack may be called from the handler's calls for this connection only. None of them comes
// after it until [Conn.Resume] gives the connection back, except Close, which is called when the
// net.Conn or the Conn is closed.
//
// What was written before Hijack reaches the peer first. While some of it is queued, the server
// sends it, with Server.WriteTimeout, and Read and Write of the net.Conn wait for that, within
// their deadlines. If it cannot be sent, they fail.
//
// Hijack and Resume cost a dozen system calls each. Where the request must wait, and not its bytes,
// Pause costs less.
func (c *connection) Hijack() (net.Conn, error) { return c.in.Hijack() }

// SetIdleTimeout replaces Server.IdleTimeout for this connection, from now on. Zero means that of
// the server, and a negative time none.
func (c *connection) SetIdleTimeout(d time.Duration) { c.in.SetIdleTimeout(d) }

// SetWriteTimeout replaces Server.WriteTimeout for this connection, from now on. Zero means that of
// the server, and a negative time none.
func (c *connection) SetWriteTimeout(d time.Duration) { c.in.SetWriteTimeout(d) }

// Context returns a context that is done when the connection has failed, was aborted or has ended:
// before the handler's Close is called, and also while one of the handler's calls is running.
// context.Cause returns the cause that Close is given, or context.Canceled if that is nil. The
// context is made by the first call.
func (c *connection) Context() context.Context { return c.in.Context() }

// TLS returns what the handshake negotiated: version, cipher suite, application protocol (ALPN),
// the peer's certificates. It is nil on a connection without TLS.
func (c *connection) TLS() *tls.ConnectionState { return c.in.TLS() }

// DropCertificates forgets the certificates of the peer, which cost some kilobytes of memory as long
// as the connection lives. A handler's Open calls it when it has taken from [Conn.TLS] what the
// program needs of them, such as a name. Afterwards the PeerCertificates and VerifiedChains of
// Conn.TLS are nil. It does nothing on a connection that crypto/tls keeps (see Server.CryptoTLS),
// and on one without TLS.
func (c *connection) DropCertificates() { c.in.DropCertificates() }

// Preamble returns what Server.Preamble has found at the begin of the connection: the zero Preamble
// if there was no header.
func (c *connection) Preamble() Preamble { return Preamble(c.in.Preamble()) }

// LocalAddr returns the address that the peer has connected to. After a failure it can be nil.
func (c *connection) LocalAddr() net.Addr { return c.in.LocalAddr() }

// RemoteAddr returns the peer's address. After a failure it can be nil.
func (c *connection) RemoteAddr() net.Addr { return c.in.RemoteAddr() }

// LogValue returns the attributes of a connection for package slog: remote and local address, and
// the TLS version. After a failure the system does not know the remote address any more.
// Logger.With("conn", c) in Open keeps it.
func (c *connection) LogValue() slog.Value { return c.in.LogValue() }

// A Preamble is what Server.Preamble has found at the begin of a connection.
type Preamble struct {
	N             int      // the bytes of the header, which are not received by the handler
	Remote, Local net.Addr // the addresses of the connection, unless they are nil
	Value         any      // for the handler, from Conn.Preamble
}

// AfterFunc calls f after d, unless the timer is stopped before: where Data would be called, and
// never at the same time as another of the handler's calls for this connection. An error that f
// returns has the effect of one of Data. f is also called while the connection is paused, so it can
// answer for a goroutine that takes too long; then it must not receive. While the connection is
// hijacked f waits for Resume, and after Close it is not called. It may be called 0.1 s late. A
// timer does not count as activity for IdleTimeout.
func (c *Conn[S]) AfterFunc(d time.Duration, f func(c *Conn[S]) error) *Timer {
	t := &Timer{conn.Timer{Conn: &c.in, F: func() error { return f(c) }}}
	t.Reset(d)
	return t
}

// A Timer is a call that [Conn.AfterFunc] has planned. Its methods may be called by any goroutine
// at any time.
type Timer struct{ in conn.Timer }

// Stop prevents the call, and reports whether it has: false means that the call has begun or is
// over, or that the connection has ended. If Stop is called by one of the handler's calls for the
// connection, f is not running.
func (t *Timer) Stop() bool { return t.in.Stop() }

// Reset plans the call for d from now, and reports whether it was planned before.
func (t *Timer) Reset(d time.Duration) bool { return t.in.Reset(d) }
