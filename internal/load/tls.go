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

// A secure is TLS on a connection. The handshake blocks, on a goroutine and a connection of package net. After
// it crypto/tls reads of the socket without waiting, for which errAgain is a temporary error, and what it
// writes is kept until the socket takes it.
type secure struct {
	tls    *tls.Conn
	nc     net.Conn // in the handshake
	sock   *sock.Socket
	out    []byte // from sent
	sent   int
	failed error // to be told when what came before was taken
}

// errAgain says that nothing has come.
var errAgain error = againError{}

type againError struct{}

func (againError) Error() string   { return "nothing has come" }
func (againError) Timeout() bool   { return true }
func (againError) Temporary() bool { return true }

// A handshake is how one went.
type handshake struct {
	conn *conn
	sock *sock.Socket
	err  error
}

// shake begins the handshake of a connection that is made. It is still one of those that are connecting.
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
		h := handshake{conn: c}
		h.sock, h.err = s.handshake(w.ctx, socket, left)
		w.mu.Lock()
		w.shaken = append(w.shaken, h)
		w.mu.Unlock()
		w.port.Post(nil, 0) // the port is open as long as there are handshakes
	})
}

// handshake is the whole of it, and returns the socket, which is another one then.
func (s *secure) handshake(ctx context.Context, socket *sock.Socket, timeout time.Duration) (*sock.Socket, error) {
	nc, err := sock.Attach(socket)
	if err != nil {
		socket.Close()
		return nil, err
	}
	s.nc = nc
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.tls.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	if s.sock, err = sock.Detach(nc, sock.MakeNonblocking); err != nil {
		nc.Close()
		return nil, err
	}
	s.nc = nil
	return s.sock, nil
}

// endShakes counts the connections whose handshake is over.
func (w *worker) endShakes() {
	w.mu.Lock()
	list := w.shaken
	w.shaken = nil
	w.mu.Unlock()
	for _, h := range list {
		w.connecting--
		if h.err != nil {
			if w.ctx.Err() != nil { // that is why, and no error
				w.stopped.Store(true)
			} else {
				w.fail(h.conn, h.err)
			}
			continue
		}
		h.conn.sock = h.sock
		w.live++
		h.conn.connected = true
	}
}

// recv is sock.Recv of plaintext, as much as there is, or b has room for.
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

// send is sock.Send of plaintext: of what it takes, some may still be to be sent.
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

// flush sends what is kept: sock.ErrWouldBlock where the system does not take all of it.
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

// close says goodbye, as far as the system takes it.
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

// Close is HandshakeContext's, when its context is done.
func (i *inner) Close() error {
	if nc := i.nc; nc != nil {
		return nc.Close()
	}
	return nil
}

func (i *inner) LocalAddr() net.Addr  { return nil }
func (i *inner) RemoteAddr() net.Addr { return nil }

// Deadlines are those of CloseWrite, which does not wait.

func (i *inner) SetDeadline(time.Time) error      { return nil }
func (i *inner) SetReadDeadline(time.Time) error  { return nil }
func (i *inner) SetWriteDeadline(time.Time) error { return nil }
