package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A Handler is told what happens to connections. For one connection it is called by one goroutine at a
// time, so what belongs to the connection needs no lock; for different ones by several at once.
//
// An error that Open, Data or Writable returns closes the connection: io.EOF as [Conn.Close] does, any other
// at once, as the cause that Close is told. sock.ErrWouldBlock is no error here, so a handler may return
// what Read gave it. A panic closes the connection too, and is logged.
//
// A handler should not block: what must wait is done elsewhere, after [Conn.Pause] or [Conn.Hijack]. One
// that runs for long has its worker replaced meanwhile, so the other connections go on.
type Handler[S any] interface {
	// Open is called first, before anything of the connection is received.
	Open(c *Conn[S]) error
	// Data is called when something can be received: bytes, or the end of the stream. What it leaves makes
	// it be called again. buf is the worker's, for use until it returns.
	Data(c *Conn[S], buf []byte) error
	// Close is called last, exactly once for each Open, when no other call is under way or can come. The
	// cause is nil where this side closed, or returned io.EOF. The socket is closed after it.
	Close(c *Conn[S], cause error)
}

// A WritableHandler is a Handler that is told to go on after [Conn.Write] returned [ErrQueueFull], or
// [Conn.WantWritable] was called: at most half of what may be queued is.
type WritableHandler[S any] interface {
	Handler[S]
	// Writable is called as Data is, by one goroutine at a time with the handler's other calls.
	Writable(c *Conn[S]) error
}

// A Server serves connections with workers that share a port. S is the type of the state that each
// connection has for its handler.
//
// The fields are set before the first Serve and left alone after; one that makes no sense is
// socknotify.ErrInvalid there. A Server must not be copied.
type Server[S any] struct {
	Handler Handler[S]

	// Workers is how many goroutines serve; 0 is GOMAXPROCS.
	Workers int
	// Ports is how many ports the workers are spread over, each with its share of the connections; 0 is one
	// that all share. As many as there are workers spares them each other, but leaves one idle while
	// another has too much to do.
	Shards int
	// Backend is the ports' kernel, one of socknotify.Backends; "" is the default.
	Backend string
	// BufferSize is the size of a worker's buffer, in bytes; 0 is 64 KiB. It is at most half of WriteQueue, so
	// that Data can always write as much as it was given.
	BufferSize int

	// WriteQueue is how many bytes of a connection are queued at most when its peer does not read; 0 is
	// 256 KiB. While more than half of it is queued nothing is received.
	WriteQueue int
	// MaxQueued is how many bytes are queued at most for all connections together; 0 is no limit. The
	// connection that goes beyond it is closed.
	MaxQueued int64
	// MaxConns is how many connections there may be, and MaxConnsPerAddr how many from one IP address; 0
	// is no limit. One that goes beyond them is closed as it comes, without Open.
	MaxConns        int
	MaxConnsPerAddr int

	// IdleTimeout closes a connection that nothing has come for, and nothing was written to, for so long; 0
	// is never. While its handler runs, or it is paused or hijacked, or bytes are queued, it is not idle. See
	// also Conn.SetIdleTimeout. Time-outs come some 0.1 s late.
	IdleTimeout time.Duration
	// WriteTimeout closes a connection whose peer takes none of what is queued for so long; 0 is never.
	// After Conn.Close it is 5 s if it is not set. See also Conn.SetWriteTimeout.
	WriteTimeout time.Duration

	// KeepAlive and KeepAliveConfig are what net.ListenConfig has by these names: TCP connections have
	// keep-alive probes, every 15 s where both are zero, and none where KeepAlive is negative and the other's
	// Enable is false. What a system cannot be told stays as it is there.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	// TLSConfig is what ServeTLS uses.
	TLSConfig *tls.Config
	// HandshakeTimeout closes a connection whose TLS handshake is not over in time; 0 is 10 s.
	HandshakeTimeout time.Duration
	// MaxHandshakes is how many TLS handshakes are under way at most, each with a goroutine from when its first
	// record has come; 0 is 1024. When there are as many and another could begin, one that waits for its peer is
	// ended: of the address with the most unfinished handshakes, the one that began first. If none waits for its
	// peer, new ones wait. A handshake in a function of TLSConfig, such as GetCertificate, counts until the
	// function returns.
	MaxHandshakes int

	// Logger, if not nil, is told of failures, refusals and handlers that do not return. Of refused connections,
	// failed TLS handshakes, and functions of TLSConfig that panic, ten of each are logged in a second, and the
	// number of the others.
	Logger *slog.Logger
	// OnStart, if not nil, is called once, with the ports, before anything is served: for those who observe
	// them, such as package debug. It must not call the server.
	OnStart func(shards []*socknotify.Port[*Key])
	// StuckAfter is how long a handler may run before that is logged and counted; 0 is 10 s.
	StuckAfter time.Duration

	server server
}

var (
	// ErrServerClosed is what Serve returns after Shutdown or Close. It is http.ErrServerClosed's namesake.
	ErrServerClosed = errors.New("server: closed")
	// ErrQueueFull is what Write returns, beside how much it took, when more would exceed the connection's
	// queue.
	ErrQueueFull = errors.New("server: write queue is full")
	// ErrOverload is the cause of a connection closed because too much was queued for all together.
	ErrOverload = errors.New("server: too many bytes queued")
	// ErrIdle is the cause of a connection closed after IdleTimeout, and ErrSlow after WriteTimeout. Both
	// are os.ErrDeadlineExceeded to errors.Is.
	ErrIdle error = &timeoutError{"server: idle for too long"}
	ErrSlow error = &timeoutError{"server: peer does not read"}
)

// config returns the fields, of which only the type of Handler depends on S.
func (s *Server[S]) config() *config {
	c := &config{
		Workers: s.Workers, Shards: s.Shards, Backend: s.Backend, BufferSize: s.BufferSize,
		WriteQueue: s.WriteQueue, MaxQueued: s.MaxQueued, MaxConns: s.MaxConns, MaxConnsPerAddr: s.MaxConnsPerAddr,
		IdleTimeout: s.IdleTimeout, WriteTimeout: s.WriteTimeout, KeepAlive: s.KeepAlive, KeepAliveConfig: s.KeepAliveConfig,
		TLSConfig: s.TLSConfig, HandshakeTimeout: s.HandshakeTimeout, MaxHandshakes: s.MaxHandshakes,
		Logger: s.Logger, OnStart: s.OnStart, StuckAfter: s.StuckAfter,
	}
	if s.Handler != nil {
		c.handler = newTyped(s.Handler)
	}
	return c
}

// ListenAndServe listens on an address, as net.Listen names it ("tcp", "tcp6", "unix"), and serves. The
// path of a Unix socket is removed in the end.
func (s *Server[S]) ListenAndServe(network, address string) error {
	return s.server.listenAndServe(s.config(), network, address)
}

// Serve serves the connections of a TCP or Unix listener until Shutdown or Close, and then returns
// ErrServerClosed; or until the listener fails. It closes the listener in the end. If somebody else does, it
// ends with an error that is net.ErrClosed, within a second, and the connections that there are, and other
// listeners, are served on. Several listeners may be served at once, each by a Serve of its own. Where the system keeps
// the server from waiting for notifications for five seconds, each Serve returns the error, which is the cause that
// connections are closed with.
//
// Meanwhile nobody else may accept of it. On Linux a TCP listener is given the options that its
// connections are to begin with (TCP_NODELAY, KeepAlive).
func (s *Server[S]) Serve(l net.Listener) error {
	return s.server.serveListener(s.config(), l, nil)
}

// ServeSocket is Serve for a listening socket of package sock.
func (s *Server[S]) ServeSocket(socket *sock.Socket) error {
	return s.server.serve(s.config(), socket, nil, nil)
}

// ListenAndServeTLS is ListenAndServe with TLS, as ServeTLS serves.
func (s *Server[S]) ListenAndServeTLS(network, address, certFile, keyFile string) error {
	return s.server.listenAndServeTLS(s.config(), network, address, certFile, keyFile)
}

// ServeTLS is Serve with TLS (crypto/tls) on each connection. The certificate is that of the files (PEM), or
// of TLSConfig where they are "". The listener is one of TCP or Unix sockets, without TLS.
//
// The handler knows nothing of TLS: a connection is its own when the handshake is over, so Open can ask
// [Conn.TLS] what was agreed upon. What ends before that ends without Open and Close, and is logged and
// counted. Data comes for plaintext, and sometimes for none: where what came is a part of a record, Read is
// sock.ErrWouldBlock. The peer's close_notify is the end of its stream, and CloseWrite and Close send one.
//
// A connection that is idle, or has not sent its first record, costs no goroutine. A handshake has one, of
// which there are Server.MaxHandshakes at most. The functions of the configuration may block. One that panics, or calls
// runtime.Goexit, ends its connection, and is logged and counted in Stats.Panics.
func (s *Server[S]) ServeTLS(l net.Listener, certFile, keyFile string) error {
	return s.server.serveTLS(s.config(), l, certFile, keyFile)
}

// ServeTLSSocket is ServeTLS for a listening socket of package sock.
func (s *Server[S]) ServeTLSSocket(socket *sock.Socket, certFile, keyFile string) error {
	return s.server.serveTLSSocket(s.config(), socket, certFile, keyFile)
}

// Shutdown ends the server gracefully. Listeners are closed, and the handler of every connection is given
// what has come, and then the end of the stream, as if the peer had ended it. So one that closes when the
// stream ends, or returns Read's io.EOF, closes idle connections at once and others when they have answered.
// Shutdown returns when all are closed and no worker is left.
//
// A connection that was accepted within the last five seconds, or waits for that, and has not sent anything to the
// handler yet has five seconds to do so, as with net/http; its stream ends when it was answered. Time in which a TLS
// handshake is made is part of these.
//
// When the context is done first, it does what Close does, waits for handlers to return all the same no
// longer, and returns the context's cause. A nil context is socknotify.ErrInvalid, and nothing is done.
func (s *Server[S]) Shutdown(ctx context.Context) error { return s.server.Shutdown(ctx) }

// Close ends the server at once. Listeners are closed and connections shut, and what is queued is dropped;
// the handler's Close is called for each connection, with ErrServerClosed as cause, as soon as no other call
// of its handler is under way. Close does not wait for that; Shutdown after it does.
func (s *Server[S]) Close() error { return s.server.Close() }

// Stats returns the server's counts. It may be called at any time.
func (s *Server[S]) Stats() Stats { return s.server.Stats() }
