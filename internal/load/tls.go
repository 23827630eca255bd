package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/socknotify/socknotify/sock"
)

// A secure is TLS on a connection. The handshake blocks, on a goroutine and a connection of package
// net. Afterwards crypto/tls reads from the socket without waiting: errAgain is a temporary error
// for it. Its writes are buffered until the socket takes them.
type secure struct {
	tls    *tls.Conn
	nc     net.Conn // in the handshake
	sock   *sock.Socket
	out    []byte // from sent
	sent   int
	failed error // of the handshake; or to be returned after the bytes received before it
}

// errAgain means that nothing has arrived.
var errAgain error = againError{}

type againError struct{}

func (againError) Error() string   { return "nothing has arrived" }
func (againError) Timeout() bool   { return true }
func (againError) Temporary() bool { return true }

// shake begins the handshake of an established connection, which still counts as connecting.
func (w *worker) shake(c *conn) {
	config := w.TLS.Clone()
	if config.ServerName == "" {
		host, _, _ := net.SplitHostPort(w.Addr)
		config.ServerName = cmp.Or(host, "localhost")
	}
	s := &secure{}
	s.tls = tls.Client((*inner)(s), config)
	socket := c.sock
	c.sock, c.tls = nil, s
	w.connecting++
	left := time.Duration(max(w.connectUntil-w.now(), 1))
	w.shaking.Go(func() {
		s.failed = s.handshake(w.ctx, socket, left)
		w.mu.Lock()
		w.shaken = append(w.shaken, c)
		w.mu.Unlock()
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
	s.nc = nc
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.tls.HandshakeContext(ctx); err != nil {
		nc.Close()
		return fmt.Errorf("TLS handshake: %w", err)
	}
	if s.sock, err = sock.Detach(nc, sock.MakeNonblocking); err != nil {
		nc.Close()
		return err
	}
	s.nc = nil
	return nil
}

// endShakes counts the connections whose handshake is over.
func (w *worker) endShakes() {
	w.mu.Lock()
	list := w.shaken
	w.shaken = nil
	w.mu.Unlock()
	for _, c := range list {
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

// recv is Recv for plaintext: it receives all that there is, up to the size of b.
func (s *secure) recv(b []byte) (n int, err error) {
	err, s.failed = s.failed, nil
	for n < len(b) && err == nil {
		var k int
		k, err = s.tls.Read(b[n:])
		n += k
	}
	switch {
	case err == errAgain && n == 0:
		return 0, sock.ErrWouldBlock
	case err == errAgain:
		return n, nil
	case n > 0:
		s.failed = err
		return n, nil
	}
	return 0, err
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

// An inner is the net.Conn below crypto/tls.
type inner secure

func (i *inner) Read(b []byte) (int, error) {
	if i.nc != nil {
		return i.nc.Read(b)
	}
	n, err := i.sock.Recv(b)
	if err == sock.ErrWouldBlock {
		err = errAgain
	}
	return n, err
}

func (i *inner) Write(b []byte) (int, error) {
	if i.nc != nil {
		return i.nc.Write(b)
	}
	i.out = append(i.out, b...)
	return len(b), nil
}

// Close is called by HandshakeContext when its context is done.
func (i *inner) Close() error {
	if nc := i.nc; nc != nil {
		return nc.Close()
	}
	return nil
}

func (i *inner) LocalAddr() net.Addr  { return nil }
func (i *inner) RemoteAddr() net.Addr { return nil }

// The deadlines are set by CloseWrite, which does not wait here.

func (i *inner) SetDeadline(time.Time) error      { return nil }
func (i *inner) SetReadDeadline(time.Time) error  { return nil }
func (i *inner) SetWriteDeadline(time.Time) error { return nil }
