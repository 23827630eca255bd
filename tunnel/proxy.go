package tunnel

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/serving/nethttp"
	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// ReverseProxy returns a handler that does what p does, and joins upgraded connections, such as
// those of WebSocket, in tunnels: the handler then returns, and an idle one needs no goroutine and
// no buffer. The first connection of a tunnel is the client's.
//
// It works with Director, Rewrite, ModifyResponse, Transport and ErrorHandler as they are. p is
// copied; later changes of it have no effect. A tunnel begins when the proxy would begin to copy,
// after ModifyResponse and the response's head, and only if the whole body of the request was sent
// to the backend: otherwise it is an error for ErrorHandler. An upgraded connection is left to the proxy's own
// copying, and counted in Stats.Copied, if the body of the response is not net/http's own: a
// Transport or ModifyResponse has wrapped it, and must see the bytes. A connection that a
// middleware's Hijack method has wrapped is read and written through the wrapper, as [Lot.Park]
// describes.
//
// Requests are passed on without offers to go on with HTTP on the same connection (see
// [Tunnels.UpgradeToHTTP]).
//
// What differs from the proxy's own copying: bytes that a client sends before it has the answer are
// passed on; hop-by-hop headers of a response with status 101 are not, but Connection and Upgrade;
// when a connection fails, the other one is reset (see [Tunnels.Join]); and a tunnel
// does not end with the context of its request, because its handler has returned. Beyond MaxConns,
// and after Shutdown, a connection is not upgraded: the proxy closes that to the backend, and answers
// with the status 503, or calls ErrorHandler with ErrMaxConns or ErrServerClosed.
func (g *Tunnels) ReverseProxy(p *httputil.ReverseProxy) http.Handler {
	own := *p
	own.ModifyResponse = func(r *http.Response) error {
		if p := p.ModifyResponse; p != nil {
			if err := p(r); err != nil {
				return err
			}
		}
		if r.StatusCode == http.StatusSwitchingProtocols {
			dropHopByHop(r.Header)
			g.intercept(r)
			if u, ok := r.Request.Context().Value(upgradeKey{}).(*upgradeWriter); ok {
				u.response = r.Body
			}
		}
		return nil
	}
	if handle := p.ErrorHandler; handle != nil {
		own.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) {
			if u, ok := w.(*upgradeWriter); ok {
				w, err = u.ResponseWriter, cmp.Or(u.refused, err)
			}
			handle(w, r, err)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.UpgradeToHTTP {
			if slices.ContainsFunc(r.Header[":protocol"], offersHTTP) {
				refuse(w, http.StatusNotImplemented)
				return
			}
			r = withoutHTTPUpgrade(r)
		}
		if r.ProtoMajor == 1 && r.Header.Get("Upgrade") != "" {
			u := &upgradeWriter{ResponseWriter: w, in: g}
			defer u.end()
			r = r.WithContext(context.WithValue(r.Context(), upgradeKey{}, u)) // a copy
			if r.ContentLength != 0 {
				u.request = &trackedBody{ReadCloser: r.Body}
				r.Body = u.request
			}
			w = u
		}
		own.ServeHTTP(w, r)
	})
}

// intercept replaces the body of an upgraded connection, if it is net/http's own.
func (g *Tunnels) intercept(r *http.Response) {
	body, ok := r.Body.(io.ReadWriteCloser)
	if !ok {
		return // the proxy says so
	}
	if conn := nethttp.ConnBelow(body); conn != nil {
		r.Body = &upgradedBody{ReadWriteCloser: body, in: g, conn: conn}
	}
}

// An upgradeWriter gives the proxy an upgradedConn, for which a tunnel is reserved.
type upgradeWriter struct {
	http.ResponseWriter
	in       *Tunnels
	reserved atomic.Bool
	refused  error         // why none is
	request  *trackedBody  // the body of the request, or nil if it has none
	response io.ReadCloser // the body of the response with status 101; nil without one
}

// upgradeKey is the key of the upgradeWriter in the context of a request.
type upgradeKey struct{}

// end is called when the proxy has returned. The proxy leaves the backend's connection open if it refuses the response. If
// there is a tunnel, Close does nothing.
func (w *upgradeWriter) end() {
	w.release()
	if w.response != nil {
		w.response.Close()
	}
}

// A trackedBody is a body of a request that knows when it was read whole. The backend may answer
// before that; what the client sends then is not of the new protocol (RFC 9110, 7.8).
type trackedBody struct {
	io.ReadCloser
	whole atomic.Bool
}

func (b *trackedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.whole.Store(true)
	}
	return n, err
}

// take reports whether a tunnel is reserved. If one is, the caller must join or release it.
func (w *upgradeWriter) take() bool { return w.reserved.Swap(false) }

// release ends the reservation, if it was not used.
func (w *upgradeWriter) release() {
	if w.take() {
		w.in.group.Release()
	}
}

// WriteHeader replaces the status with which the proxy answers if Hijack has failed.
func (w *upgradeWriter) WriteHeader(code int) {
	if code == http.StatusBadGateway && (w.refused == park.ErrMaxConns || w.refused == park.ErrServerClosed) {
		code = http.StatusServiceUnavailable
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.request != nil && !w.request.whole.Load() {
		return nil, nil, nethttp.ErrBodyUnread
	}
	if w.refused = w.in.group.Reserve(w.in.MaxConns, w.in.prepare); w.refused != nil {
		return nil, nil, w.refused
	}
	w.reserved.Store(true)
	conn, rw, early, err := nethttp.Hijack(w.ResponseWriter)
	if err != nil {
		return nil, nil, err
	}
	return &upgradedConn{Conn: conn, of: w, early: early}, rw, nil
}

// The proxy copies from an upgradedConn to an upgradedBody and back, by two calls of io.Copy in
// goroutines, and these call the WriteTo methods. The proxy has nothing more to do with the bytes
// when it has called both. So the second call makes a tunnel of the connections below, both calls
// return, and the methods that the proxy calls after that do nothing.

// An upgradedConn is the client's connection.
type upgradedConn struct {
	net.Conn
	of     *upgradeWriter
	early  []byte      // received after the request; used by the one who reads
	joined atomic.Bool // the tunnel owns the connection
}

// WriteTo is called by the proxy's io.Copy.
func (c *upgradedConn) WriteTo(w io.Writer) (int64, error) {
	b, ok := w.(*upgradedBody)
	if !ok {
		c.of.release()
		c.of.in.copied.Add(1)
	} else if joined, err := b.meet(c); joined || err != nil {
		return 0, err
	}
	return io.Copy(w, struct{ io.Reader }{c})
}

func (c *upgradedConn) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

func (c *upgradedConn) CloseWrite() error {
	if c.joined.Load() {
		return nil
	}
	return parking.CloseWrite(c.Conn)
}

func (c *upgradedConn) Close() error {
	if c.joined.Load() {
		return nil
	}
	return c.Conn.Close()
}

// An upgradedBody is the response's body, which is the backend's connection.
type upgradedBody struct {
	io.ReadWriteCloser // net/http's
	in                 *Tunnels
	conn               net.Conn // below it

	mu     sync.Mutex
	met    chan struct{} // made by the first WriteTo, closed by the second
	joined bool
	closed bool
	err    error // that the tunnel was refused with
}

// WriteTo is called by the proxy's io.Copy.
func (b *upgradedBody) WriteTo(w io.Writer) (int64, error) {
	c, ok := w.(*upgradedConn)
	if !ok {
		b.in.copied.Add(1)
	} else if joined, err := b.meet(c); joined || err != nil {
		return 0, err
	}
	return io.Copy(w, struct{ io.Reader }{b.ReadWriteCloser})
}

// meet waits for the other WriteTo, or makes the tunnel if that waits. It reports whether there is
// one.
func (b *upgradedBody) meet(c *upgradedConn) (joined bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.met == nil {
		b.met = make(chan struct{})
		b.mu.Unlock()
		<-b.met
		b.mu.Lock()
		return b.joined, b.err
	}
	defer close(b.met)
	if !b.closed {
		b.err = b.join(c)
		b.joined = b.err == nil
		c.joined.Store(b.joined)
	}
	return b.joined, b.err
}

// join makes the tunnel.
func (b *upgradedBody) join(c *upgradedConn) error {
	if !c.of.take() {
		return net.ErrClosed // the handler has returned
	}
	received := b.readAhead()
	conn, early := nethttp.Detach(c.Conn, c.early)
	_, err := b.in.joinReserved(conn, b.conn, Options{FromA: early, FromB: received})
	return err
}

// readAhead returns what net/http has read ahead from the backend. A deadline in the past keeps the
// body from reading its connection. An error of the connection is found again by the tunnel.
func (b *upgradedBody) readAhead() (received []byte) {
	b.conn.SetReadDeadline(unwrap.Past)
	buf := tunnelBuffers.Get().(*tunnelBuffer)
	defer tunnelBuffers.Put(buf)
	for {
		n, err := b.Read(buf[:])
		received = append(received, buf[:n]...)
		if n == 0 || err != nil {
			return received
		}
	}
}

func (b *upgradedBody) CloseWrite() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.joined {
		return nil
	}
	return b.ReadWriteCloser.(parking.CloseWriter).CloseWrite()
}

func (b *upgradedBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.joined {
		return nil
	}
	b.closed = true
	return b.ReadWriteCloser.Close()
}
