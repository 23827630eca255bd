package http2

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/tunnel"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/sockettest"
	"github.com/socknotify/socknotify/internal/test/testclock"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/park/http2/internal/flow"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// A forward is a forward proxy, and a host to which it connects.
type forward struct {
	*tunnel.Tunnels
	proxy  *tunnel.ConnectProxy
	http2  *Server
	host   net.Listener
	closed chan error // what OnClose gets
	url    string
	// extended makes open send an extended CONNECT request (RFC 8441), whose handler connects to
	// the host, calls dialed, and joins.
	extended bool
	dialed   func(*http.Request)
}

// serveTunnels starts a forward proxy that lets every client connect to its host. set changes it
// before.
func serveTunnels(t testing.TB, tunnels *tunnel.Tunnels, hs *http.Server, secure bool,
	set ...func(*forward)) *forward {
	host, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { host.Close() })
	x := &forward{Tunnels: tunnels, host: host, closed: make(chan error, 100_000)}
	tunnels.OnClose = func(_ *tunnel.Tunnel, err error) { x.closed <- err }
	x.proxy = &tunnel.ConnectProxy{Tunnels: tunnels, Inside: []string{"127.0.0.1"},
		Ports: []int{host.Addr().(*net.TCPAddr).Port},
		Allow: func(*http.Request, netip.AddrPort) bool { return true }}
	hs.Handler = http.HandlerFunc(x.serveHTTP)
	x.http2 = &Server{Linger: -1, Server: hs}
	for _, f := range set {
		f(x)
	}
	x.http2.ExtendedConnect = x.http2.ExtendedConnect || x.extended
	x.url = serve(t, x.http2, secure)
	t.Cleanup(func() {
		tunnels.Close()
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		must(t, tunnels.Shutdown(ctx))
		if st := tunnels.Stats(); st.Conns != 0 || st.Parked != 0 || st.QueuedBytes != 0 {
			t.Errorf("left behind: %+v", st)
		}
	})
	return x
}

// extended makes a forward's open send extended CONNECT requests.
func extended(x *forward) { x.extended = true }

func (x *forward) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if !x.extended || r.Header[":protocol"] == nil {
		x.proxy.ServeHTTP(w, r)
		return
	}
	host, err := net.Dial("tcp", x.host.Addr().String())
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	if x.dialed != nil {
		x.dialed(r)
	}
	if _, err := x.JoinResponse(w, host, tunnel.Options{}); err != nil {
		host.Close()
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// connect writes a CONNECT request for the host.
func (x *forward) connect(p *peer, stream uint32) {
	if x.extended {
		p.extended(stream, "/")
	} else {
		p.connectTo(stream, x.host.Addr().String())
	}
}

// connectTo writes a CONNECT request.
func (p *peer) connectTo(stream uint32, target string, more ...string) {
	p.openPart(stream, false, true, append([]string{":method", "CONNECT", ":authority", target}, more...)...)
}

// open opens a tunnel, and returns the host's end of it.
func (x *forward) open(t testing.TB, p *peer, stream uint32) *net.TCPConn {
	t.Helper()
	x.connect(p, stream)
	must(t, p.send())
	p.want(fmt.Sprint(stream, " status 200"))
	return x.accept(t)
}

func (x *forward) accept(t testing.TB) *net.TCPConn {
	t.Helper()
	conn, err := x.host.Accept()
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(timeout))
	return conn.(*net.TCPConn)
}

// waits waits until so many sides of tunnels are parked, and all connections below them. A side
// whose host has ended its stream is not parked.
func (x *forward) waits(t testing.TB, sides, conns int) {
	t.Helper()
	until(t, "everything is parked", func() bool {
		st := x.Stats()
		return st.Parked == sides && st.Running == 0 && x.http2.Stats().Parked == conns
	})
}

// ends waits for OnClose.
func (x *forward) ends(t testing.TB) error {
	t.Helper()
	return await.Receive(t, "OnClose", x.closed)
}

// say sends data on a tunnel.
func (p *peer) data(stream uint32, end bool, text string) {
	p.t.Helper()
	p.WriteData(stream, end, []byte(text))
	must(p.t, p.send())
}

// wantText reads as many bytes as text has.
func wantText(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	b := make([]byte, len(text))
	if n, err := io.ReadFull(conn, b); err != nil || string(b) != text {
		t.Fatalf("got %q, %v, want %q", b[:n], err, text)
	}
}

func sendText(t testing.TB, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	must(t, err)
}

// reset makes the system send RST.
func reset(conn *net.TCPConn) {
	conn.SetLinger(0)
	conn.Close()
}

// restOf reads to the end, and says what that is.
func restOf(conn net.Conn) string {
	b, err := io.ReadAll(conn)
	switch {
	case err == nil:
		return fmt.Sprintf("%q, EOF", b)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.Errno(10054)): // WSAECONNRESET
		return fmt.Sprintf("%q, reset", b)
	}
	return fmt.Sprintf("%q, %v", b, err)
}

func isReset(code http2.ErrCode) func(error) bool {
	return func(err error) bool {
		var e http2.StreamError
		return errors.As(err, &e) && e.Code == code
	}
}

func isConnError(code http2.ErrCode) func(error) bool {
	return func(err error) bool {
		var e http2.ConnectionError
		return errors.As(err, &e) && http2.ErrCode(e) == code
	}
}

func isError(want error) func(error) bool {
	return func(err error) bool { return errors.Is(err, want) }
}

// A tunnel needs no goroutine over HTTP/2: its stream, its backend's connection, and the connection
// below the stream are parked. Bytes go to and fro in any pieces, also those that a client sends
// before it has the answer.
func TestTunnels(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		x := serveTunnels(t, new(tunnel.Tunnels), new(http.Server), secure)
		p := dial(t, x.url)
		const tunnels = 100
		p.connectTo(1, x.host.Addr().String())
		p.WriteData(1, false, []byte("early, "))
		must(t, p.send())
		p.want("1 status 200")
		first := x.accept(t)
		wantText(t, first, "early, ")
		x.waits(t, 2, 1)
		before := runtime.NumGoroutine()
		hosts := []*net.TCPConn{first}
		for i := range tunnels - 1 {
			hosts = append(hosts, x.open(t, p, id(i+1)))
		}
		x.waits(t, 2*tunnels, 1)
		until(t, "there are no more goroutines than before", func() bool { return runtime.NumGoroutine() <= before+8 })
		for range 3 {
			for i, host := range hosts {
				for _, part := range []string{"a", "bc"} {
					p.data(id(i), false, part)
					wantText(t, host, part)
					sendText(t, host, part)
					p.want(fmt.Sprintf("%d data %q end false", id(i), part))
				}
			}
			x.waits(t, 2*tunnels, 1)
		}
		until(t, "there are no more goroutines than before", func() bool { return runtime.NumGoroutine() <= before+8 })
		st := x.Stats()
		if want := uint64(9*tunnels + len("early, ")); st.BytesForth != want || st.BytesBack != want-7 {
			t.Errorf("%d bytes forth, %d back", st.BytesForth, st.BytesBack)
		}
		for i, host := range hosts {
			p.data(id(i), true, "")
			wantRestOf(t, host, `"", EOF`)
			host.Close()
			p.want(fmt.Sprintf("%d data %q end true", id(i), ""))
			if err := x.ends(t); err != nil {
				t.Errorf("OnClose got %v", err)
			}
		}
		p.synced()
	})
}

func wantRestOf(t testing.TB, conn net.Conn, want string) {
	t.Helper()
	if got := restOf(conn); got != want {
		t.Errorf("the host got %s, want %s", got, want)
	}
}

// A tunnelCase is something that happens to a tunnel on stream 1, after a byte each way.
type tunnelCase struct {
	name string
	act  func(t *testing.T, x *forward, p *peer, host *net.TCPConn)
	// client are the frames that the client gets, and host is what the host reads, with the end of
	// its stream.
	client []string
	host   string
	cause  func(error) bool // of OnClose
	over   bool             // the client's connection has ended
}

var tunnelCases = []tunnelCase{
	{name: "the client ends its stream first",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.data(1, true, "question")
			wantText(t, host, "question")
			sendText(t, host, "answer")
			p.want(`1 data "answer" end false`)
			must(t, host.CloseWrite())
		}, client: []string{`1 data "" end true`}, host: `"", EOF`, cause: isError(nil)},
	{name: "the host ends its stream first",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			sendText(t, host, "all")
			p.want(`1 data "all" end false`)
			must(t, host.CloseWrite())
			p.want(`1 data "" end true`)
			x.waits(t, 1, 1)
			p.data(1, false, "much")
			p.data(1, true, "")
		}, host: `"much", EOF`, cause: isError(nil)},
	{name: "END_STREAM with the last bytes",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.data(1, true, "last")
			must(t, host.CloseWrite())
		}, client: []string{`1 data "" end true`}, host: `"last", EOF`, cause: isError(nil)},
	{name: "the host closes",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			x.waits(t, 2, 1)
			host.Close()
			p.want(`1 data "" end true`)
			p.data(1, true, "")
		}, cause: isError(nil)},
	{name: "the host resets",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			x.waits(t, 2, 1)
			reset(host)
		}, client: []string{"1 reset CONNECT_ERROR"}, cause: isError(syscall.ECONNRESET)},
	{name: "the host resets after the client has ended its stream",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.data(1, true, "")
			wantRestOf(t, host, `"", EOF`)
			x.waits(t, 2, 1)
			reset(host)
		}, client: []string{"1 reset CONNECT_ERROR"}, cause: isError(syscall.ECONNRESET)},
	{name: "the client resets",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			x.waits(t, 2, 1)
			p.WriteRSTStream(1, http2.ErrCodeCancel)
			must(t, p.send())
		}, host: `"", reset`, cause: isReset(http2.ErrCodeCancel)},
	{name: "the client resets with NO_ERROR",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.WriteRSTStream(1, http2.ErrCodeNo)
			must(t, p.send())
		}, host: `"", reset`, cause: isReset(http2.ErrCodeNo)},
	{name: "the client resets after it has ended its stream",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.data(1, true, "x")
			wantText(t, host, "x")
			x.waits(t, 2, 1)
			p.WriteRSTStream(1, http2.ErrCodeConnect)
			must(t, p.send())
			until(t, "the tunnel has ended", func() bool { return x.Stats().Conns == 0 })
		}, host: `"", EOF`, cause: isReset(http2.ErrCodeConnect)},
	{name: "the client resets after the host has ended its stream",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			must(t, host.CloseWrite())
			p.want(`1 data "" end true`)
			x.waits(t, 1, 1)
			p.WriteRSTStream(1, http2.ErrCodeCancel)
			must(t, p.send())
		}, host: `"", reset`, cause: isReset(http2.ErrCodeCancel)},
	{name: "the client breaks its stream",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.WriteWindowUpdate(1, flow.Max)
			must(t, p.send())
		}, client: []string{"1 reset FLOW_CONTROL_ERROR"}, host: `"", reset`,
		cause: isReset(http2.ErrCodeFlowControl)},
	{name: "the client opens its stream's window by 0",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			x.waits(t, 2, 1)
			p.WriteWindowUpdate(1, 0)
			must(t, p.send())
		}, client: []string{"1 reset PROTOCOL_ERROR"}, host: `"", reset`,
		cause: isReset(http2.ErrCodeProtocol)},
	{name: "the client opens its connection's window by 0",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.WriteWindowUpdate(0, 0)
			must(t, p.send())
		}, client: []string{"goaway 1 PROTOCOL_ERROR", "the end"}, over: true, host: `"", reset`,
		cause: isConnError(http2.ErrCodeProtocol)},
	{name: "the client opens its connection's window too far",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			x.waits(t, 2, 1)
			p.WriteWindowUpdate(0, flow.Max)
			must(t, p.send())
		}, client: []string{"goaway 1 FLOW_CONTROL_ERROR", "the end"}, over: true, host: `"", reset`,
		cause: isConnError(http2.ErrCodeFlowControl)},
	{name: "settings open the windows too far",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.WriteWindowUpdate(1, flow.Max-flow.Initial)
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: flow.Initial + 1})
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: flow.Initial + 2})
			must(t, p.send())
		}, client: []string{"goaway 1 FLOW_CONTROL_ERROR", "the end"}, over: true, host: `"", reset`,
		cause: isConnError(http2.ErrCodeFlowControl)},
	{name: "settings close the windows",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}) // 1 byte was sent
			p.synced()
			sendText(t, host, "held")
			until(t, "the tunnel is held back", func() bool { return x.Stats().QueuedBytes == 4 })
			p.WriteWindowUpdate(1, 1)
			p.synced()
			p.WriteWindowUpdate(1, 3)
			must(t, p.send())
			p.want(`1 data "hel" end false`)
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
			must(t, p.send())
			p.want(`1 data "d" end false`)
			p.data(1, true, "")
			must(t, host.CloseWrite())
		}, client: []string{`1 data "" end true`}, host: `"", EOF`, cause: isError(nil)},
	{name: "trailers",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.openPart(1, true, true, "a", "b")
			must(t, p.send())
		}, client: []string{"1 reset PROTOCOL_ERROR"}, host: `"", reset`,
		cause: isReset(http2.ErrCodeProtocol)},
	{name: "headers that do not end the stream",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			x.waits(t, 2, 1)
			p.openPart(1, false, true, "a", "b")
			must(t, p.send())
		}, client: []string{"1 reset PROTOCOL_ERROR"}, host: `"", reset`,
		cause: isReset(http2.ErrCodeProtocol)},
	{name: "trailers after the end of the client's stream",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.data(1, true, "x")
			wantRestOf(t, host, `"x", EOF`)
			p.openPart(1, true, true, "a", "b")
			must(t, p.send())
		}, client: []string{"1 reset STREAM_CLOSED"}, cause: isReset(http2.ErrCodeStreamClosed)},
	{name: "DATA after the end of the client's stream",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.data(1, true, "x")
			wantRestOf(t, host, `"x", EOF`)
			x.waits(t, 2, 1)
			p.data(1, false, "y")
		}, client: []string{"1 reset STREAM_CLOSED"}, cause: isReset(http2.ErrCodeStreamClosed)},
	{name: "DATA after the end of both streams",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.data(1, true, "x")
			wantRestOf(t, host, `"x", EOF`)
			host.Close()
			p.want(`1 data "" end true`)
			p.data(1, false, "y")
		}, client: []string{"1 reset STREAM_CLOSED"}, cause: isError(nil)},
	{name: "frames that mean nothing",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			for range 3 {
				x.waits(t, 2, 1)
				p.WriteData(1, false, nil)
				p.WriteDataPadded(1, false, nil, make([]byte, 255))
				p.WritePriority(1, http2.PriorityParam{StreamDep: 3, Weight: 7})
				p.WriteRawFrame(99, 0xff, 1, []byte("unknown"))
				p.synced()
			}
			p.WriteDataPadded(1, false, []byte("to"), make([]byte, 7))
			must(t, p.send())
			wantText(t, host, "to")
			p.WriteDataPadded(1, true, nil, make([]byte, 255))
			must(t, p.send())
			must(t, host.CloseWrite())
		}, client: []string{`1 data "" end true`}, host: `"", EOF`, cause: isError(nil)},
	{name: "the client's connection ends",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			x.waits(t, 2, 1)
			p.conn.Close()
		}, host: `"", reset`, cause: isError(net.ErrClosed), over: true},
	{name: "the client's connection breaks a rule",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.WriteData(0, false, nil)
			must(t, p.send())
		}, client: []string{"goaway 1 PROTOCOL_ERROR", "the end"}, over: true, host: `"", reset`,
		cause: isConnError(http2.ErrCodeProtocol)},
	{name: "the client sends GOAWAY",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			p.WriteGoAway(0, http2.ErrCodeNo, nil)
			p.data(1, false, "to")
			wantText(t, host, "to")
			sendText(t, host, "fro")
			p.want(`1 data "fro" end false`)
			p.data(1, true, "")
			must(t, host.CloseWrite())
		}, client: []string{`1 data "" end true`}, host: `"", EOF`, cause: isError(nil)},
	{name: "the HTTP/2 server shuts down",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			done := make(chan error, 1)
			go func() { done <- x.http2.Shutdown(context.Background()) }()
			p.want("goaway 1 NO_ERROR")
			x.waits(t, 2, 1)
			x.connect(p, 3) // it is not begun
			p.data(1, false, "to")
			wantText(t, host, "to")
			sendText(t, host, "fro")
			p.want(`1 data "fro" end false`)
			p.data(1, true, "")
			must(t, host.CloseWrite())
			p.want(`1 data "" end true`)
			must(t, await.Receive(t, "the end of Shutdown", done))
		}, client: []string{"the end"}, over: true, host: `"", EOF`, cause: isError(nil)},
	{name: "the HTTP/2 server is closed",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) { x.http2.Close() },
		// The client's stream is cut by the end of the connection.
		client: []string{"the end"}, over: true, host: `"", reset`, cause: isError(net.ErrClosed)},
	{name: "Shutdown, for which there is time",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			done := make(chan error, 1)
			go func() { done <- x.Shutdown(context.Background()) }()
			until(t, "tunnels are refused", func() bool {
				other := dial(t, x.url)
				defer other.conn.Close()
				x.connect(other, 1)
				must(t, other.send())
				got := other.next()
				x.accept(t).Close()
				return got == "1 status 503"
			})
			p.data(1, true, "to")
			wantText(t, host, "to")
			must(t, host.CloseWrite())
			must(t, await.Receive(t, "the end of Shutdown", done))
		}, client: []string{`1 data "" end true`}, host: `"", EOF`, cause: isError(nil)},
	{name: "Shutdown, whose time is over",
		act: func(t *testing.T, x *forward, p *peer, host *net.TCPConn) {
			x.waits(t, 2, 1)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := x.Shutdown(ctx); err != context.Canceled {
				t.Errorf("Shutdown: %v", err)
			}
		}, client: []string{"1 reset CONNECT_ERROR"}, host: `"", reset`, cause: isError(park.ErrServerClosed)},
}

// What happens to one side of a tunnel over HTTP/2 is passed to the other, as RFC 9113 (8.5) and
// RFC 8441 (5) ask. The other streams of the connection go on.
func TestTunnelOutcomes(t *testing.T) {
	for _, c := range tunnelCases {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, secure bool) { c.test(t, secure) })
			t.Run("extended", func(t *testing.T) { c.test(t, false, extended) })
		})
	}
}

func (c *tunnelCase) test(t *testing.T, secure bool, set ...func(*forward)) {
	x := serveTunnels(t, new(tunnel.Tunnels), new(http.Server), secure, set...)
	p := dial(t, x.url)
	host := x.open(t, p, 1)
	p.data(1, false, "x")
	wantText(t, host, "x")
	sendText(t, host, "y")
	p.want(`1 data "y" end false`)
	c.act(t, x, p, host)
	for _, want := range c.client {
		if x.extended {
			want = strings.Replace(want, "CONNECT_ERROR", "CANCEL", 1)
		}
		p.want(want)
	}
	if err := x.ends(t); !c.cause(err) {
		t.Errorf("OnClose got %v", err)
	}
	if c.host != "" {
		wantRestOf(t, host, c.host)
	}
	if !c.over {
		p.synced()
	}
}

// An idle tunnel ends by its timeouts, and both sides have got everything.
func TestTunnelTimeouts(t *testing.T) {
	for _, c := range []struct {
		name    string
		tunnels *tunnel.Tunnels
		half    bool
	}{
		{"idle", &tunnel.Tunnels{IdleTimeout: 50 * time.Millisecond}, false},
		{"half-closed", &tunnel.Tunnels{IdleTimeout: timeout, HalfCloseTimeout: 50 * time.Millisecond}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := testclock.Install(t)
			x := serveTunnels(t, c.tunnels, new(http.Server), false)
			p := dial(t, x.url)
			host := x.open(t, p, 1)
			x.waits(t, 2, 1)
			if c.half {
				p.data(1, true, "last")
				wantRestOf(t, host, `"last", EOF`)
				x.waits(t, 2, 1)
			}
			until(t, "the tunnel has ended", func() bool {
				clock.Advance(100 * time.Millisecond)
				return len(x.closed) > 0
			})
			p.want(`1 data "" end true`)
			if !c.half {
				p.want("1 reset NO_ERROR")
			}
			if err := x.ends(t); err != park.ErrIdle {
				t.Errorf("OnClose got %v", err)
			}
			if !c.half {
				wantRestOf(t, host, `"", EOF`)
			}
		})
	}
}

// dataOf reads DATA frames of a stream until it has n bytes, and checks them.
func (p *peer) dataOf(stream uint32, at, n int) {
	p.t.Helper()
	for got := 0; got < n; {
		f, err := p.ReadFrame()
		must(p.t, err)
		switch f := f.(type) {
		case *http2.DataFrame:
			if !bytes.Equal(f.Data(), sockettest.Sequence(at+got, len(f.Data()))) || f.StreamID != stream {
				p.t.Fatalf("stream %d: other bytes after %d", f.StreamID, at+got)
			}
			got += len(f.Data())
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			p.t.Fatal(f)
		}
	}
}

// The window of a client that reads slowly holds the host back. Nothing but what the tunnel has
// received is kept then, and no goroutine. All bytes arrive when the window opens, by any steps.
func TestTunnelOfSlowClient(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		x := serveTunnels(t, new(tunnel.Tunnels), new(http.Server), secure)
		p := dial(t, x.url)
		host := x.open(t, p, 1)
		x.waits(t, 2, 1)
		before := runtime.NumGoroutine()
		const size = 9 << 20
		sent := make(chan error, 1)
		go func() {
			_, err := host.Write(sockettest.Sequence(0, size))
			host.CloseWrite()
			sent <- err
		}()
		p.dataOf(1, 0, flow.Initial)
		until(t, "the tunnel is held back", func() bool {
			st := x.Stats()
			return st.QueuedBytes > 0 && st.Parked == 1 && st.Running == 0 && x.http2.Stats().Parked == 1
		})
		if st := x.Stats(); st.QueuedBytes > 32<<10 {
			t.Errorf("%d bytes are queued", st.QueuedBytes)
		}
		until(t, "there are no more goroutines than before", func() bool { return runtime.NumGoroutine() <= before+3 })
		at := flow.Initial
		for step := 1; at < size; step = min(3*step, size-at) {
			p.WriteWindowUpdate(1, uint32(step))
			p.WriteWindowUpdate(0, uint32(step))
			must(t, p.send())
			p.dataOf(1, at, step)
			at += step
		}
		p.want(`1 data "" end true`)
		must(t, await.Receive(t, "the end of Write", sent))
		p.data(1, true, "")
		if err := x.ends(t); err != nil {
			t.Errorf("OnClose got %v", err)
		}
	})
}

// A host that does not read holds its client back, by the window of the stream, and no other tunnel
// of the connection if that window is smaller than that of the connection. All bytes arrive when it
// reads.
func TestTunnelOfSlowHost(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		const window = 64 << 10
		x := serveTunnels(t, new(tunnel.Tunnels), &http.Server{
			HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: window}}, secure)
		p := dial(t, x.url)
		slow := x.open(t, p, 1)
		fast := x.open(t, p, 3)
		x.waits(t, 4, 1)
		before := runtime.NumGoroutine()
		var sent, credit int = 0, window
		// grant reads frames until the client may send on the stream, or a PING is answered.
		grant := func() bool {
			p.WritePing(false, [8]byte{1})
			must(t, p.send())
			for {
				f, err := p.ReadFrame()
				must(t, err)
				switch f := f.(type) {
				case *http2.WindowUpdateFrame:
					if f.StreamID == 1 {
						credit += int(f.Increment)
					}
				case *http2.PingFrame:
					return credit > 0
				default:
					t.Fatal(f)
				}
			}
		}
		for full := false; !full; {
			for credit > 0 {
				n := min(credit, wire.MaxSize)
				p.WriteData(1, false, sockettest.Sequence(sent, n))
				must(t, p.send())
				sent, credit = sent+n, credit-n
			}
			until(t, "the tunnel goes on, or is held back", func() bool {
				st := x.Stats() // before the client is asked
				full = !grant() && st.Running == 0 && st.QueuedBytes > 0
				return full || credit > 0
			})
		}
		if st := x.Stats(); st.QueuedBytes > 32<<10 {
			t.Errorf("%d bytes are queued", st.QueuedBytes)
		}
		until(t, "there are no more goroutines than before", func() bool { return runtime.NumGoroutine() <= before+3 })
		p.data(3, false, "beside it")
		wantText(t, fast, "beside it")
		sendText(t, fast, "as well")
		for f := ""; f != `3 data "as well" end false`; f = p.next() {
			if f != "" && f != "PING" {
				t.Fatal(f)
			}
		}
		all := sent + 1<<20
		done := make(chan error, 1)
		go func() {
			b, err := io.ReadAll(slow)
			if err == nil && !bytes.Equal(b, sockettest.Sequence(0, len(b))) {
				err = errors.New("other bytes")
			}
			if err == nil && len(b) != all {
				err = fmt.Errorf("%d bytes", len(b))
			}
			done <- err
		}()
		for sent < all {
			for credit > 0 && sent < all {
				n := min(credit, wire.MaxSize, all-sent)
				p.WriteData(1, false, sockettest.Sequence(sent, n))
				must(t, p.send())
				sent, credit = sent+n, credit-n
			}
			grant()
		}
		p.data(1, true, "")
		must(t, await.Receive(t, "the end of Read", done))
	})
}

// Tunnels whose client never opens a window keep what they have received, 32 KiB each at most, and
// no goroutine. Others go on, on the same connection and on another.
func TestTunnelsOfBlockedClient(t *testing.T) {
	const blocked = 100
	x := serveTunnels(t, new(tunnel.Tunnels), new(http.Server), false)
	p, other := dial(t, x.url), dial(t, x.url)
	p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	good := x.open(t, p, 1)
	beside := x.open(t, other, 1)
	x.waits(t, 4, 2)
	before, heap := runtime.NumGoroutine(), liveHeap()
	var writers sync.WaitGroup
	for i := range blocked {
		host := x.open(t, p, id(i+1))
		host.SetWriteBuffer(64 << 10)
		writers.Go(func() {
			for err := error(nil); err == nil; {
				_, err = host.Write(big[:])
			}
		})
	}
	until(t, "all are held back", func() bool {
		st := x.Stats() // hosts that are held back are not parked
		return st.Parked == blocked+4 && st.Running == 0
	})
	if n := x.Stats().QueuedBytes; n == 0 || n > blocked*32<<10 {
		t.Errorf("%d bytes are queued", n)
	}
	until(t, "there are no more goroutines than those of the hosts", func() bool {
		return runtime.NumGoroutine() <= before+blocked+8
	})
	if n := liveHeap() - heap; n > blocked*48<<10 {
		t.Errorf("%d live bytes", n)
	}
	p.WriteWindowUpdate(1, 100)
	for range 3 {
		for _, c := range []struct {
			p    *peer
			host *net.TCPConn
		}{{p, good}, {other, beside}} {
			c.p.data(1, false, "question")
			wantText(t, c.host, "question")
			sendText(t, c.host, "answer")
			c.p.want(`1 data "answer" end false`)
		}
	}
	p.WriteWindowUpdate(3, 5)
	must(t, p.send())
	p.want(fmt.Sprintf("3 data %q end false", big[:5]))
	p.conn.Close()
	for range blocked + 1 {
		if err := x.ends(t); !errors.Is(err, net.ErrClosed) {
			t.Errorf("OnClose got %v", err)
		}
	}
	writers.Wait()
	other.synced()
}

// credit reads frames until a PING is answered, and returns by how much the stream's window was
// opened.
func (p *peer) credit(stream uint32) (n int) {
	p.t.Helper()
	p.WritePing(false, [8]byte{})
	must(p.t, p.send())
	for {
		f, err := p.ReadFrame()
		must(p.t, err)
		switch f := f.(type) {
		case *http2.SettingsFrame:
		case *http2.WindowUpdateFrame:
			if f.StreamID == stream {
				n += int(f.Increment)
			}
		case *http2.PingFrame:
			return n
		default:
			p.t.Fatal(f)
		}
	}
}

// Padding counts for the windows (RFC 9113, 6.1), and is returned as the data is, so that a client
// can send any number of frames with much of it and little or no data.
func TestTunnelPadding(t *testing.T) {
	for name, set := range map[string][]func(*forward){"CONNECT": nil, "extended": {extended}} {
		t.Run(name, func(t *testing.T) {
			const window = 1000
			x := serveTunnels(t, new(tunnel.Tunnels), &http.Server{
				HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: window}}, false, set...)
			p := dial(t, x.url)
			host := x.open(t, p, 1)
			sent, credit := 0, window
			send := func(data, padding int) {
				p.WriteDataPadded(1, false, sockettest.Sequence(sent, data), make([]byte, padding))
				must(t, p.send())
				sent, credit = sent+data, credit-(1+data+padding)
			}
			for i := range 300 {
				for want := 1 + i%3 + 255 - i%7; credit < want; {
					credit += p.credit(1)
				}
				send(i%3, 255-i%7)
				wantText(t, host, string(sockettest.Sequence(sent-i%3, i%3)))
			}
			if credit += p.credit(1); credit <= window/2 || credit > window {
				t.Fatalf("the client may send %d of %d bytes", credit, window)
			}
			n := credit - 1 - 200
			send(n, 200) // all that it may
			wantText(t, host, string(sockettest.Sequence(sent-n, n)))
			credit += p.credit(1)
			send(credit-200, 200) // one byte more
			p.want("1 reset FLOW_CONTROL_ERROR")
			if err := x.ends(t); !isReset(http2.ErrCodeFlowControl)(err) {
				t.Errorf("OnClose got %v", err)
			}
			wantRestOf(t, host, `"", reset`)
			p.synced()
		})
	}
}

// A tunnel whose two directions are busy ends in each way. Both ends notice it, what they have got
// until then is right, and another tunnel of the connection goes on unless it ends too.
func TestTunnelEndsWhileBusy(t *testing.T) {
	lost := func(err error) bool {
		return errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) ||
			errors.Is(err, syscall.EPIPE)
	}
	for _, c := range []struct {
		name  string
		act   func(x *forward, p *peer, host *net.TCPConn)
		want  string           // the last frame for the tunnel, or for its connection
		cause func(error) bool // of OnClose
		both  bool             // both tunnels end
	}{
		{"the client resets", func(_ *forward, p *peer, _ *net.TCPConn) {
			p.WriteRSTStream(1, http2.ErrCodeCancel)
			p.WritePing(false, mark)
		}, "PING", isReset(http2.ErrCodeCancel), false},
		{"the host resets", func(_ *forward, _ *peer, host *net.TCPConn) { reset(host) },
			"1 reset CONNECT_ERROR", lost, false},
		{"headers", func(_ *forward, p *peer, _ *net.TCPConn) { p.openPart(1, true, true, "a", "b") },
			"1 reset PROTOCOL_ERROR", isReset(http2.ErrCodeProtocol), false},
		{"a window of 0", func(_ *forward, p *peer, _ *net.TCPConn) { p.WriteWindowUpdate(1, 0) },
			"1 reset PROTOCOL_ERROR", isReset(http2.ErrCodeProtocol), false},
		{"DATA after the end", func(_ *forward, p *peer, _ *net.TCPConn) {
			p.WriteData(1, true, nil)
			p.WriteData(1, true, nil)
		}, "1 reset STREAM_CLOSED", isReset(http2.ErrCodeStreamClosed), false},
		{"the tunnels are closed", func(x *forward, p *peer, _ *net.TCPConn) {
			x.Close()
			until(p.t, "the tunnels have ended", func() bool { return x.Stats().Conns == 0 })
			p.WritePing(false, mark)
		}, "PING", isError(park.ErrServerClosed), true},
		{"the client's connection breaks a rule",
			func(_ *forward, p *peer, _ *net.TCPConn) { p.WriteWindowUpdate(0, 0) },
			"the end", isConnError(http2.ErrCodeProtocol), true},
		{"the client's connection ends",
			func(_ *forward, p *peer, _ *net.TCPConn) { p.conn.Close() }, "the end", lost, true},
		{"the HTTP/2 server is closed",
			func(x *forward, _ *peer, _ *net.TCPConn) { x.http2.Close() }, "the end", lost, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, secure bool) {
				x := serveTunnels(t, new(tunnel.Tunnels), new(http.Server), secure)
				p := dial(t, x.url)
				host, beside := x.open(t, p, 1), x.open(t, p, 3)
				p.WriteWindowUpdate(0, 1<<30)
				p.WriteWindowUpdate(1, 1<<30)
				must(t, p.send())
				var hosts sync.WaitGroup
				defer hosts.Wait()
				hosts.Go(func() {
					for at, err := 0, error(nil); err == nil; at += wire.MaxSize {
						_, err = host.Write(sockettest.Sequence(at, wire.MaxSize))
					}
				})
				hosts.Go(func() {
					if n, err := stressRead(host); n == 1<<40 {
						t.Error("the host: ", err)
					}
				})
				sent, got, ofStream, ofConn := 0, 0, defaultWindow, defaultWindow
				next := func() string { // a description, unless it is DATA or opens a window
					f, err := p.ReadFrame()
					if err != nil {
						return "the end"
					}
					switch f := f.(type) {
					case *http2.DataFrame:
						if !bytes.Equal(f.Data(), sockettest.Sequence(got, len(f.Data()))) || f.StreamID != 1 {
							t.Errorf("stream %d: other bytes after %d", f.StreamID, got)
						}
						got += len(f.Data())
					case *http2.WindowUpdateFrame:
						if f.StreamID == 1 {
							ofStream += int(f.Increment)
						} else {
							ofConn += int(f.Increment)
						}
					case *http2.RSTStreamFrame:
						return fmt.Sprintf("%d reset %v", f.StreamID, f.ErrCode)
					case *http2.PingFrame:
						return "PING"
					}
					return ""
				}
				for sent < 3<<20 || got < 3<<20 {
					if min(ofStream, ofConn) >= wire.MaxSize {
						p.WriteData(1, false, sockettest.Sequence(sent, wire.MaxSize))
						must(t, p.send())
						sent += wire.MaxSize
						ofStream -= wire.MaxSize
						ofConn -= wire.MaxSize
					}
					if f := next(); f != "" {
						t.Fatal(f)
					}
				}
				c.act(x, p, host)
				p.send() // it fails if the connection is closed
				for f := ""; f != c.want; f = next() {
					if f == "the end" {
						t.Fatalf("got %s, want %s", f, c.want)
					}
				}
				for range map[bool]int{true: 2, false: 1}[c.both] {
					if err := x.ends(t); !c.cause(err) {
						t.Errorf("OnClose got %v", err)
					}
				}
				hosts.Wait()
				if c.both {
					return
				}
				p.data(3, false, "question")
				wantText(t, beside, "question")
				sendText(t, beside, "answer")
				p.want(`3 data "answer" end false`)
			})
		})
	}
}

// A client gets as many tunnels at once as there may be streams, and the others are refused. The
// tunnels work, and when one has ended there is room for another.
func TestThousandConnects(t *testing.T) {
	x := serveTunnels(t, new(tunnel.Tunnels), new(http.Server), false)
	p := dial(t, x.url)
	const all = 1000
	for i := range all {
		x.connect(p, id(i))
	}
	must(t, p.send())
	hosts := make(chan *net.TCPConn, defaultStreams)
	go func() {
		for range defaultStreams {
			hosts <- x.accept(t)
		}
	}()
	answers := make(map[string]int)
	var open []uint32
	for range all {
		f := p.next()
		stream, answer, _ := strings.Cut(f, " ")
		if answers[answer]++; answer == "status 200" {
			n, err := strconv.ParseUint(stream, 10, 32)
			must(t, err)
			open = append(open, uint32(n))
		}
	}
	if len(answers) != 2 || answers["status 200"] != defaultStreams ||
		answers["reset PROTOCOL_ERROR"] != all-defaultStreams {
		t.Errorf("got %v", answers)
	}
	x.waits(t, 2*defaultStreams, 1)
	for _, stream := range open {
		p.data(stream, false, fmt.Sprint("from ", stream, "\n"))
	}
	for range defaultStreams {
		host := await.Receive(t, "the host's connection", hosts)
		text, err := bufio.NewReader(host).ReadString('\n')
		must(t, err)
		var stream uint32
		_, err = fmt.Sscanf(text, "from %d\n", &stream)
		must(t, err)
		sendText(t, host, "answer")
		p.want(fmt.Sprintf(`%d data "answer" end false`, stream))
	}
	x.connect(p, id(all))
	must(t, p.send())
	p.want(fmt.Sprint(id(all), " reset PROTOCOL_ERROR"))
	p.WriteRSTStream(open[0], http2.ErrCodeCancel)
	x.open(t, p, id(all+1))
}

// A ConnectProxy refuses over HTTP/2 what it refuses over HTTP/1.1, with the same status.
func TestConnectProxyRefuses(t *testing.T) {
	var asked atomic.Int64
	x := serveTunnels(t, &tunnel.Tunnels{MaxConns: 1}, new(http.Server), false, func(x *forward) {
		x.http2.ExtendedConnect = true
		x.proxy.Allow = func(*http.Request, netip.AddrPort) bool {
			asked.Add(1)
			return true
		}
	})
	here := x.host.Addr().String()
	_, port, _ := net.SplitHostPort(here)
	p := dial(t, x.url)
	x.open(t, p, 1) // as many as there may be
	stream := uint32(1)
	type refused struct {
		what   string
		fields []string
		want   int
	}
	cases := []refused{
		{"over MaxConns", []string{":method", "CONNECT", ":authority", here}, 503},
		{"another port", []string{":method", "CONNECT", ":authority", "127.0.0.1:1"}, 403},
		{"inside", []string{":method", "CONNECT", ":authority", "127.0.0.2:" + port}, 403},
		{"inside, mapped", []string{":method", "CONNECT", ":authority", "[::ffff:127.0.0.1]:" + port}, 403},
		{"inside by name", []string{":method", "CONNECT", ":authority", "localhost:" + port}, 403},
		{"a length", []string{":method", "CONNECT", ":authority", here, "content-length", "0"}, 400},
		{"no port", []string{":method", "CONNECT", ":authority", "127.0.0.1"}, 400},
		{"a large port", []string{":method", "CONNECT", ":authority", "127.0.0.1:65536"}, 400},
		{"a named port", []string{":method", "CONNECT", ":authority", "127.0.0.1:https"}, 400},
		{"no host", []string{":method", "CONNECT", ":authority", ":" + port}, 400},
		{"another method", []string{":method", "GET", ":scheme", "http", ":authority", here, ":path", "/"}, 405},
		{"a protocol", []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http",
			":authority", here, ":path", "/"}, 501},
	}
	inside := []string{"127.1.2.3", "0.0.0.0", "169.254.169.254", "[::ffff:169.254.169.254]",
		"100.100.100.200", "168.63.129.16", "169.254.1.1", "10.0.0.1", "192.168.0.1"}
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		l.Close()
		inside = append(inside, "[::1]", "[::]", "[::127.0.0.1]", "[64:ff9b::169.254.169.254]",
			"[fd00:ec2::254]", "[fe80::1]", "[fe80::1%lo]", "[fc00::1]")
	}
	var targets []string
	for _, host := range inside {
		targets = append(targets, host+":"+port)
	}
	for _, port := range []string{"22", "25", "80", "443", "0443", "8080"} {
		targets = append(targets, "127.0.0.1:"+port)
	}
	for _, target := range targets {
		cases = append(cases, refused{target, []string{":method", "CONNECT", ":authority", target}, 403})
	}
	for _, c := range cases {
		stream += 2
		p.openPart(stream, false, true, c.fields...)
		must(t, p.send())
		got := p.next()
		if want := fmt.Sprint(stream, " status ", c.want); got != want {
			t.Errorf("%s: got %s, want %s", c.what, got, want)
		}
		text := fmt.Sprintf("%d data %q end true", stream, http.StatusText(c.want)+"\n")
		p.want(text, fmt.Sprint(stream, " reset NO_ERROR"))
	}
	if n := asked.Load(); n != 2 { // that of open, and the one over MaxConns
		t.Errorf("Allow was called %d times", n)
	}
	x.host.Close()
	p.connectTo(stream+2, here)
	must(t, p.send())
	p.want(fmt.Sprint(stream+2, " status 502"))
}

// Allow sees the request and the resolved address over HTTP/2 too.
func TestConnectProxyAllows(t *testing.T) {
	x := serveTunnels(t, new(tunnel.Tunnels), new(http.Server), true, func(x *forward) {
		x.proxy.Allow = func(r *http.Request, addr netip.AddrPort) bool {
			return r.Header.Get("Proxy-Authorization") == "secret" && addr.String() == x.host.Addr().String()
		}
	})
	p := dial(t, x.url)
	p.connectTo(1, x.host.Addr().String(), "proxy-authorization", "wrong")
	p.connectTo(3, x.host.Addr().String(), "proxy-authorization", "secret")
	must(t, p.send())
	got := map[string]bool{p.next(): true}
	for len(got) < 4 {
		got[p.next()] = true
	}
	if !got["1 status 403"] || !got["3 status 200"] {
		t.Errorf("got %v", got)
	}
	x.accept(t)
}

// A client whose request ends with its headers has ended its side of the tunnel.
func TestConnectEndsAtOnce(t *testing.T) {
	x := serveTunnels(t, new(tunnel.Tunnels), new(http.Server), false)
	p := dial(t, x.url)
	p.openPart(1, true, true, ":method", "CONNECT", ":authority", x.host.Addr().String())
	must(t, p.send())
	p.want("1 status 200")
	host := x.accept(t)
	sendText(t, host, "hello")
	p.want(`1 data "hello" end false`)
	wantRestOf(t, host, `"", EOF`)
	host.Close()
	p.want(`1 data "" end true`)
	if err := x.ends(t); err != nil {
		t.Errorf("OnClose got %v", err)
	}
}

// A client whose stream or connection ends while the proxy connects ends that.
func TestConnectIsReset(t *testing.T) {
	for _, c := range []struct {
		name string
		act  func(p *peer)
		want []string
		over bool
	}{
		{"reset", func(p *peer) { p.WriteRSTStream(1, http2.ErrCodeCancel) }, nil, false},
		{"reset after DATA", func(p *peer) {
			p.WriteData(1, false, []byte("early"))
			p.WriteRSTStream(1, http2.ErrCodeCancel)
		}, nil, false},
		{"reset after the end of the stream", func(p *peer) {
			p.WriteData(1, true, []byte("early"))
			p.WriteRSTStream(1, http2.ErrCodeCancel)
		}, nil, false},
		{"window of 0", func(p *peer) { p.WriteWindowUpdate(1, 0) },
			[]string{"1 reset PROTOCOL_ERROR"}, false},
		{"window too large", func(p *peer) { p.WriteWindowUpdate(1, flow.Max) },
			[]string{"1 reset FLOW_CONTROL_ERROR"}, false},
		{"trailers", func(p *peer) { p.openPart(1, true, true, "a", "b") },
			[]string{"1 reset PROTOCOL_ERROR"}, false},
		{"DATA after the end of the stream", func(p *peer) {
			p.WriteData(1, true, nil)
			p.WriteData(1, false, nil)
		}, []string{"1 reset STREAM_CLOSED"}, false},
		{"an error of the connection", func(p *peer) { p.WriteWindowUpdate(0, 0) },
			[]string{"goaway 1 PROTOCOL_ERROR", "the end"}, true},
		{"the end of the connection", func(p *peer) { p.conn.Close() }, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			begun, ended := make(chan bool, 1), make(chan error, 1)
			x := serveTunnels(t, new(tunnel.Tunnels), new(http.Server), false, func(x *forward) {
				x.proxy.Dialer.ControlContext = func(
					ctx context.Context, _, _ string, _ syscall.RawConn,
				) error {
					begun <- true
					<-ctx.Done()
					ended <- ctx.Err()
					return ctx.Err()
				}
			})
			p := dial(t, x.url)
			x.connect(p, 1)
			must(t, p.send())
			await.Receive(t, "the attempt", begun)
			c.act(p)
			p.send() // it fails if the connection is closed
			await.Receive(t, "the end of the attempt", ended)
			if p.want(c.want...); !c.over {
				p.synced()
			}
			if st := x.Stats(); st.Accepted != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A client that resets its request when the proxy has connected, and has not made the tunnel,
// resets the host's connection.
func TestConnectIsResetLate(t *testing.T) {
	proceed := make(chan bool)
	x := serveTunnels(t, new(tunnel.Tunnels), new(http.Server), false, extended, func(x *forward) {
		x.dialed = func(r *http.Request) {
			<-r.Context().Done()
			<-proceed
		}
	})
	p := dial(t, x.url)
	x.connect(p, 1)
	p.WriteData(1, false, []byte("lost"))
	must(t, p.send())
	host := x.accept(t)
	p.WriteRSTStream(1, http2.ErrCodeCancel)
	p.synced()
	proceed <- true
	if err := x.ends(t); !isReset(http2.ErrCodeCancel)(err) {
		t.Errorf("OnClose got %v", err)
	}
	wantRestOf(t, host, `"", reset`)
	p.synced()
}

// Responses that cannot be joined are refused, and the handler can answer.
func TestJoinResponseRefuses(t *testing.T) {
	tunnels := new(tunnel.Tunnels)
	defer tunnels.Close()
	join := func(w http.ResponseWriter) {
		a, b := net.Pipe()
		defer a.Close()
		defer b.Close()
		_, err := tunnels.JoinResponse(w, a, tunnel.Options{})
		fmt.Fprint(w, errors.Is(err, http.ErrNotSupported))
	}
	s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) {
		if code, err := strconv.Atoi(r.Header.Get("Status")); err == nil {
			w.WriteHeader(code)
		}
		join(w)
	})}
	p := dial(t, serve(t, s, false))
	p.connectTo(1, "x:1", "status", "403")
	must(t, p.send())
	p.want("1 status 403", `1 data "true" end true`, "1 reset NO_ERROR")
	p.connectTo(3, "x:1", "content-length", "1")
	must(t, p.send())
	p.want("3 status 200", `3 data "true" end true`, "3 reset NO_ERROR")
	p.get(5)
	must(t, p.send())
	p.want("5 status 200", `5 data "true" end true`)
	if st := tunnels.Stats(); st.Conns != 0 || st.Accepted != 0 {
		t.Errorf("%+v", st)
	}
}
