package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/internal/serving/wheel"
	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

// A PacketHandler handles datagrams. For one socket it is called by one goroutine at a time. A
// panic is logged and counted, and the rest of its batch is lost.
type PacketHandler interface {
	// Datagrams is called with the datagrams received, in order. The messages and their buffers
	// belong to the worker and may be used until Datagrams returns. So an answer may be made in
	// place, and sent with c.Send. On a wildcard address Local of a message is the address that it
	// came to; an answer needs it, as it needs Addr, or it leaves from the address that the system
	// chooses.
	Datagrams(c *PacketConn, in []sock.Message)
}

// A PacketServer serves datagram sockets with workers that share a port. A socket is handled by one
// worker at a time, so serving one address on several processors takes several sockets, with
// sock.ListenOptions.ReusePort.
//
// While a handler does not return, the datagrams of its socket wait. After a tenth of a second
// another worker takes the place of its worker, so the other sockets are served.
//
// A PacketServer is for UDP. It also receives from a Unix datagram socket, but the senders have no
// address in a sock.Message, so they cannot be answered.
//
// The fields must be set before the first Serve, and not be changed after it. A PacketServer must
// not be copied.
type PacketServer struct {
	Handler PacketHandler
	// Workers is the number of goroutines that serve; 0 means 1.
	Workers int
	// MaxRunning bounds the calls of the handler that run at once, as in Server.
	MaxRunning int
	// Backend is the backend of the port, one of socknotify.Backends; "" means the default.
	Backend string
	// MaxMessage is the length of the longest datagram, in bytes; 0 means 65,535. Longer ones are
	// cut.
	MaxMessage int

	// Logger is used for panics of the handler, failures, and handlers that do not return, as in
	// Server; nil means slog.Default(). At most ten datagrams that cannot be sent are logged in a
	// second.
	Logger *slog.Logger
	// Name, if not empty, names the server in its log and in profiles, as in Server.
	Name string
	// OnStart, if not nil, is called once with the port, before anything is served. It is for
	// observers of the port, such as package debug. It must not call the server.
	OnStart func(port *socknotify.Port[*PacketConn])
	// StuckAfter is the time after which a handler that has not returned is logged and counted; 0
	// means 10 s, and a negative time never.
	StuckAfter time.Duration

	journal engine.Journal

	mu      sync.Mutex
	closing bool
	port    *socknotify.Port[*PacketConn]
	conns   map[*PacketConn]struct{}
	workers map[*packetWorker]struct{}
	running sync.WaitGroup
	counts  struct{ received, sent, dropped, stuck atomic.Uint64 }

	wheel *wheel.Wheel[*PacketServer]
	timer wheel.Timer[*PacketServer] // armed while the watchdog has something to look at

	failure error               // why the server ended by itself
	options []socknotify.Option // of the port; set by tests
	giveUp  time.Duration       // instead of engine.GiveUpAfter; set by tests
}

// A PacketConn is a socket of a PacketServer. Its methods may be called by any goroutine at any
// time.
type PacketConn struct {
	// Value belongs to the handler.
	Value any

	server *PacketServer
	sock   *sock.Socket
	failed engine.Failure
}

// PacketStats are the counts of a PacketServer.
type PacketStats struct {
	Conns    int           // sockets served now
	Workers  int           // worker goroutines now, including replaced ones that have not returned
	Running  int           // of these, those that are in the call of the handler
	Longest  time.Duration // age of the oldest handler call that is running, to about 0.1 s
	Received uint64        // datagrams received
	Sent     uint64        // datagrams that the system took
	Dropped  uint64        // datagrams that the system did not take
	Panics   uint64        // of handlers
	Stuck    uint64        // handlers that ran for StuckAfter
}

const (
	packets     = 32    // datagrams that a worker receives at a time
	maxDatagram = 65535 // the length of the longest
)

// Send sends datagrams, each to its Addr, and returns the number that the system took. The others
// are dropped, as by the network: those for which the socket's buffer has no room, and those that
// cannot be sent.
func (c *PacketConn) Send(out []sock.Message) (sent int) {
	s := c.server
	for rest := out; len(rest) > 0; {
		n, err := c.sock.SendBatch(rest)
		sent += n
		rest = rest[n:]
		switch {
		case err == nil:
		case err == sock.ErrWouldBlock || errors.Is(err, net.ErrClosed):
			rest = nil
		default:
			s.journal.Log(slog.LevelDebug, "datagram not sent", "err", err)
			rest = rest[1:] // the first one cannot be, or the error is of an earlier one
		}
	}
	s.counts.sent.Add(uint64(sent))
	s.counts.dropped.Add(uint64(len(out) - sent))
	return sent
}

// LocalAddr returns the address that the socket is bound to.
func (c *PacketConn) LocalAddr() netip.AddrPort { return c.sock.LocalAddr() }

// ListenAndServe listens on a UDP address, as net.ListenPacket names it ("udp", "udp4", "udp6"),
// and calls Serve.
func (s *PacketServer) ListenAndServe(network, address string) error {
	c, err := net.ListenPacket(network, address)
	if err != nil {
		return err
	}
	return s.Serve(c)
}

// Serve serves a datagram socket until Shutdown or Close, and then returns ErrServerClosed. If the
// socket fails, Serve returns the error. The server takes the socket over (sock.Detach), so closing
// c has no effect, and closes it at the end. Several sockets may be served at once, each by a Serve
// of its own.
func (s *PacketServer) Serve(c net.PacketConn) error {
	if c == nil {
		return engine.ErrNoSocket
	}
	socket, err := sock.Detach(c, sock.MakeNonblocking)
	if err != nil {
		c.Close()
		return err
	}
	return s.ServeSocket(socket)
}

// ServeSocket is Serve for a socket of package sock. If the socket is closed by another goroutine,
// ServeSocket returns an error that matches net.ErrClosed, within a second. Other sockets are still
// served.
func (s *PacketServer) ServeSocket(socket *sock.Socket) error {
	if socket == nil {
		return engine.ErrNoSocket
	}
	defer socket.Close()
	if err := datagrams(socket); err != nil {
		return fmt.Errorf("server: socket on %s: %w", engine.NameOf(socket), err)
	}
	if socket.LocalAddr().Addr().IsUnspecified() { // so that an answer leaves from the address that was asked
		if err := socket.SetPacketInfo(true); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("server: socket on %s: %w", engine.NameOf(socket), err)
		}
	}
	c := &PacketConn{server: s, sock: socket, failed: make(engine.Failure, 1)}
	if err := s.begin(c); err != nil {
		return err
	}
	name := engine.NameOf(socket)
	var reg [1]socknotify.Registration[*PacketConn]
	err := c.enable(&reg)
	if err == nil {
		err = c.failed.Await(func() bool { return engine.IsClosed(socket) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	switch {
	case s.failure != nil:
		err = s.failure
	case s.closing:
		return ErrServerClosed
	}
	return fmt.Errorf("server: socket on %s: %w", name, err)
}

// begin starts the server, if this is the first socket, and adds the socket.
func (s *PacketServer) begin(c *PacketConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(); err != nil {
		return err
	}
	s.conns[c] = struct{}{}
	s.wheel.Set(s, 0)
	return nil
}

// datagrams returns an error unless a socket is a datagram socket. The end of a stream, or a
// listener's connections, would be reported again and again.
func datagrams(socket *sock.Socket) error {
	held, err := socket.Hold()
	if err != nil {
		return err
	}
	defer held.Release()
	switch names, err := sock.NamesOf(socket.Handle()); {
	case err != nil:
		return err
	case names.Network == "tcp" || names.Network == "unix":
		return fmt.Errorf("%w: want a datagram socket, got a stream", socknotify.ErrInvalid)
	}
	return nil
}

// start makes the port and the workers, if there are none. The server's lock is held.
func (s *PacketServer) start() error {
	switch {
	case s.closing:
		return ErrServerClosed
	case s.port != nil:
		return nil
	case s.Handler == nil:
		return engine.Invalid("Handler is nil")
	}
	if err := s.check(); err != nil {
		return err
	}
	s.journal.Open(s.Logger, s.Name)
	options := append([]socknotify.Option{socknotify.WithBackend(s.Backend)}, s.options...)
	port, err := socknotify.New[*PacketConn](options...)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	started := false
	defer func() { // OnStart may panic
		if !started {
			port.Close()
			s.port = nil
		}
	}()
	s.port, s.conns, s.workers = port, make(map[*PacketConn]struct{}), make(map[*packetWorker]struct{})
	s.wheel = wheel.New(clock.Current(), engine.Tick,
		func(s *PacketServer) *wheel.Timer[*PacketServer] { return &s.timer }, (*PacketServer).watch)
	if s.OnStart != nil {
		s.OnStart(port)
	}
	for range cmp.Or(s.Workers, 1) {
		s.addWorker()
	}
	started = true
	return nil
}

// check returns an error that names an option that cannot work.
func (s *PacketServer) check() error {
	return cmp.Or(
		engine.CheckNumber("Workers", s.Workers, min(math.MaxInt32, s.maxRunning())),
		engine.CheckNumber("MaxMessage", s.MaxMessage, maxDatagram))
}

// maxRunning returns MaxRunning, or its default.
func (s *PacketServer) maxRunning() int {
	return engine.Limit(s.MaxRunning, cmp.Or(s.Workers, 1)+engine.MaxStuck)
}

func (c *PacketConn) enable(reg *[1]socknotify.Registration[*PacketConn]) error {
	reg[0] = socknotify.Enable(c.sock, c, socknotify.EventIn, engine.OneShot)
	if _, err := c.server.port.Process(reg[:], nil, 0); err != nil {
		return err
	}
	return reg[0].Result
}

// Close ends the server. It closes the sockets; datagrams that no handler was called for are lost.
// Close does not wait for handlers to return; Shutdown does.
func (s *PacketServer) Close() error {
	s.end(nil)
	return nil
}

// end is Close, because of a failure if that is not nil.
func (s *PacketServer) end(failure error) {
	s.mu.Lock()
	if !s.closing {
		s.failure = failure
	}
	s.closing = true
	for c := range s.conns {
		c.sock.Close()
		c.failed.Fail(cmp.Or(failure, ErrServerClosed))
	}
	clear(s.conns) // Stats reports none, even before each Serve has returned
	port := s.port
	s.mu.Unlock()
	if port != nil {
		port.Close() // the workers leave
	}
}

// Shutdown closes the server as Close does and waits for the handlers to return. If the context is
// done first, it returns the context's cause. A nil context is socknotify.ErrInvalid, and the
// server is left as it is.
func (s *PacketServer) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return engine.ErrNoContext
	}
	s.Close()
	gone := make(chan struct{})
	go func() {
		s.running.Wait()
		s.journal.Lines.Flush()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
