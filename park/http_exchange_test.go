package park

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/httpcorpus"
)

// An exchangeRun is one connection to a server, and what the test observes of it.
type exchangeRun struct {
	t      *testing.T
	conn   net.Conn // the client's end
	raw    *countingConn
	peer   *countingConn // the server's end
	parked func() int
	in     *bufio.Reader
	got    bytes.Buffer // every byte that the server has sent

	mu     sync.Mutex
	states []http.ConnState
}

func (k *exchangeRun) stateList() []http.ConnState {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]http.ConnState(nil), k.states...)
}

func (k *exchangeRun) state() http.ConnState {
	s := k.stateList()
	if len(s) == 0 {
		return -1
	}
	return s[len(s)-1]
}

// A countingConn counts the bytes that it has read and written.
type countingConn struct {
	net.Conn
	read, written atomic.Int64
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

func (c *countingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

func (c *countingConn) NetConn() net.Conn { return c.Conn }

func (c *countingConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// A step is an action of the client.
type step func(*exchangeRun)

// sends sends text.
func sends(text string) step {
	return func(k *exchangeRun) {
		if _, err := io.WriteString(k.conn, text); err != nil {
			k.t.Fatal(err)
		}
	}
}

// sendAndWait sends text and waits until the server has read it.
func sendAndWait(text string) step {
	return func(k *exchangeRun) {
		sends(text)(k)
		await.Until(k.t, "the server reads", func() bool { return k.peer.read.Load() == k.raw.written.Load() })
	}
}

// answers reads n responses to requests with the method.
func answers(method string, n int) step {
	return func(k *exchangeRun) {
		for range n {
			r, err := http.ReadResponse(k.in, &http.Request{Method: method})
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
			if err != nil {
				k.t.Fatalf("%v, after %q", err, k.got.String())
			}
		}
	}
}

// waitIdle waits until the connection is idle and, with an HTTPServer, parked.
func waitIdle(k *exchangeRun) {
	await.Until(k.t, "idle", func() bool { return k.state() == http.StateIdle })
	if k.parked != nil {
		await.Until(k.t, "parked", func() bool { return k.parked() == 1 })
	}
}

// closeWrite closes the write side of the client's end.
func closeWrite(k *exchangeRun) { k.conn.(interface{ CloseWrite() error }).CloseWrite() }

// closeConn closes the client's end.
func closeConn(k *exchangeRun) { k.conn.Close() }

// reset resets the connection.
func reset(k *exchangeRun) {
	k.raw.Conn.(*net.TCPConn).SetLinger(0)
	k.raw.Conn.Close()
}

// readToEnd reads until the server closes.
func readToEnd(k *exchangeRun) { io.Copy(io.Discard, k.in) }

// An exchangeServer is a server for exchangeRuns, one after the other.
type exchangeServer struct {
	address string
	secure  bool
	parked  func() int
	serves  chan *countingConn

	mu  sync.Mutex
	now *exchangeRun
}

// A countingListener counts the bytes of the connections that it accepts.
type countingListener struct {
	net.Listener
	server *exchangeServer
}

func (l countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &countingConn{Conn: conn}
	l.server.serves <- c
	return c, nil
}

// newExchangeServer starts a server: an HTTPServer with the given Linger if ours is true, and otherwise an http.Server.
func newExchangeServer(t *testing.T, secure, ours bool, backend string, linger time.Duration, set func(*http.Server)) *exchangeServer {
	t.Helper()
	r := &exchangeServer{secure: secure, serves: make(chan *countingConn, 1)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	r.address = ln.Addr().String()
	srv := &http.Server{
		Handler:     httpcorpus.Handler(),
		ErrorLog:    log.New(io.Discard, "", 0),
		ConnContext: httpcorpus.ConnContext,
		ConnState: func(conn net.Conn, state http.ConnState) {
			r.mu.Lock()
			k := r.now
			r.mu.Unlock()
			k.mu.Lock()
			defer k.mu.Unlock()
			k.states = append(k.states, state)
			if k.states[0] != http.StateNew {
				t.Errorf("the first state is %v", state)
			}
			_, isTLS := conn.(connectionStater)
			if _, plain := conn.(*countingConn); isTLS != secure || plain == secure {
				t.Errorf("ConnState receives a %T", conn)
			}
		},
	}
	if secure {
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}}
	}
	if set != nil {
		set(srv)
	}
	serve, serveTLS, shutdown := srv.Serve, srv.ServeTLS, srv.Shutdown
	if ours {
		s := &HTTPServer{Server: srv, Linger: linger, Backend: backend}
		serve, serveTLS, shutdown = s.Serve, s.ServeTLS, s.Shutdown
		if linger < 0 {
			r.parked = func() int { return s.Stats().Parked }
		}
	}
	served := make(chan error, 1)
	go func() {
		if secure {
			served <- serveTLS(countingListener{ln, r}, "", "")
		} else {
			served <- serve(countingListener{ln, r})
		}
	}()
	t.Cleanup(func() {
		check.OK(t, shutdown(context.Background()))
		check.Is(t, await.Value(t, served), http.ErrServerClosed)
	})
	return r
}

// run runs the steps on a new connection. It returns the bytes that the server sent, and the states of the connection.
func (r *exchangeServer) run(t *testing.T, steps []step) (string, []http.ConnState) {
	t.Helper()
	k := &exchangeRun{t: t, parked: r.parked}
	r.mu.Lock()
	r.now = k
	r.mu.Unlock()
	conn, err := net.Dial("tcp", r.address)
	check.OK(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * conntest.Timeout))
	k.raw = &countingConn{Conn: conn}
	k.conn = k.raw
	k.peer = await.Value(t, r.serves)
	if r.secure {
		c := tls.Client(k.raw, &tls.Config{InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519}})
		check.OK(t, c.Handshake())
		k.conn = c
	}
	k.in = bufio.NewReader(io.TeeReader(k.conn, &k.got))
	for _, do := range steps {
		do(k)
	}
	closeWrite(k)
	readToEnd(k)
	k.conn.Close()
	await.Until(t, "the last state", func() bool {
		s := k.state()
		return s == http.StateClosed || s == http.StateHijacked
	})
	return httpcorpus.MaskDates(k.got.String()), k.stateList()
}
