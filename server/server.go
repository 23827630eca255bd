package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/sock"
)

// A Handler handles the events of connections. For one connection it is called by one goroutine at
// a time, so the state of a connection needs no lock. For different connections it is called by
// several goroutines at once.
//
// If Open, Data or Writable returns an error, the connection is closed: for io.EOF as [Conn.Close]
// does, for any other error at once, with that error as the cause that Close is given.
// sock.ErrWouldBlock does not close the connection, so a handler may return the error of Read as it
// is. A panic closes the connection too, and is logged.
//
// A handler should not block. Work that waits belongs in another goroutine, after [Conn.Pause] or
// [Conn.Hijack]. If a handler runs for long, another worker takes the place of its worker, so other
// connections are still served.
type Handler[S any] interface {
	// Open is called first, before anything of the connection is received.
	Open(c *Conn[S]) error
	// Data is called when there is something to receive: bytes, or the end of the stream. If it
	// leaves bytes unread, it is called again. buf belongs to the worker and may be used until Data
	// returns.
	Data(c *Conn[S], buf []byte) error
	// Close is called last, exactly once for each Open, when no other call is running or will
	// follow. The cause is nil if the handler closed the connection or returned io.EOF. The socket
	// is closed after Close.
	Close(c *Conn[S], cause error)
}

// A WritableHandler is a Handler that is called when it can write again, after [Conn.Write]
// returned [ErrQueueFull] or [Conn.WantWritable] was called.
type WritableHandler[S any] interface {
	Handler[S]
	// Writable is called when at most half of the write queue is in use. Like Data it is called by
	// one goroutine at a time with the handler's other calls.
	Writable(c *Conn[S]) error
}

// A Server serves connections with workers, each of which dequeues from a port of its own (see
// Shards). S is the type of the state that the handler keeps for each connection.
//
// The fields must be set before the first Serve, and not be changed after it. Serve returns
// socknotify.ErrInvalid for a field that makes no sense. A Server must not be copied.
type Server[S any] struct {
	Handler Handler[S]

	// Workers is the number of goroutines that serve; 0 means GOMAXPROCS.
	Workers int
	// MaxRunning bounds the calls of handlers that run at once, and with them the goroutines that
	// serve: while calls do not return, other goroutines take the places of theirs. 0 means 512
	// more than Workers, and a negative number no limit.
	MaxRunning int
	// Shards is the number of ports that workers and connections are spread over; 0 means one for
	// each worker, and 1 one that all workers share. With one for each worker, a shard whose
	// connections wait for each other has a second worker while the worker of another shard is
	// idle.
	Shards int
	// Backend is the backend of the ports, one of socknotify.Backends; "" means the default.
	Backend string
	// BufferSize is the size of a worker's buffer in bytes; 0 means 64 KiB. It is limited to half
	// of MaxQueued, so that Data can always write as much as it was given.
	BufferSize int

	// MaxMessage bounds the bytes of one message, for Conn.Peek and the other methods of the input:
	// they return ErrTooLong for more. 0 means 1 MiB, and a negative number 2 GiB, which is the
	// most. The memory for a message grows with the bytes that have arrived.
	MaxMessage int
	// MaxQueued bounds the bytes that are queued for a connection whose peer does not read, except
	// for the last write; 0 means 256 KiB, and a negative number no limit. A write is accepted
	// whole if less than MaxQueued was queued before it; SlowPolicy says what becomes of others.
	// While more than half of it is in use, nothing is received and Data is not called.
	MaxQueued int
	// SlowPolicy says what becomes of a write for which the queue has no room. The default is
	// SlowDrop.
	SlowPolicy SlowPolicy
	// MaxQueuedTotal bounds the bytes that are queued for all connections together; 0 or less means
	// no limit. A write that could exceed it is refused with ErrOverload, before any of it is sent.
	// A write of at most 16 KiB is not refused if nothing is queued for its connection. The part of
	// it that the system does not take is queued, even beyond MaxQueuedTotal.
	MaxQueuedTotal int64
	// MaxConns bounds the number of connections, and MaxConnsPerAddr the number from one IP
	// address; 0 or less means no limit. A connection beyond a limit is closed when it is accepted,
	// without Open.
	MaxConns        int
	MaxConnsPerAddr int

	// AcceptRate limits the new connections in a second, and AcceptRatePerAddr those from one IP
	// address, or from one IPv6 network of 64 bits. A connection beyond a limit is closed when it
	// is accepted, without Open.
	AcceptRate        Rate
	AcceptRatePerAddr Rate
	// ReadRate limits the bytes that are received from each connection in a second, and WriteRate
	// the bytes that are sent to it, counted in encrypted bytes with TLS. Beyond ReadRate nothing
	// is received, Read returns sock.ErrWouldBlock, and Data is called again later. Beyond
	// WriteRate bytes are queued. Both work in steps of about 0.1 s, so a Burst is at least a tenth
	// of PerSecond. A hijacked connection is not limited.
	ReadRate  Rate
	WriteRate Rate

	// Preamble, if not nil, reads a header that comes before the protocol, and before TLS, such as
	// that of a proxy: see package server/proxyproto. It is called with the addresses of the socket
	// and with the bytes that have arrived: with none when a connection is accepted, and again when
	// there are more. It returns the length of the header, which is 0 if there is none, or
	// sock.ErrWouldBlock if it needs more bytes. Any other error closes the connection, as do
	// HandshakeTimeout and 128 KiB without a result; these connections are logged and counted, and
	// neither Open nor Close is called for them. The limits per address are applied to the address
	// that it returns. It must not block, and must not keep b.
	Preamble func(remote, local net.Addr, b []byte) (Preamble, error)

	// IdleTimeout closes a connection on which nothing was received or written for this time; 0 or
	// less means never. A connection is not idle while its handler runs, while it is paused or
	// hijacked, or while bytes are queued. See also Conn.SetIdleTimeout. Timeouts expire about
	// 0.1 s late, and on a busy machine by some per cent of their length.
	IdleTimeout time.Duration
	// SilentIsIdle makes IdleTimeout count only what is received. A peer that sends nothing is then
	// closed although the server writes to it, such as a device that hangs while its system still
	// acknowledges what it is sent. Queued bytes do not extend the time, unless the server receives
	// nothing because of them: while more than half of MaxQueued is in use, or a Stream is sent.
	SilentIsIdle bool
	// WriteTimeout closes a connection whose peer has not taken any of the queued bytes for this
	// time; 0 means 10 s, and a negative time never, except after Conn.Close, where it means 5 s.
	// See also Conn.SetWriteTimeout.
	WriteTimeout time.Duration

	// ReadTimeout closes a connection that does not complete a message within this time; 0 means 10
	// s, and a negative time never. Bytes that arrive do not extend the time. The time begins when
	// Data returns after one of Conn.Peek, Next, Discard, Line and Until has found too few bytes,
	// and ends when something is consumed and not unread (see Conn.Mark). Time while the connection
	// is paused, or its write queue is full, does not count.
	ReadTimeout time.Duration

	// KeepAlive and KeepAliveConfig mean what they mean in net.ListenConfig: TCP connections have
	// keep-alive probes, every 15 s if both are zero, and none if KeepAlive is negative and
	// KeepAliveConfig.Enable is false. Settings that a system does not support are left at the
	// system's default.
	KeepAlive       time.Duration
	KeepAliveConfig net.KeepAliveConfig

	// TLSConfig is the configuration for ServeTLS.
	TLSConfig *tls.Config
	// HandshakeTimeout closes a connection whose TLS handshake takes longer, together with its
	// header (see Preamble); 0 means 10 s, and a negative time never.
	HandshakeTimeout time.Duration
	// MaxHandshakes bounds the number of unfinished TLS handshakes with a goroutine; 0 means 1024,
	// and a negative number no limit. A handshake has a goroutine from when its first record is
	// complete. At the limit, a new handshake replaces one that waits for its peer: the oldest of
	// the address with the most unfinished handshakes. If none waits for its peer, new ones wait. A
	// handshake inside a function of TLSConfig, such as GetCertificate, counts until the function
	// returns.
	MaxHandshakes int
	// CryptoTLS keeps a *tls.Conn for each TLS connection, which Hijack then returns. Otherwise
	// crypto/tls makes the handshake, and then a smaller record layer takes the connection over, for
	// AES-GCM with TLS 1.3, and with TLS 1.2 unless the session was resumed.
	CryptoTLS bool

	// Logger is used for panics of handlers, failures, refusals and handlers that do not return;
	// nil means slog.Default(). At most ten lines of each message are logged in a second, and then
	// the number of those that were omitted. The keys are those of all packages: remote, err,
	// panic, stack, name and retry_in.
	Logger *slog.Logger
	// OnStart, if not nil, is called once with the ports, before anything is served. It is for
	// observers of the ports, such as package debug. It must not call the server.
	OnStart func(shards []*socknotify.Port[*Key])
	// Name, if not empty, names the server in its log and in profiles. Its goroutines have the
	// label socknotify_server of package runtime/pprof with this value. Goroutines that a handler
	// starts inherit it.
	Name string
	// TimeCalls makes the server measure how long each call of Data takes, for Stats.CallTime. It
	// costs two readings of the clock for each call.
	TimeCalls bool
	// StuckAfter is the time after which a handler that has not returned is logged and counted; 0
	// means 10 s, and a negative time never.
	StuckAfter time.Duration

	server server
}

// A Rate limits how often something may happen: PerSecond times on average, and Burst times at
// once. The zero Rate, and one with a negative PerSecond, is no limit. A Burst of 0 means
// PerSecond.
type Rate = serving.Rate

// A SlowPolicy says what becomes of a write when MaxQueued bytes are queued already.
type SlowPolicy = serving.SlowPolicy

const (
	// SlowDrop refuses the write with ErrQueueFull. The handler's Writable is called when there is
	// room again.
	SlowDrop = serving.SlowDrop
	// SlowClose closes the connection now. The write and the handler's Close get ErrSlow.
	SlowClose = serving.SlowClose
)

// ListenAndServe listens on an address, as net.Listen names it ("tcp", "tcp6", "unix"), and calls
// Serve. The path of a Unix socket is removed at the end.
func (s *Server[S]) ListenAndServe(network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	return s.Serve(l)
}

// Serve serves the connections of a TCP or Unix listener until Shutdown or Close, and then returns
// ErrServerClosed. If the listener fails, Serve returns the error. Several listeners may be served
// at once, each by a Serve of its own.
//
// Serve closes the listener at the end. If it is closed by another goroutine, Serve returns an
// error that matches net.ErrClosed, within a second; connections and other listeners are still
// served. If the system refuses to wait for notifications for five seconds, the server ends: each
// Serve returns the system's error, which is also the cause that connections are closed with.
//
// A listener that wraps one of package net is served if the socket below can be found: by a method
// Unwrap, NetListener or Raw, or in an embedded field or one named Listener. Serve then calls its
// Accept, and closes what that returns when the connection has ended, so a listener that counts or
// limits connections does so. The bytes are received from and sent to the socket itself. So Serve
// fails, and names the type, if a connection has a Read or Write of its own, as those of
// tls.NewListener have. The connections in the backlog of such a listener may be lost at Shutdown,
// as with net/http.
//
// While Serve runs, no other code may accept from the listener. On Linux, Serve sets options on a
// TCP listener that its connections inherit (TCP_NODELAY, and those of KeepAlive).
func (s *Server[S]) Serve(l net.Listener) error {
	return s.server.serveListener(configOf(s), l)
}

// ServeSocket is Serve for a listening socket of package sock.
func (s *Server[S]) ServeSocket(socket *sock.Socket) error {
	return s.server.serve(configOf(s), socket, nil)
}

// ListenAndServeTLS is ListenAndServe with TLS, as ServeTLS serves.
func (s *Server[S]) ListenAndServeTLS(network, address, certFile, keyFile string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	return s.ServeTLS(l, certFile, keyFile)
}

// ServeTLS is Serve with TLS (crypto/tls) on each connection. The certificate comes from the files
// (PEM), or from TLSConfig if their names are "". The listener must be one that Serve accepts,
// without TLS.
//
// The handler is called when the handshake has completed, so Open can ask [Conn.TLS] what was
// negotiated. A connection that ends before is logged and counted; neither Open nor Close is called
// for it. Data is called for plaintext. It may also be called when only a part of a record has
// arrived; Read then returns sock.ErrWouldBlock. The peer's close_notify is the end of its stream,
// and CloseWrite and Close send one.
//
// A connection that is idle, or has not sent its first record, has no goroutine. An unfinished
// handshake has one, and Server.MaxHandshakes bounds their number. The functions of the
// configuration may block. If one panics, or calls runtime.Goexit, its connection is closed, and it
// is logged and counted in Stats.Panics.
func (s *Server[S]) ServeTLS(l net.Listener, certFile, keyFile string) error {
	return s.server.serveListener(configOf(s).withTLS(certFile, keyFile), l)
}

// ServeTLSSocket is ServeTLS for a listening socket of package sock.
func (s *Server[S]) ServeTLSSocket(socket *sock.Socket, certFile, keyFile string) error {
	return s.server.serve(configOf(s).withTLS(certFile, keyFile), socket, nil)
}

// Shutdown ends the server gracefully. It closes the listeners and ends the stream of every
// connection: the handler receives the bytes that have arrived and then io.EOF, as if the peer had
// ended its stream. So a handler that returns the io.EOF of Read closes idle connections at once,
// and others when they have been answered. Shutdown returns when all connections are closed and no
// worker is left.
//
// A connection that was accepted within the last five seconds, or is still in the backlog, and from
// which the handler has not received anything, has five more seconds for its first request, as with
// net/http. Its stream ends when the request was answered. A TLS handshake counts towards these
// five seconds.
//
// If the context is done first, Shutdown does what Close does, does not wait for running handlers,
// and returns the context's cause. A nil context is socknotify.ErrInvalid, and the server is left
// as it is.
func (s *Server[S]) Shutdown(ctx context.Context) error { return s.server.Shutdown(ctx) }

// Close ends the server at once. It closes the listeners, shuts down the connections, and drops the
// bytes that are queued. The handler's Close is called for each connection, with ErrServerClosed as
// the cause, when no other call of the handler for that connection is running. Close does not wait
// for that; a Shutdown after it does.
func (s *Server[S]) Close() error { return s.server.Close() }

// Stats returns the server's counts. It may be called at any time.
func (s *Server[S]) Stats() Stats { return s.server.Stats() }

// Ready reports whether the server accepts connections: at least one Serve runs, and neither
// Shutdown nor Close was called. It is for readiness checks, such as debug.Ready.
func (s *Server[S]) Ready() bool { return s.server.ready() }

// Ports returns the server's ports, one for each shard, for observers such as package debug. It
// returns none before the first Serve. The server owns the ports: the caller must not register,
// dequeue or close.
func (s *Server[S]) Ports() []*socknotify.Port[*Key] { return s.server.allPorts() }
