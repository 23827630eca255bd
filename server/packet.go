package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/wheel"
	"github.com/socknotify/socknotify/sock"
)

// A PacketHandler is given datagrams. For one socket it is called by one goroutine at a time. A panic is
// logged and counted, and loses the rest of its batch.
type PacketHandler interface {
	// Datagrams is called with what has come, in order. The messages and their buffers are the worker's,
	// for use until it returns; so an answer may be made in place, and sent with c.Send.
	Datagrams(c *PacketConn, in []sock.Message)
}

// A PacketServer serves datagram sockets with workers that share a port. A socket is one worker's at a time,
// so to use several processors it takes several sockets, on one address by sock.ListenOptions.ReusePort.
//
// A handler that does not return keeps its socket, whose datagrams wait. After a tenth of a second another
// worker takes the place of the one that it keeps, so the other sockets are served.
//
// It is for UDP. A Unix datagram socket is received from as well, but those who send to it have no address in a
// sock.Message, so they cannot be answered.
//
// The fields are set before the first Serve and left alone after. A PacketServer must not be copied.
type PacketServer struct {
	Handler PacketHandler
	Workers int    // goroutines that serve; 0 is 1
	Backend string // the port's kernel; "" is the default
	MaxSize int    // of a datagram, in bytes; 0 is 65,535. What is longer is cut.

	// Logger, if not nil, is told of failures and of handlers that do not return.
	Logger *slog.Logger
	// OnStart, if not nil, is called once, with the port, before anything is served: for those who observe
	// it, such as package debug. It must not call the server.
	OnStart func(port *socknotify.Port[*PacketConn])
	// StuckAfter is how long a handler may run before that is logged and counted; 0 is 10 s.
	StuckAfter time.Duration

	mu      sync.Mutex
	closing bool
	port    *socknotify.Port[*PacketConn]
	conns   map[*PacketConn]struct{}
	workers map[*packetWorker]struct{}
	running sync.WaitGroup
	counts  struct{ received, sent, dropped, panics, stuck atomic.Uint64 }

	wheel  *wheel.Wheel[*packetTimer]
	ticker packetTimer // in the wheel while there is something to be watched

	failure  error // why the server ended by itself
	failures oncePerSecond
	options  []socknotify.Option // of the port; a test's
	giveUp   time.Duration       // 0 is the constant; a test's
}

// A PacketConn is a socket of a PacketServer. Its methods may be called by any goroutine at any time.
type PacketConn struct {
	server *PacketServer
	sock   *sock.Socket
	failed chan error
}

// PacketStats are what a PacketServer has done.
type PacketStats struct {
	Sockets  int           // served now
	Workers  int           // goroutines now, those replaced included
	Longest  time.Duration // how long the longest of the handlers that run now has run, to about 0.1 s
	Received uint64        // datagrams
	Sent     uint64        // datagrams that the system took
	Dropped  uint64        // datagrams that it did not take
	Panics   uint64        // of handlers
	Stuck    uint64        // handlers that ran for StuckAfter
}

// packets is how many datagrams a worker receives at a time, and maxSize how long they can be.
const (
	packets = 32
	maxSize = 65535
)

// Send sends datagrams, each to its Addr, and returns how many the system took. Like the network it drops
// the others: those for which there is no backend, and those that cannot be sent.
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
			s.log(slog.LevelDebug, "datagram not sent", "error", err)
			rest = rest[1:] // the first one cannot be, or the error is of an earlier one
		}
	}
	s.counts.sent.Add(uint64(sent))
	s.counts.dropped.Add(uint64(len(out) - sent))
	return sent
}

// LocalAddr is the address that the socket is bound to.
func (c *PacketConn) LocalAddr() netip.AddrPort { return c.sock.LocalAddr() }

// ListenAndServe listens on a UDP address, as net.ListenPacket names it ("udp", "udp4", "udp6"), and serves.
func (s *PacketServer) ListenAndServe(network, address string) error {
	c, err := net.ListenPacket(network, address)
	if err != nil {
		return err
	}
	return s.Serve(c)
}

// Serve serves a datagram socket until Shutdown or Close, and then returns ErrServerClosed; or until the
// socket fails. It is the server's from then on (sock.Detach), so a Close of its former owner's does nothing;
// and closed in the end. Several may be served at once, each by a Serve of its own.
func (s *PacketServer) Serve(c net.PacketConn) error {
	if c == nil {
		return errNoSocket
	}
	socket, err := sock.Detach(c, sock.MakeNonblocking)
	if err != nil {
		c.Close()
		return err
	}
	return s.ServeSocket(socket)
}

// ServeSocket is Serve for a socket of package sock. If somebody else closes that it ends with an error that
// is net.ErrClosed, within a second, and other sockets are served on.
func (s *PacketServer) ServeSocket(socket *sock.Socket) error {
	if socket == nil {
		return errNoSocket
	}
	defer socket.Close()
	if err := datagrams(socket); err != nil {
		return fmt.Errorf("server: socket on %s: %w", nameOf(socket), err)
	}
	c := &PacketConn{server: s, sock: socket, failed: make(chan error, 1)}
	if err := s.begin(c); err != nil {
		return err
	}
	name := nameOf(socket)
	var reg [1]socknotify.Registration[*PacketConn]
	err := c.enable(&reg)
	if err == nil {
		err = await(c.failed, func() bool { return isClosed(socket) })
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

// begin starts the server, where it is the first socket's, and counts that in.
func (s *PacketServer) begin(c *PacketConn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(); err != nil {
		return err
	}
	s.conns[c] = struct{}{}
	s.wheel.Set(&s.ticker, 0)
	return nil
}

// datagrams is an error for a stream: its end, or its connections, would be told for ever.
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
		return fmt.Errorf("%w: it is a stream's", socknotify.ErrInvalid)
	}
	return nil
}

// start makes the port and the workers, once. The server's lock is held.
func (s *PacketServer) start() error {
	switch {
	case s.closing:
		return ErrServerClosed
	case s.port != nil:
		return nil
	case s.Handler == nil:
		return invalid("no Handler")
	}
	if err := checkFields(field{"Workers", int64(s.Workers), 0}, field{"MaxSize", int64(s.MaxSize), maxSize}); err != nil {
		return err
	}
	port, err := socknotify.New[*PacketConn](append([]socknotify.Option{socknotify.WithBackend(s.Backend)}, s.options...)...)
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
	s.wheel = wheel.New(tick, func(p *packetTimer) *wheel.Timer[*packetTimer] { return &p.timer },
		func(*packetTimer) { s.watch() })
	if s.OnStart != nil {
		s.OnStart(port)
	}
	for range max(s.Workers, 1) {
		s.addWorker()
	}
	started = true
	return nil
}

func (c *PacketConn) enable(reg *[1]socknotify.Registration[*PacketConn]) error {
	reg[0] = socknotify.EnableSock(c.sock, c, socknotify.EventIn, oneShot)
	if _, err := c.server.port.Process(reg[:], nil, 0); err != nil {
		return err
	}
	return reg[0].Result
}

func (c *PacketConn) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

// Close ends the server: sockets are closed, with what they have received and no handler has seen. It does
// not wait for handlers to return; Shutdown does.
func (s *PacketServer) Close() error {
	s.end(nil)
	return nil
}

// end is Close, with the failure that it is for, if any.
func (s *PacketServer) end(failure error) {
	s.mu.Lock()
	if !s.closing {
		s.failure = failure
	}
	s.closing = true
	for c := range s.conns {
		c.sock.Close()
		c.fail(cmp.Or(failure, ErrServerClosed))
	}
	clear(s.conns) // none is served from now on, wherever its Serve is
	port := s.port
	s.mu.Unlock()
	if port != nil {
		port.Close() // the workers leave
	}
}

// Shutdown is Close that waits for the handlers to return, or for the context, whose cause it returns then. A nil
// context is socknotify.ErrInvalid, and nothing is done.
func (s *PacketServer) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNoContext
	}
	s.Close()
	gone := make(chan struct{})
	go func() {
		s.running.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *PacketServer) log(level slog.Level, msg string, args ...any) {
	if s.Logger != nil {
		s.Logger.Log(context.Background(), level, msg, args...)
	}
}
