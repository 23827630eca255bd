package tunnel

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

// A proxyRun is a proxy with a backend of its own, which upgrades each connection.
type proxyRun struct {
	t        *testing.T
	g        *Tunnels // nil for the stock proxy
	closed   chan error
	proxy    *httputil.ReverseProxy
	address  string
	secure   bool
	greeting string // of the backend, in one segment with the answer
	accepted chan net.Conn
	returned chan struct{} // the handler has returned
	around   bool          // Handler and RoundTripper instead of ReverseProxy
	wrap     func(http.Handler) http.Handler
	server   *http.Server
	read     atomic.Int64 // bytes of a request's body that the backend reads before it answers
}

// newProxyRun makes a proxy. configure may change p before it serves.
func newProxyRun(t *testing.T, stock, parked, secure bool, configure func(p *proxyRun)) *proxyRun {
	t.Helper()
	backend := conntest.Listen(t)
	target := &url.URL{Scheme: "http", Host: backend.Addr().String()}
	p := &proxyRun{t: t, secure: secure, accepted: make(chan net.Conn, 10),
		returned: make(chan struct{}, 10)}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	p.proxy = &httputil.ReverseProxy{Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	if !stock {
		p.g, p.closed = newTunnels(t, &Tunnels{})
	}
	if configure != nil {
		configure(p)
	}
	go p.serveBackend(backend)
	var handler http.Handler = p.proxy
	switch {
	case p.g == nil:
	case p.around:
		p.proxy.Transport = p.g.RoundTripper(p.proxy.Transport)
		handler = p.g.Handler(p.proxy)
	default:
		handler = p.g.ReverseProxy(p.proxy)
	}
	if p.wrap != nil {
		handler = p.wrap(handler)
	}
	p.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { p.returned <- struct{}{} }()
		handler.ServeHTTP(w, r)
	})}
	p.serve(parked)
	return p
}

// serve starts the server of the proxy.
func (p *proxyRun) serve(parked bool) {
	front, srv := conntest.Listen(p.t), p.server
	p.address = front.Addr().String()
	srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(p.t)}}
	if parked {
		h := &park.HTTPServer{Server: srv}
		p.t.Cleanup(func() { h.Close() })
		if p.secure {
			go h.ServeTLS(front, "", "")
		} else {
			go h.Serve(front)
		}
		return
	}
	p.t.Cleanup(func() { srv.Close() })
	if p.secure {
		go srv.ServeTLS(front, "", "")
	} else {
		go srv.Serve(front)
	}
}

const upgradeRequest = "GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n"

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n"

func (p *proxyRun) serveBackend(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		in := bufio.NewReader(conn)
		r, err := http.ReadRequest(in)
		if err == nil {
			_, err = io.CopyN(io.Discard, r.Body, p.read.Load())
		}
		if err != nil {
			conn.Close()
			continue
		}
		io.WriteString(conn, switching+p.greeting)
		p.accepted <- &bufferedPeer{conn, in}
	}
}

// A bufferedPeer is a peer whose first bytes are in a bufio.Reader.
type bufferedPeer struct {
	net.Conn
	in *bufio.Reader
}

func (c *bufferedPeer) Read(p []byte) (int, error) { return c.in.Read(p) }
func (c *bufferedPeer) CloseWrite() error          { return c.Conn.(parking.CloseWriter).CloseWrite() }

// dial returns both ends of an upgraded connection. early is sent with the request.
func (p *proxyRun) dial(early string) (client, backend net.Conn) {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.address)
	check.OK(p.t, err)
	p.t.Cleanup(func() { conn.Close() })
	if p.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	conntest.Send(p.t, conn, upgradeRequest+early)
	in := bufio.NewReader(conn)
	r, err := http.ReadResponse(in, nil)
	check.OK(p.t, err)
	if r.StatusCode != http.StatusSwitchingProtocols {
		p.t.Fatalf("status %d", r.StatusCode)
	}
	backend = await.Value(p.t, p.accepted)
	p.t.Cleanup(func() { backend.Close() })
	return &bufferedPeer{conn, in}, backend
}

// net/http's body of an upgraded connection is known by its name and its field. If a Go release
// renames them, upgraded connections are left to the proxy, and this test fails.
func TestReverseProxyBody(t *testing.T) {
	p := newProxyRun(t, false, false, false, nil)
	client, backend := p.dial("")
	await.Value(t, p.returned) // while the connection is open
	conntest.Send(t, client, "x")
	conntest.Expect(t, backend, "x")
	if st := p.g.Stats(); st.Conns != 1 || st.Copied != 0 {
		t.Errorf("%+v: has net/http renamed readWriteCloserBody, or its field?", st)
	}
	if p.proxy.ModifyResponse != nil || p.proxy.ErrorHandler != nil {
		t.Error("the proxy was changed")
	}
	client.Close()
	backend.Close()
}

// A meteredBody counts what is read from it.
type meteredBody struct {
	io.ReadWriteCloser
	read *atomic.Int64
}

func (c *meteredBody) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	c.read.Add(int64(n))
	return n, err
}

type meteredTransport struct {
	http.RoundTripper
	read *atomic.Int64
}

func (c meteredTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		res.Body = &meteredBody{res.Body.(io.ReadWriteCloser), c.read}
	}
	return res, err
}

// meteredConn is a middleware's connection.
type meteredConn struct {
	net.Conn
	read *atomic.Int64
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

type meteredWriter struct {
	http.ResponseWriter
	read *atomic.Int64
}

func (w *meteredWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	return &meteredConn{conn, w.read}, rw, err
}

// What a program or a middleware has put between sees every byte.
func TestReverseProxyWrapped(t *testing.T) {
	for name, c := range map[string]struct {
		configure func(p *proxyRun, read *atomic.Int64)
		copied    uint64
		read      int64
	}{
		"Transport": {func(p *proxyRun, read *atomic.Int64) {
			p.proxy.Transport = meteredTransport{p.proxy.Transport, read}
		}, 1, 6},
		"ModifyResponse": {func(p *proxyRun, read *atomic.Int64) {
			p.proxy.ModifyResponse = func(r *http.Response) error {
				r.Body = &meteredBody{r.Body.(io.ReadWriteCloser), read}
				return nil
			}
		}, 1, 6},
		"Hijack": {func(p *proxyRun, read *atomic.Int64) {
			p.wrap = func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					h.ServeHTTP(&meteredWriter{w, read}, r)
				})
			}
		}, 0, 8},
	} {
		for _, parked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, park.HTTPServer %t", name, parked), func(t *testing.T) {
				var read atomic.Int64
				p := newProxyRun(t, false, parked, false, func(p *proxyRun) { c.configure(p, &read) })
				client, backend := p.dial("early, ")
				conntest.Send(t, client, "question")
				conntest.Expect(t, backend, "early, question")
				conntest.Send(t, backend, "answer")
				conntest.Expect(t, client, "answer")
				backend.Close()
				client.Close()
				await.Value(t, p.returned)
				st := p.g.Stats()
				if st.Copied != c.copied || st.Accepted != 1-c.copied || read.Load() < c.read {
					t.Errorf("%d bytes, %+v", read.Load(), st)
				}
			})
		}
	}
}

// The program's functions are called as without the wrapper, and get what they would get.
func TestReverseProxyHooks(t *testing.T) {
	var writer string
	var failed error
	p := newProxyRun(t, false, false, false, func(p *proxyRun) {
		p.proxy.ModifyResponse = func(r *http.Response) error {
			if r.Header.Get("Upgrade") == "test" && r.Request.Header.Get("X-Refuse") != "" {
				return io.ErrNoProgress
			}
			return nil
		}
		p.proxy.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) {
			writer, failed = fmt.Sprintf("%T", w), err
			w.WriteHeader(http.StatusTeapot)
		}
	})
	r, err := http.NewRequest("GET", "http://"+p.address, nil)
	check.OK(t, err)
	r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"test"}, "X-Refuse": {"yes"}}
	res, err := http.DefaultTransport.RoundTrip(r)
	check.OK(t, err)
	res.Body.Close()
	await.Value(t, p.returned)
	if res.StatusCode != http.StatusTeapot || writer != "*http.response" || failed != io.ErrNoProgress {
		t.Errorf("status %d, %s, %v", res.StatusCode, writer, failed)
	}
	await.Value(t, p.accepted).Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// Beyond MaxConns, and after Shutdown, a connection is not upgraded. An ErrorHandler gets the reason.
func TestReverseProxyMaxConns(t *testing.T) {
	for _, own := range []bool{false, true} {
		failed := make(chan error, 10)
		p := newProxyRun(t, false, true, false, func(p *proxyRun) {
			p.g.MaxConns = 1
			p.proxy.ErrorLog = log.New(io.Discard, "", 0)
			if own {
				p.proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
					failed <- err
					w.WriteHeader(http.StatusTeapot)
				}
			}
		})
		client, first := p.dial("")
		await.Until(t, "the first is a tunnel", func() bool { return p.g.Stats().Conns == 1 })
		refused := func(reason error) {
			t.Helper()
			conn, err := net.Dial("tcp", p.address)
			check.OK(t, err)
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(conntest.Timeout))
			conntest.Send(t, conn, upgradeRequest)
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			check.OK(t, err)
			switch {
			case !own && r.StatusCode != http.StatusServiceUnavailable:
				t.Errorf("status %d, want 503", r.StatusCode)
			case own && r.StatusCode != http.StatusTeapot:
				t.Errorf("status %d, want that of ErrorHandler", r.StatusCode)
			case own:
				check.Is(t, await.Value(t, failed), reason)
			}
			backend := await.Value(t, p.accepted)
			lastOf(backend)
			backend.Close()
		}
		refused(park.ErrMaxConns)
		if st := p.g.Stats(); st.Refused != 1 || st.Conns != 1 || st.Copied != 0 {
			t.Errorf("%+v", st)
		}
		client.Close()
		first.Close()
		await.Value(t, p.closed)
		await.Until(t, "there is a place", func() bool { return p.g.Stats().Conns == 0 })
		client, second := p.dial("")
		conntest.Send(t, client, "x")
		conntest.Expect(t, second, "x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		check.Is(t, p.g.Shutdown(ctx), context.Canceled)
		refused(park.ErrServerClosed)
		await.Until(t, "nothing is reserved", func() bool { return p.g.Stats().Conns == 0 })
	}
}

// A connection that is left to the proxy's own copying keeps no place from a tunnel.
func TestReverseProxyCopiedTakesNoPlace(t *testing.T) {
	p := newProxyRun(t, false, true, false, func(p *proxyRun) {
		p.g.MaxConns = 1
		p.proxy.ModifyResponse = func(r *http.Response) error {
			if body, ok := r.Body.(io.ReadWriteCloser); ok && r.Request.Header.Get("Copied") != "" {
				r.Body = struct{ io.ReadWriteCloser }{body}
			}
			return nil
		}
	})
	conn, err := net.Dial("tcp", p.address)
	check.OK(t, err)
	defer conn.Close()
	conntest.Send(t, conn, strings.Replace(upgradeRequest, "\r\n\r\n", "\r\nCopied: yes\r\n\r\n", 1))
	copied := await.Value(t, p.accepted)
	defer copied.Close()
	in := bufio.NewReader(conn)
	_, err = http.ReadResponse(in, nil)
	check.OK(t, err)
	conntest.Send(t, conn, "x")
	conntest.Expect(t, copied, "x")
	await.Until(t, "it is copied", func() bool { st := p.g.Stats(); return st.Copied > 0 && st.Conns == 0 })
	client, backend := p.dial("")
	conntest.Send(t, client, "y")
	conntest.Expect(t, backend, "y")
}

// An idle upgraded connection has no goroutine.
func TestReverseProxyGoroutines(t *testing.T) {
	p := newProxyRun(t, false, true, false, nil)
	var conns []net.Conn
	for range 20 {
		client, backend := p.dial("")
		await.Value(t, p.returned)
		conntest.Send(t, client, "x")
		conntest.Expect(t, backend, "x")
		conns = append(conns, client, backend)
	}
	p.g.resting(t, 20)
	await.Until(t, "the goroutines of the connections have ended", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("httputil.")) && !bytes.Contains(stacks, []byte("(*persistConn)")) &&
			!bytes.Contains(stacks, []byte("(*conn).serve"))
	})
	for _, conn := range conns {
		conn.Close()
	}
}
