package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/socknotify/socknotify"
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
// The fields are set before the first Serve and left alone after. A PacketServer must not be copied.
type PacketServer struct {
	Handler PacketHandler
	Workers int          // goroutines that serve; 0 is 1
	Backend string       // the port's kernel; "" is the default
	MaxSize int          // of a datagram, in bytes; 0 is 65,535. What is longer is cut.
	Logger  *slog.Logger // told of failures, if not nil

	mu      sync.Mutex
	closing bool
	port    *socknotify.Port[*PacketConn]
	conns   map[*PacketConn]struct{}
	running sync.WaitGroup
	counts  struct{ received, sent, dropped, panics atomic.Uint64 }
}

// A PacketConn is a socket of a PacketServer. Its methods may be called by any goroutine at any time.
type PacketConn struct {
	server *PacketServer
	sock   *sock.Socket
	failed chan error
}

// PacketStats are what a PacketServer has done.
type PacketStats struct {
	Sockets  int    // served now
	Received uint64 // datagrams
	Sent     uint64 // datagrams that the system took
	Dropped  uint64 // datagrams that it did not take
	Panics   uint64 // of handlers
}

// packets is how many datagrams a worker receives at a time, and maxSize how long they can be.
const (
	packets = 32
	maxSize = 65535
)

// Send sends datagrams, each to its Addr, and returns how many the system took. Like the network it drops
// the others: those for which there is no room, and those that cannot be sent.
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
// socket fails. It is the server's from then on (sock.Detach), and closed in the end. Several may be served
// at once, each by a Serve of its own.
func (s *PacketServer) Serve(c net.PacketConn) error {
	socket, err := sock.Detach(c, sock.MakeNonblocking)
	if err != nil {
		return err
	}
	return s.ServeSocket(socket)
}

// ServeSocket is Serve for a socket of package sock.
func (s *PacketServer) ServeSocket(socket *sock.Socket) error {
	if socket == nil {
		return errNoSocket
	}
	defer socket.Close()
	c := &PacketConn{server: s, sock: socket, failed: make(chan error, 1)}
	s.mu.Lock()
	err := s.start()
	if err == nil {
		s.conns[c] = struct{}{}
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	var reg [1]socknotify.Registration[*PacketConn]
	if err = c.enable(&reg); err == nil {
		err = <-c.failed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.closing {
		return ErrServerClosed
	}
	return err
}

// start makes the port and the workers, once. The server's lock is held.
func (s *PacketServer) start() error {
	switch {
	case s.closing:
		return ErrServerClosed
	case s.port != nil:
		return nil
	case s.Handler == nil:
		return errors.New("server: no Handler")
	case s.Workers < 0 || s.MaxSize < 0 || s.MaxSize > maxSize:
		return errors.New("server: a field is out of range")
	}
	port, err := socknotify.New[*PacketConn](socknotify.WithBackend(s.Backend))
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	s.port, s.conns = port, make(map[*PacketConn]struct{})
	for range max(s.Workers, 1) {
		s.addWorker()
	}
	return nil
}

func (s *PacketServer) addWorker() {
	w := &packetWorker{server: s}
	s.running.Go(w.run)
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
	s.mu.Lock()
	s.closing = true
	for c := range s.conns {
		c.sock.Close()
		c.fail(ErrServerClosed)
	}
	port := s.port
	s.mu.Unlock()
	if port != nil {
		port.Close() // the workers leave
	}
	return nil
}

// Shutdown is Close that waits for the handlers to return, or for the context, whose cause it returns then.
func (s *PacketServer) Shutdown(ctx context.Context) error {
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

// Stats returns the server's counts. It may be called at any time.
func (s *PacketServer) Stats() PacketStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &s.counts
	return PacketStats{
		Sockets: len(s.conns), Received: k.received.Load(), Sent: k.sent.Load(), Dropped: k.dropped.Load(), Panics: k.panics.Load(),
	}
}

func (s *PacketServer) log(level slog.Level, msg string, args ...any) {
	if s.Logger != nil {
		s.Logger.Log(context.Background(), level, msg, args...)
	}
}
