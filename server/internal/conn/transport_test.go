package conn_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/internal/selfcert"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/server/internal/conn"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// An echo is a handler that passes each connection to opened, unless that is nil.
type echo struct{ opened chan *conn.Conn }

// inner returns the connection that a server.Conn begins with.
func inner(c *server.Conn[*int]) *conn.Conn { return (*conn.Conn)(unsafe.Pointer(c)) }

func (e echo) Open(c *server.Conn[*int]) error {
	if e.opened != nil {
		e.opened <- inner(c)
	}
	return nil
}

func (echo) Data(c *server.Conn[*int], buf []byte) error {
	n, err := c.Read(buf)
	if err == nil {
		_, err = c.Write(buf[:n])
	}
	return err
}

func (echo) Close(c *server.Conn[*int], cause error) {}

// serve starts a server, with TLS if it has a configuration, and returns its address.
func serve(t *testing.T, s *server.Server[*int]) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	done := make(chan error, 1)
	go func() {
		if s.TLSConfig != nil {
			done <- s.ServeTLS(l, "", "")
		} else {
			done <- s.Serve(l)
		}
	}()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != server.ErrServerClosed {
			t.Errorf("Serve = %v", err)
		}
		s.Shutdown(t.Context())
	})
	return addr
}

// A rot is a transport that changes every byte on its way.
type rot struct{ c *conn.Conn }

func (r rot) Read(b []byte) (int, error) {
	n, err := r.c.Recv(b)
	for i := range b[:n] {
		b[i]++
	}
	return n, err
}

func (r rot) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	for i := range b {
		b[i]++
	}
	return r.c.Send(b)
}

func (r rot) CloseWrite() error { return r.c.Shut() }

// rotten puts its transport under each connection, and answers one batch with the end of the
// stream.
type rotten struct{ echo }

func (rotten) Open(c *server.Conn[*int]) error {
	inner(c).SetTransport(rot{inner(c)})
	return nil
}

func (r rotten) Data(c *server.Conn[*int], buf []byte) error {
	err := r.echo.Data(c, buf)
	if err == io.EOF {
		return c.CloseWrite()
	}
	return err
}

// Every byte of a connection passes through its transport, in both directions, also queued ones.
func TestTransport(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		c, err := net.Dial("tcp", serve(t, &server.Server[*int]{Handler: rotten{}, Backend: backend}))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Minute)) // 10 MiB, on a machine that may be busy
		sent := bytes.Repeat([]byte("0123456789"), 1<<20)
		done := make(chan error, 1)
		go func() {
			_, err := c.Write(sent)
			c.(*net.TCPConn).CloseWrite()
			done <- err
		}()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, bytes.Repeat([]byte("23456789:;"), 1<<20)) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A timeout that is set while the connection ends leaves no armed timer.
func TestNoTimerAfterClose(t *testing.T) {
	h := echo{make(chan *conn.Conn, 1)}
	s := &server.Server[*int]{Handler: h, Workers: 1}
	peer, err := net.Dial("tcp", serve(t, s))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	c := await.Receive(t, "the connection is opened", h.opened)
	armed := c.AbortAndSet(func(reached func() bool) {
		await.Until(t, "the worker has begun to close it", reached)
		await.Pause(10 * time.Millisecond) // so that the worker mostly waits for the lock; it holds if it does not
	})
	await.Until(t, "the connection has ended", func() bool { return s.Stats().Conns == 0 })
	if armed() {
		t.Error("the timer of a connection that is gone is armed")
	}
}

// The queue stays within MaxQueued if a reader sends all that crypto/tls has encrypted in Write before
// Write does. That happens here, because a mutex whose waiter finds it locked for a millisecond is handed
// to the waiters in turn.
func TestTLSQueueSentByReader(t *testing.T) {
	const queue = 300_000
	cert, trust, err := selfcert.New(24*time.Hour, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	h := echo{make(chan *conn.Conn, 1)}
	addr := serve(t, &server.Server[*int]{Handler: h, MaxQueued: queue, CryptoTLS: true,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}})
	peer, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: trust, ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	c := await.Receive(t, "the handshake is over", h.opened)
	await.Until(t, "no worker has the connection", c.Idles)
	tc := c.TLSStack()
	piece := make([]byte, 16_000) // one record
	for c.Queued() == 0 {
		if _, err := c.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	for err == nil {
		tc.Lock()
		wrote, read := make(chan error), make(chan struct{})
		go func() {
			_, err := c.Write(piece)
			wrote <- err
		}()
		await.Pause(2 * time.Millisecond)
		go func() {
			tc.Read(make([]byte, 1))
			close(read)
		}()
		await.Pause(2 * time.Millisecond)
		tc.Unlock()
		tc.Lock() // Write wakes, and finds that it has waited for long
		await.Pause(2 * time.Millisecond)
		tc.Unlock()
		err = <-wrote
		<-read
	}
	if q := c.Queued(); err != server.ErrQueueFull || q > queue+queue/20 {
		t.Errorf("%d bytes queued, where %d may be: %v", q, queue, err)
	}
}
