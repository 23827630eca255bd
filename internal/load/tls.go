package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/socknotify/socknotify/sock"
)

// A secure is TLS on a connection, and the net.Conn below crypto/tls. The handshake blocks, on a
// goroutine and a connection of package net. Afterwards crypto/tls reads from the socket without
// waiting: errAgain is a temporary error for it. Its writes are buffered until the socket takes them.
type secure struct {
	// Conn is for the handshake. It is closed afterwards, when CloseWrite still sets deadlines, which
	// have no effect.
	net.Conn
	tls    *tls.Conn
	sock   *sock.Socket // nil in the handshake
	out    []byte       // from sent
	sent   int
	failed error // of the handshake
}

// errAgain means that nothing has arrived.
var errAgain = os.ErrDeadlineExceeded

// shake begins the handshake of an established connection, which still counts as connecting.
func (w *worker) shake(c *conn) {
	config := w.TLS.Clone()
	if config.ServerName == "" {
		host, _, _ := net.SplitHostPort(w.Addr)
		config.ServerName = cmp.Or(host, "localhost")
	}
	s, socket := &secure{}, c.sock
	s.tls = tls.Client(s, config)
	c.sock, c.tls = nil, s
	w.connecting++
	left := time.Duration(max(w.connectUntil-w.now(), 1))
	w.shaking.Go(func() {
		s.failed = s.handshake(w.ctx, socket, left)
		w.shaken <- c       // has room for every handshake that is under way
		w.port.Post(nil, 0) // the port is open as long as there are handshakes
	})
}

// handshake performs the handshake. Afterwards s.sock is a new sock.Socket.
func (s *secure) handshake(ctx context.Context, socket *sock.Socket, timeout time.Duration) error {
	nc, err := sock.Attach(socket)
	if err != nil {
		socket.Close()
		return err
	}
	s.Conn = nc
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err = s.tls.HandshakeContext(ctx); err != nil {
		err = fmt.Errorf("TLS handshake: %w", err)
	} else {
		s.sock, err = sock.Detach(nc, sock.MakeNonblocking)
	}
	if err != nil {
		nc.Close()
	}
	return err
}

// endShakes counts the connections whose handshake is over.
func (w *worker) endShakes() {
	for len(w.shaken) > 0 {
		c := <-w.shaken
		w.connecting--
		switch {
		case c.tls.failed == nil:
			c.sock, c.connected = c.tls.sock, true
			w.live++
		case w.ctx.Err() != nil:
			w.stopped.Store(true) // the run was stopped, which is not an error
		default:
			w.fail(c, c.tls.failed)
		}
	}
}

// recv is Recv for plaintext: it receives all that there is, up to the size of b, and returns the
// error that followed, too.
func (s *secure) recv(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		k, err = s.tls.Read(b[n:])
		n += k
	}
	if err == errAgain {
		err = sock.ErrWouldBlock
	}
	return n, err
}

// send is Send for plaintext. Some of the bytes that it takes may still be buffered.
func (s *secure) send(b []byte) (int, error) {
	if err := s.flush(); err != nil {
		return 0, err
	}
	n, err := s.tls.Write(b)
	if err == nil {
		err = s.flush()
	}
	if err == sock.ErrWouldBlock {
		err = nil
	}
	return n, err
}

// flush sends the buffered bytes. It returns sock.ErrWouldBlock if the system does not take all of
// them.
func (s *secure) flush() error {
	for s.sent < len(s.out) {
		n, err := s.sock.Send(s.out[s.sent:])
		if s.sent += n; err != nil {
			return err
		}
	}
	s.out, s.sent = s.out[:0], 0
	return nil
}

// close sends a close_notify, if the system takes it.
func (s *secure) close() {
	if s.sock != nil && s.tls.CloseWrite() == nil {
		s.flush()
	}
}

// Read and Write are called by crypto/tls.

func (s *secure) Read(b []byte) (int, error) {
	if s.sock == nil {
		return s.Conn.Read(b)
	}
	n, err := s.sock.Recv(b)
	if err == sock.ErrWouldBlock {
		err = errAgain
	}
	return n, err
}

func (s *secure) Write(b []byte) (int, error) {
	if s.sock == nil {
		return s.Conn.Write(b)
	}
	s.out = append(s.out, b...)
	return len(b), nil
}
