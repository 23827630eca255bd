package tunnel

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/internal/serving/nethttp"
	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
	"github.com/socknotify/socknotify/park"
)

// Handler returns a handler that joins upgraded connections, such as those of WebSocket, if next is a
// proxy that copies between a connection that it has hijacked and the body of a response with status
// 101. The transport of the proxy must be [Tunnels.RoundTripper], and its requests must have the
// context of those that it serves. The first connection of a tunnel is the client's.
//
// When the copiers of both directions have begun to read, the connections become a tunnel. Both Reads
// return io.EOF, so the proxy returns, and what it does to the connections after that has no effect:
// CloseWrite, Close and deadlines do nothing, and Write fails with net.ErrClosed. What the server has
// read ahead is returned by Read, and not by the bufio.Reader of Hijack. The connection that next
// returns from Hijack may be wrapped, and is then read and written through the wrapper, as [Lot.Park]
// describes, unless it has a method Detach() (net.Conn, []byte). This returns the connection to join
// in its place, and bytes that were received from it and not read; it is called once.
//
// If the connections cannot be joined, the proxy goes on copying, and Stats.Copied counts it. It is
// also left to the proxy if only one direction is read for 5 seconds, if the request has a body, if
// it is one of HTTP/2 or HTTP/3, or if the body of the response is not net/http's own, because
// another transport has wrapped it. Nothing above the RoundTripper may wrap the body, or the
// connection, if it must see the bytes. [Tunnels.ReverseProxy] is a Handler that looks after that.
func (g *Tunnels) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isUpgrade(r) || r.ContentLength != 0 {
			next.ServeHTTP(w, r)
			return
		}
		u := &upgrade{in: g}
		defer u.close()
		next.ServeHTTP(u.wrap(w, r))
	})
}

// RoundTripper returns the transport for the proxy of a [Tunnels.Handler]. It has the connections that
// next makes.
func (g *Tunnels) RoundTripper(next http.RoundTripper) http.RoundTripper {
	return roundTripper{g, next}
}

type roundTripper struct {
	in   *Tunnels
	next http.RoundTripper
}

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(r)
	if err == nil && res.StatusCode == http.StatusSwitchingProtocols {
		t.in.intercept(r.Context(), res)
	}
	return res, err
}

// isUpgrade reports whether a request asks for an upgrade by which its connection can be hijacked.
func isUpgrade(r *http.Request) bool { return r.ProtoMajor == 1 && r.Header.Get("Upgrade") != "" }

// An upgrade is the connection of a request and that of the backend which has answered it with status
// 101, until they are a tunnel or the proxy has returned. The proxy copies from an upgradedConn to an
// upgradedBody and back, by two goroutines. It has nothing more to do with the bytes when both have
// begun to read: none was read before, so none is unwritten. So the second one makes a tunnel of the
// connections below, both reads return the end of the stream, and the methods that the proxy calls
// after that do nothing.
type upgrade struct {
	in   *Tunnels
	conn *upgradedConn // nil before Hijack
	body *upgradedBody // nil if the body of the response is not net/http's own

	// These are of a ReverseProxy.
	strict   bool          // a tunnel is reserved by Hijack, which fails otherwise
	reserved atomic.Bool   // one is
	refused  error         // why none is
	request  *trackedBody  // the body of the request, or nil if it has none
	response io.ReadCloser // the body of the response; nil without one

	mu     sync.Mutex
	first  io.Reader     // the end that was read first
	met    chan struct{} // closed when the state is known; made with first
	closed bool          // the proxy has returned, or has closed an end
	state  atomic.Uint32 // upgradeOpen until it is known; changed under mu
}

const (
	upgradeOpen   = iota
	upgradeJoined // the tunnel owns the connections
	upgradeCopied // the proxy copies
)

// upgradeKey is the key of the upgrade in the context of a request.
type upgradeKey struct{}

// wrap returns what the proxy gets in place of w and r.
func (u *upgrade) wrap(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	return &upgradeWriter{w, u}, r.WithContext(context.WithValue(r.Context(), upgradeKey{}, u))
}

// intercept replaces the body of a response with status 101, if it is net/http's own.
func (g *Tunnels) intercept(ctx context.Context, r *http.Response) {
	u, _ := ctx.Value(upgradeKey{}).(*upgrade)
	if u == nil || u.in != g {
		g.copied.Add(1)
		return
	}
	u.body = nil // of a response before
	body, ok := r.Body.(io.ReadWriteCloser)
	if !ok {
		return // the proxy says so
	}
	conn := nethttp.ConnBelow(body)
	if conn == nil {
		g.copied.Add(1)
		return
	}
	u.body = &upgradedBody{ReadWriteCloser: body, of: u, conn: conn, response: r}
	r.Body = u.body
}

// take reports whether a tunnel is reserved. If one is, the caller must join or release it.
func (u *upgrade) take() bool { return u.reserved.Swap(false) }

// release ends the reservation, if it was not used.
func (u *upgrade) release() {
	if u.take() {
		u.in.group.Release()
	}
}

// reserve reserves a tunnel.
func (u *upgrade) reserve() error {
	err := u.in.group.Reserve(u.in.MaxConns, u.in.prepare)
	u.reserved.Store(err == nil)
	return err
}

// An upgradeWriter gives the proxy an upgradedConn.
type upgradeWriter struct {
	http.ResponseWriter
	of *upgrade
}

// WriteHeader replaces the status with which a ReverseProxy answers if Hijack has failed.
func (w *upgradeWriter) WriteHeader(code int) {
	if why := w.of.refused; code == http.StatusBadGateway && (why == park.ErrMaxConns || why == park.ErrServerClosed) {
		code = http.StatusServiceUnavailable
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *upgradeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	u := w.of
	if u.body == nil && !u.strict {
		return http.NewResponseController(w.ResponseWriter).Hijack()
	}
	if u.request != nil && !u.request.whole.Load() {
		return nil, nil, nethttp.ErrBodyUnread
	}
	if u.strict {
		if u.refused = u.reserve(); u.refused != nil {
			return nil, nil, u.refused
		}
	}
	conn, rw, early, err := nethttp.Hijack(w.ResponseWriter)
	if err != nil {
		return nil, nil, err
	}
	u.conn = &upgradedConn{Conn: conn, of: u, early: early}
	if rw != nil {
		u.conn.writer = rw.Writer
		rw.Reader.Reset(u.conn)
	}
	if u.body == nil {
		u.state.Store(upgradeCopied) // intercept has counted it
		u.release()
	}
	return u.conn, rw, nil
}

// meetTime is how long a copier waits for the other one.
const meetTime = 5 * time.Second

// meet is called before an end is read. It waits until the other end is read, too, and makes the
// tunnel. It reports whether there is one.
func (u *upgrade) meet(end io.Reader) (joined bool) {
	if s := u.state.Load(); s != upgradeOpen {
		return s == upgradeJoined
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.state.Load() != upgradeOpen:
	case u.first == nil:
		u.first, u.met = end, make(chan struct{})
		u.mu.Unlock()
		timer := clock.Current().AfterFunc(meetTime, u.giveUp)
		<-u.met
		timer.Stop()
		u.mu.Lock()
	case u.first != end:
		u.decide()
	default:
		u.copy() // two goroutines read one end
	}
	return u.state.Load() == upgradeJoined
}

// giveUp leaves the connections to the proxy, of which only one end is read.
func (u *upgrade) giveUp() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.copy()
}

// decide makes the tunnel, or leaves the connections to the proxy. The caller holds mu.
func (u *upgrade) decide() {
	if !u.closed && (u.strict || u.reserve() == nil) && u.take() &&
		u.in.group.Log.Guard(u.conn.Conn, u.join) == nil {
		u.state.Store(upgradeJoined)
		close(u.met)
	} else {
		u.copy()
	}
}

// copy leaves the connections to the proxy, unless their state is known. The caller holds mu.
func (u *upgrade) copy() {
	if u.state.Load() != upgradeOpen {
		return
	}
	u.state.Store(upgradeCopied)
	u.release()
	if u.met != nil {
		close(u.met)
	}
	if !u.closed {
		u.in.copied.Add(1)
	}
}

var errUnwritten = errors.New("tunnel: the proxy has not flushed the hijacked connection")

// join makes the tunnel, which was reserved. If it fails, the ends can be read and written as before.
func (u *upgrade) join() error {
	c, b, begun, joined := u.conn, u.body, false, false
	conn, early := c.Conn, c.early
	defer func() { // also after a panic
		if !begun {
			u.in.group.Release()
		}
		if !joined {
			c.Conn, c.early = conn, early
			b.conn.SetReadDeadline(time.Time{})
		}
	}()
	if c.writer != nil && c.writer.Buffered() > 0 {
		return errUnwritten
	}
	b.readAhead()
	conn, early = nethttp.Detach(conn, early)
	begun = true
	_, err := u.in.joinReserved(conn, b.conn, Options{FromA: early, FromB: b.early, upgraded: b.response})
	joined = err == nil
	return err
}

// close reports whether an end may be closed. If so, there will be no tunnel.
func (u *upgrade) close() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	u.copy()
	return u.state.Load() != upgradeJoined
}

// joined reports whether the tunnel owns the connections. It waits for one that is being made.
func (u *upgrade) joined() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.state.Load() == upgradeJoined
}

// An upgradedConn is the client's connection.
type upgradedConn struct {
	net.Conn
	of     *upgrade
	early  []byte        // received after the request; used by the one who reads
	writer *bufio.Writer // of Hijack, or nil
}

// WriteTo is called by io.Copy.
func (c *upgradedConn) WriteTo(w io.Writer) (int64, error) {
	if c.of.meet(c) {
		return 0, nil
	}
	return io.Copy(w, struct{ io.Reader }{c})
}

func (c *upgradedConn) Read(p []byte) (n int, err error) {
	if c.of.meet(c) {
		return 0, io.EOF
	}
	if len(c.early) > 0 {
		n, c.early = takeFrom(c.early, p)
		return n, nil
	}
	return c.Conn.Read(p)
}

func (c *upgradedConn) Write(p []byte) (int, error) {
	if c.of.joined() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *upgradedConn) CloseWrite() error {
	if c.of.joined() {
		return nil
	}
	return parking.CloseWrite(c.Conn)
}

func (c *upgradedConn) Close() error {
	if !c.of.close() {
		return nil
	}
	return c.Conn.Close()
}

func (c *upgradedConn) SetDeadline(t time.Time) error      { return c.set(c.Conn.SetDeadline, t) }
func (c *upgradedConn) SetReadDeadline(t time.Time) error  { return c.set(c.Conn.SetReadDeadline, t) }
func (c *upgradedConn) SetWriteDeadline(t time.Time) error { return c.set(c.Conn.SetWriteDeadline, t) }

func (c *upgradedConn) set(deadline func(time.Time) error, t time.Time) error {
	if c.of.joined() {
		return nil
	}
	return deadline(t)
}

// An upgradedBody is the response's body, which is the backend's connection.
type upgradedBody struct {
	io.ReadWriteCloser // net/http's
	of                 *upgrade
	conn               net.Conn // below it
	response           *http.Response
	early              []byte // read ahead by net/http, for a tunnel that was refused; used by the one who reads
}

// WriteTo is called by io.Copy.
func (b *upgradedBody) WriteTo(w io.Writer) (int64, error) {
	if b.of.meet(b) {
		return 0, nil
	}
	return io.Copy(w, struct{ io.Reader }{b})
}

func (b *upgradedBody) Read(p []byte) (n int, err error) {
	if b.of.meet(b) {
		return 0, io.EOF
	}
	if len(b.early) > 0 {
		n, b.early = takeFrom(b.early, p)
		return n, nil
	}
	return b.ReadWriteCloser.Read(p)
}

func (b *upgradedBody) Write(p []byte) (int, error) {
	if b.of.joined() {
		return 0, net.ErrClosed
	}
	return b.ReadWriteCloser.Write(p)
}

func (b *upgradedBody) CloseWrite() error {
	if b.of.joined() {
		return nil
	}
	return b.ReadWriteCloser.(parking.CloseWriter).CloseWrite()
}

func (b *upgradedBody) Close() error {
	if !b.of.close() {
		return nil
	}
	return b.ReadWriteCloser.Close()
}

// readAhead reads what net/http has read ahead from the backend. A deadline in the past keeps the
// body from reading its connection. An error of the connection is found again by the tunnel.
func (b *upgradedBody) readAhead() {
	b.conn.SetReadDeadline(unwrap.Past)
	buf := tunnelBuffers.Get().(*tunnelBuffer)
	defer tunnelBuffers.Put(buf)
	for {
		n, err := b.ReadWriteCloser.Read(buf[:])
		b.early = append(b.early, buf[:n]...)
		if n == 0 || err != nil {
			return
		}
	}
}

// takeFrom copies bytes to p, and returns their number and the rest.
func takeFrom(b, p []byte) (int, []byte) {
	n := copy(p, b)
	return n, b[n:]
}
