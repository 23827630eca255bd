package listener

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A source is the listener of an HTTPServer.
//
// On a reload, Linux has two sockets for the address, that of the former configuration and that of the next one, and gives each
// new connection to one of them. When a socket is closed, the connections that it has and that were not accepted are reset. So
// the source closes the socket at a moment at which it has none. The goroutine that accepts does that: a Close by another one
// would take effect only when this goroutine has returned from the system call.
type source struct {
	l       *listener
	first   net.Conn // the first connection, until Accept has returned it
	backlog *backlog // nil where a close loses no connection, or nothing can be done about it
	failed  error    // of Accept, for good
}

// drainTime bounds the time between Close and the close of the socket.
const drainTime = time.Second

// Accept returns the next connection, without TLS if the HTTPServer adds that.
func (s *source) Accept() (net.Conn, error) {
	conn, err := s.next()
	if err != nil {
		//lint:ignore SA1019 net/http uses it
		if e, ok := err.(net.Error); !ok || !e.Temporary() {
			s.failed = err
		}
		return nil, err
	}
	if !s.l.secure || s.l.config == nil {
		return conn, nil
	}
	t, ok := conn.(*tls.Conn)
	if !ok {
		conn.Close()
		s.failed = fmt.Errorf("accepted a %T, want a *tls.Conn", conn)
		return nil, s.failed
	}
	return t.NetConn(), nil
}

// next accepts a connection. After Close it accepts those that the socket has, and closes it when there is none.
func (s *source) next() (net.Conn, error) {
	if first := s.first; first != nil {
		s.first = nil
		return first, nil
	}
	if !s.l.isClosed() {
		conn, err := s.l.Listener.Accept()
		if err == nil || s.backlog == nil || !s.l.isClosed() {
			return conn, err
		}
	}
	for s.backlog != nil && s.backlog.socket.Readable() {
		s.backlog.SetDeadline(time.Now().Add(drainTime)) // a connection may be gone
		if conn, err := s.l.Listener.Accept(); err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return conn, err
		}
	}
	s.l.closeBelow()
	return nil, net.ErrClosed
}

func (s *source) Addr() net.Addr { return s.l.Addr() }

// end closes the listener below, when it has no connections left.
func (s *source) end() error {
	if s.backlog == nil {
		return s.l.closeBelow()
	}
	time.AfterFunc(drainTime, func() { s.l.closeBelow() }) // if the HTTPServer does not call Accept
	return s.backlog.SetDeadline(unwrap.Past)              // interrupts Accept
}

// Close is called by the HTTPServer. If that has failed, Caddy's server accepts. Otherwise end was called before.
func (*source) Close() error { return nil }

// A backlog is a listening socket, with the connections that were not accepted.
type backlog struct {
	*net.TCPListener
	socket nowait.Socket
}

// backlogOf returns the socket below a listener, or nil. Elsewhere than on Linux, Caddy's configurations share a socket.
func backlogOf(l net.Listener) *backlog {
	if runtime.GOOS != "linux" {
		return nil
	}
	found, err := unwrap.FindListener(l)
	if err != nil {
		return nil
	}
	tcp, ok := found.Conn.(*net.TCPListener)
	if !ok {
		return nil // Caddy's configurations share a Unix socket
	}
	return &backlog{tcp, nowait.Of(found.Raw)}
}
