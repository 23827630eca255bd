package http2

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	streams "github.com/socknotify/socknotify/stream"
	"github.com/socknotify/socknotify/tunnel"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/leaks"
	"github.com/socknotify/socknotify/park/http2/internal/flow"
	"github.com/socknotify/socknotify/park/http2/internal/wire"
)

// An abuse is what a bad client does: first begin, then round after round.
type abuse struct {
	name   string
	begin  func(p *peer)
	round  func(p *peer, i int)
	silent bool // the client reads nothing
	held   bool // the connection stays open and silent when all rounds were sent
	rounds int  // of one connection
	want   string
}

// A client whose connection is not held sends a PING frame after the last round. stays means that it is acknowledged: the
// connection was not closed.
const (
	stays  = "stays"
	calm   = "ENHANCE_YOUR_CALM"
	either = "stays or ENHANCE_YOUR_CALM" // it depends on how fast handlers return and answers are sent
	closed = "closed"
)

func id(i int) uint32 { return uint32(2*i + 1) }

func (p *peer) open(stream uint32, path string, end bool, more ...string) {
	pseudo := []string{":method", "POST", ":scheme", "http", ":authority", "x", ":path", path}
	p.openPart(stream, end, true, append(pseudo, more...)...)
}

func (p *peer) openPart(stream uint32, end, whole bool, fields ...string) {
	block := p.fields(fields...)
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: end, EndHeaders: whole})
}

// stalled opens streams whose responses wait for windows.
func stalled(initial uint32) func(p *peer) {
	return func(p *peer) {
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: initial})
		for i := range 100 {
			p.open(id(i), "/big", true)
		}
	}
}

func manySettings(n int) (all []http2.Setting) {
	for i := range n {
		all = append(all, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 2)})
	}
	return all
}

var abuses = []abuse{
	{name: "rapid reset", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/", true)
		p.WriteRSTStream(id(i), http2.ErrCodeCancel)
	}},
	{name: "rapid reset, stubborn handlers", rounds: 3000, want: calm, round: func(p *peer, i int) {
		p.open(id(i), "/stubborn", true)
		p.WriteRSTStream(id(i), http2.ErrCodeCancel)
	}},
	{name: "MadeYouReset, window too large", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/hold", false)
		p.WriteWindowUpdate(id(i), flow.Max)
	}},
	{name: "MadeYouReset, window of 0", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/hold", false)
		p.WriteWindowUpdate(id(i), 0)
	}},
	{name: "MadeYouReset, data after the end", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/hold", true)
		p.WriteData(id(i), true, nil)
	}},
	{name: "MadeYouReset, PRIORITY of itself", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/hold", false)
		p.WritePriority(id(i), http2.PriorityParam{StreamDep: id(i)})
	}},
	{name: "MadeYouReset, HEADERS that depend on themselves", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: id(i), BlockFragment: p.staticRequest(), EndHeaders: true,
			Priority: http2.PriorityParam{StreamDep: id(i)}})
	}},
	{name: "MadeYouReset, HEADERS after the end", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/hold", true)
		p.openPart(id(i), true, true, "a", "b")
	}},
	{name: "MadeYouReset, trailers before the end", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/hold", false)
		p.openPart(id(i), false, true, "a", "b")
	}},
	{name: "MadeYouReset, malformed trailers", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/hold", false)
		p.openPart(id(i), true, true, ":path", "/")
	}},
	{name: "MadeYouReset, DATA longer than declared", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/hold", false, "content-length", "1")
		p.WriteData(id(i), false, big[:2])
	}},
	{name: "MadeYouReset, DATA shorter than declared", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/hold", false, "content-length", "2")
		p.WriteData(id(i), true, big[:1])
	}},
	{name: "MadeYouReset, DATA of the stream before", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i+1), "/", true)
		p.WriteData(id(i), false, big[:1])
	}},
	{name: "answers before the end of the request", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/", false)
	}},
	{name: "answers to fields that are too long", rounds: 1000, want: either, begin: func(p *peer) {
		p.open(1, "/", true, "a", strings.Repeat("~", 4000))
	}, round: func(p *peer, i int) {
		block := bytes.Repeat([]byte{0xbe}, 1<<10) // the newest entry of the table
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: id(i + 1), BlockFragment: block, EndHeaders: true})
	}},
	{name: "more streams than are allowed", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.open(id(i), "/hold", true)
	}},
	{name: "malformed requests", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.openPart(id(i), true, true, "a", "b")
	}},
	{name: "CONTINUATION flood", rounds: 5000, want: calm, begin: func(p *peer) {
		p.openPart(1, true, false, ":method", "GET")
	}, round: func(p *peer, i int) {
		p.WriteContinuation(1, false, p.fields(fmt.Sprint("a", i), strings.Repeat("~", 1000)))
	}},
	{name: "CONTINUATION flood, small fields", rounds: 200_000, want: calm, begin: func(p *peer) {
		p.openPart(1, true, false, ":method", "GET")
	}, round: func(p *peer, i int) {
		p.WriteContinuation(1, false, []byte{0, 1, 'a', 1, 'b'})
	}},
	{name: "CONTINUATION flood, empty", rounds: 200_000, want: calm, begin: func(p *peer) {
		p.openPart(1, true, false, ":method", "GET")
	}, round: func(p *peer, i int) { p.WriteContinuation(1, false, nil) }},
	{name: "HPACK bomb", rounds: 50, want: stays, begin: func(p *peer) {
		p.open(1, "/", true, "a", strings.Repeat("~", 4000))
	}, round: func(p *peer, i int) {
		block := bytes.Repeat([]byte{0xbe}, 16<<10) // the newest entry of the table
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: id(i + 1), BlockFragment: block, EndStream: true, EndHeaders: true})
	}},
	{name: "HPACK bomb in many frames", rounds: 200, want: calm, begin: func(p *peer) {
		p.open(1, "/", true, "a", strings.Repeat("~", 200))
		p.openPart(3, true, false, ":method", "GET", ":scheme", "http", ":path", "/")
	}, round: func(p *peer, i int) { p.WriteContinuation(3, false, bytes.Repeat([]byte{0xbe}, 16<<10)) }},
	{name: "HPACK table thrash", rounds: 1000, want: either, round: func(p *peer, i int) {
		var more []string
		for j := range 50 {
			more = append(more, fmt.Sprintf("n%d-%d", i, j), "v")
		}
		p.open(id(i), "/", true, more...)
	}},
	{name: "HPACK table resized", rounds: 3000, want: either, round: func(p *peer, i int) {
		block := append([]byte{0x20, 0x3f, 0xe1, 0x1f}, p.staticRequest()...)
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: id(i), BlockFragment: block, EndStream: true, EndHeaders: true})
	}},
	{name: "SETTINGS flood", rounds: 20_000, want: calm, round: func(p *peer, i int) {
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)})
	}},
	{name: "SETTINGS flood beside streams", rounds: 5000, want: calm, begin: stalled(0), round: func(p *peer, i int) {
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 2)})
	}},
	{name: "SETTINGS flood, long", rounds: 300, want: calm, begin: stalled(0), round: func(p *peer, i int) {
		p.WriteSettings(manySettings(2700)...)
	}},
	{name: "SETTINGS flood, not read", silent: true, rounds: 1 << 30, want: closed, round: func(p *peer, i int) {
		p.WriteSettings()
	}},
	{name: "PING flood", rounds: 20_000, want: calm, round: func(p *peer, i int) { p.WritePing(false, [8]byte{}) }},
	{name: "PING flood beside streams", rounds: 20_000, want: calm, begin: stalled(0), round: func(p *peer, i int) {
		p.WritePing(false, [8]byte{})
	}},
	{name: "PING flood, not read", silent: true, rounds: 1 << 30, want: closed, round: func(p *peer, i int) {
		p.WritePing(false, [8]byte{})
	}},
	{name: "PING acknowledgements", rounds: 20_000, want: stays, round: func(p *peer, i int) {
		p.WritePing(true, [8]byte{})
	}},
	{name: "empty DATA", rounds: 20_000, want: stays, begin: func(p *peer) { p.open(1, "/read", false) },
		round: func(p *peer, i int) { p.WriteData(1, false, nil) }},
	{name: "DATA of one byte", rounds: 20_000, want: stays, begin: func(p *peer) { p.open(1, "/read", false) },
		round: func(p *peer, i int) { p.WriteData(1, false, []byte{1}) }},
	{name: "extended CONNECT, malformed", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.openPart(id(i), false, true, ":method", "GET", ":protocol", "websocket", ":scheme", "http",
			":authority", "x", ":path", "/")
	}},
	{name: "extended CONNECT, reset", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.extended(id(i), "/duplex")
		p.WriteRSTStream(id(i), http2.ErrCodeCancel)
	}},
	{name: "extended CONNECT, then reset", rounds: 3000, want: either, round: func(p *peer, i int) {
		p.extended(id(i), "/duplex")
		p.WriteData(id(i), false, big[:4<<10])
		p.WriteRSTStream(id(i), http2.ErrCodeCancel)
	}},
	{name: "extended CONNECT, trailers", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.extended(id(i), "/duplex")
		p.openPart(id(i), true, true, "a", "b")
	}},
	{name: "extended CONNECT, DATA of one byte", rounds: 20_000, want: stays, begin: func(p *peer) {
		p.extended(1, "/duplex")
	}, round: func(p *peer, i int) { p.WriteData(1, false, []byte{1}) }},
	{name: "extended CONNECT, windows stay closed", rounds: 400, want: stays, begin: func(p *peer) {
		for i := range 4 {
			p.extended(id(i), "/duplex")
		}
	}, round: func(p *peer, i int) { p.WriteData(id(i%4), false, big[:1<<10]) }},
	{name: "CONNECT, reset", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.connectTo(id(i), toEcho)
		p.WriteRSTStream(id(i), http2.ErrCodeCancel)
	}},
	{name: "CONNECT, reset while it connects", rounds: 5000, want: either,
		round: func(p *peer, i int) {
			p.connectTo(id(i), toNowhere)
			p.WriteRSTStream(id(i), http2.ErrCodeCancel)
		}},
	{name: "CONNECT, then reset", rounds: 3000, want: either, round: func(p *peer, i int) {
		p.connectTo(id(i), toEcho)
		p.WriteData(id(i), false, big[:4<<10])
		p.WriteRSTStream(id(i), http2.ErrCodeCancel)
	}},
	{name: "CONNECT, reset a hundred later", rounds: 3000, want: either, round: func(p *peer, i int) {
		p.connectTo(id(i), toFlood)
		if i >= 100 {
			p.WriteRSTStream(id(i-100), http2.ErrCodeCancel)
		}
	}},
	{name: "CONNECT, ended at once", rounds: 3000, want: either, round: func(p *peer, i int) {
		p.connectTo(id(i), toEcho)
		p.WriteData(id(i), true, big[:1])
	}},
	{name: "CONNECT, trailers", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.connectTo(id(i), toEcho)
		p.openPart(id(i), true, true, "a", "b")
	}},
	{name: "CONNECT, window of 0", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.connectTo(id(i), toEcho)
		p.WriteWindowUpdate(id(i), 0)
	}},
	{name: "CONNECT, refused", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.connectTo(id(i), "127.0.0.2:443")
	}},
	{name: "CONNECT, empty DATA", rounds: 20_000, want: stays, begin: connected(toSink),
		round: func(p *peer, i int) { p.WriteData(1, false, nil) }},
	{name: "CONNECT, padding", rounds: 20_000, want: stays, begin: connected(toSink),
		round: func(p *peer, i int) { p.WriteDataPadded(1, false, nil, big[:255]) }},
	{name: "CONNECT, DATA of one byte", rounds: 20_000, want: stays, begin: connected(toEcho),
		round: func(p *peer, i int) { p.WriteData(1, false, []byte{1}) }},
	{name: "CONNECT, windows stay closed", rounds: 400, want: stays, begin: func(p *peer) {
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range 50 {
			p.connectTo(id(i), toFlood)
		}
	}, round: func(p *peer, i int) { p.WriteData(id(i%50), false, big[:1<<10]) }},
	{name: "CONNECT, one byte of a window", rounds: 20_000, want: stays, begin: func(p *peer) {
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range 10 {
			p.connectTo(id(i), toFlood)
		}
	}, round: func(p *peer, i int) { p.WriteWindowUpdate(id(i%10), 1) }},
	{name: "CONNECT, settings open and close windows", rounds: 5000, want: either,
		begin: func(p *peer) {
			for i := range 50 {
				p.connectTo(id(i), toFlood)
			}
		}, round: func(p *peer, i int) {
			p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i % 2)})
		}},
	{name: "CONNECT, nothing is read", silent: true, rounds: 1 << 30, want: closed,
		begin: func(p *peer) {
			for i := range 50 {
				p.connectTo(id(i), toFlood)
				p.WriteWindowUpdate(id(i), 1<<30)
			}
			p.WriteWindowUpdate(0, 1<<30)
		}, round: func(p *peer, i int) { p.WritePing(false, [8]byte{}) }},
	{name: "CONNECTs that never end", held: true, rounds: 100, want: stays,
		round: func(p *peer, i int) {
			p.connectTo(id(i), toSink)
		}},
	{name: "CONNECTs that never connect", held: true, rounds: 100, want: stays,
		round: func(p *peer, i int) {
			p.connectTo(id(i), toNowhere)
		}},
	{name: "empty HEADERS", rounds: 5000, want: either, round: func(p *peer, i int) {
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: id(i), EndStream: true, EndHeaders: true})
	}},
	{name: "PRIORITY flood", rounds: 20_000, want: stays, round: func(p *peer, i int) {
		p.WritePriority(id(i), http2.PriorityParam{StreamDep: uint32(i+1) * 2, Weight: 3})
	}},
	{name: "unknown frames", rounds: 20_000, want: stays, round: func(p *peer, i int) { p.WriteRawFrame(99, 0, 1, nil) }},
	{name: "GOAWAY flood", rounds: 20_000, want: stays, round: func(p *peer, i int) {
		p.WriteGoAway(0, http2.ErrCodeNo, nil)
	}},
	{name: "WINDOW_UPDATE flood", rounds: 20_000, want: stays, begin: stalled(0), round: func(p *peer, i int) {
		p.WriteWindowUpdate(0, 1)
	}},
	{name: "WINDOW_UPDATE flood, stream", rounds: 20_000, want: stays, begin: func(p *peer) { p.open(1, "/hold", true) },
		round: func(p *peer, i int) { p.WriteWindowUpdate(1, 1) }},
	{name: "one byte of a connection's window", rounds: 5000, want: stays, begin: stalled(1 << 20), round: func(p *peer, i int) {
		p.WriteWindowUpdate(0, 1)
	}},
	{name: "one byte of a stream's window", rounds: 5000, want: stays, begin: stalled(0), round: func(p *peer, i int) {
		p.WriteWindowUpdate(id(i%100), 1)
	}},
	{name: "zero windows", held: true, rounds: 1, want: stays, begin: stalled(0)},
	{name: "streams that never end", held: true, rounds: 100, want: stays, round: func(p *peer, i int) {
		p.open(id(i), "/read", false, "a", strings.Repeat("~", 100))
	}},
	{name: "half a frame", held: true, rounds: 1, want: stays, round: func(p *peer, i int) {
		p.out.Write([]byte{0, 1, 0, byte(http2.FramePing), 0})
	}},
	{name: "half a large frame", held: true, rounds: 1, want: stays, round: func(p *peer, i int) {
		p.out.Write(wire.AppendFrame(nil, http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, largeIn-wire.HeaderSize))
		p.out.Write(make([]byte, 20<<10))
	}},
	{name: "half a header block", held: true, rounds: 1, want: stays, round: func(p *peer, i int) {
		p.openPart(1, true, false, ":method", "GET", ":scheme", "http", ":path", "/")
		for i := range 40 {
			p.WriteContinuation(1, false, p.fields(fmt.Sprint("a", i), strings.Repeat("~", 1000)))
		}
	}},
	{name: "reset during a handler's write", rounds: 2000, want: either, begin: func(p *peer) {
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
		p.WriteWindowUpdate(0, 1<<30)
	}, round: func(p *peer, i int) {
		p.open(id(i), "/big", true)
		if i > 0 {
			p.WriteRSTStream(id(i-1), http2.ErrCodeCancel)
		}
	}},
}

// connected opens a tunnel.
func connected(target string) func(p *peer) {
	return func(p *peer) { p.connectTo(1, target) }
}

// staticRequest returns a header block that uses no dynamic table.
func (p *peer) staticRequest() []byte { return []byte{0x82, 0x86, 0x84, 0x01, 0x01, 'x'} }

// An abusedHandler is the handler of the servers that are abused. Streams of its own answer what
// they get with the same. A CONNECT request becomes a tunnel to one of its hosts.
type abusedHandler struct {
	duplex  streams.Streams
	tunnels tunnel.Tunnels
	proxy   tunnel.ConnectProxy
	hosts   map[string]net.Listener // by the targets of requests
	host    sync.WaitGroup
}

// These are the targets of CONNECT requests for the hosts: one answers what it gets with the same,
// one reads and does not answer, one sends and does not read, and to one no connection is made.
const (
	toEcho    = "echo:1"
	toSink    = "sink:1"
	toFlood   = "flood:1"
	toNowhere = "nowhere:1"
)

func newAbusedHandler() *abusedHandler {
	h := &abusedHandler{hosts: make(map[string]net.Listener)}
	h.duplex.OnInput = func(s *streams.Stream, b []byte) error { return s.Write(b) }
	h.proxy = tunnel.ConnectProxy{Tunnels: &h.tunnels, Inside: []string{"127.0.0.1"},
		Allow: func(*http.Request, netip.AddrPort) bool { return true }}
	for target, serve := range map[string]func(net.Conn){
		toEcho: func(c net.Conn) { io.Copy(struct{ io.Writer }{c}, c) }, // pipes of splice would stay
		toSink: func(c net.Conn) { io.Copy(io.Discard, c) },
		toFlood: func(c net.Conn) {
			for err := error(nil); err == nil; {
				_, err = c.Write(big[:])
			}
		},
		toNowhere: nil,
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		h.hosts[target] = l
		h.proxy.Ports = append(h.proxy.Ports, l.Addr().(*net.TCPAddr).Port)
		h.host.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				h.host.Go(func() {
					defer conn.Close()
					serve(conn)
				})
			}
		})
	}
	h.proxy.Dialer.ControlContext = func(
		ctx context.Context, _, address string, _ syscall.RawConn,
	) error {
		if address != h.hosts[toNowhere].Addr().String() {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
	return h
}

// close ends the hosts and what is left of the tunnels and streams.
func (h *abusedHandler) close(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for _, l := range h.hosts {
		l.Close()
	}
	must(t, h.duplex.Shutdown(ctx))
	must(t, h.tunnels.Shutdown(ctx))
	h.host.Wait()
}

func (h *abusedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if host := h.hosts[r.URL.Host]; host != nil {
		r.URL.Host = host.Addr().String()
	}
	if r.Method == http.MethodConnect && r.Header[":protocol"] == nil {
		h.proxy.ServeHTTP(w, r)
		return
	}
	switch r.URL.Path {
	case "/duplex":
		s := new(streams.Stream)
		if h.duplex.OpenResponse(s, w) == nil {
			s.Start(nil, nil)
		}
	case "/hold":
		<-r.Context().Done()
	case "/stubborn":
		<-r.Context().Done()
		await.Pause(200 * time.Millisecond)
	case "/read":
		io.Copy(io.Discard, r.Body)
	case "/big":
		for range 4 {
			if _, err := w.Write(big[:]); err != nil {
				return
			}
		}
	}
}

var big [32 << 10]byte

// mark is the PING frame after the last round.
var mark = [8]byte{'t', 'h', 'e', ' ', 'l', 'a', 's', 't'}

// An attack is the end of one connection of an abuse.
type attack struct {
	conn   net.Conn
	end    string // stays, or the code of the server's GOAWAY frame, or empty
	answer chan string
}

// attackOnce sends the rounds, at most limit bytes of them, and waits for the end of the connection, or for the answer after
// the last round. A held connection is not closed.
func (a *abuse) attackOnce(t testing.TB, address string, limit int) attack {
	p := dial(t, address)
	at := attack{conn: p.conn, answer: make(chan string, 1)}
	if !a.silent {
		go func() { at.answer <- lastAnswer(p.conn, true) }()
	}
	if a.begin != nil {
		a.begin(p)
	}
	sent := 0
	var err error
	for i := 0; i < a.rounds && a.round != nil && sent < limit && err == nil; i++ {
		if a.round(p, i); p.out.Len() > 16<<10 {
			sent += p.out.Len()
			err = p.send()
		}
	}
	if !a.held {
		p.WritePing(false, mark)
	}
	if err == nil {
		err = p.send()
	}
	switch {
	case a.silent:
		for end := time.Now().Add(timeout); err == nil && time.Now().Before(end); await.Pause(10 * time.Millisecond) {
			p.WritePing(false, mark)
			err = p.send() // the server reads and discards for a second
		}
		if at.end = stays; err != nil {
			at.end = closed
		}
	case !a.held:
		at.end = <-at.answer
	default:
		at.end = stays
	}
	if !a.held {
		p.conn.Close()
	}
	return at
}

// lastAnswer reads until the last PING frame is acknowledged, or the connection has ended, or unless it is patient until a
// GOAWAY frame.
func lastAnswer(conn io.Reader, patient bool) (end string) {
	var head [wire.HeaderSize]byte
	buf := make([]byte, 1<<16)
	for {
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return end
		}
		n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if n > len(buf) {
			return "a frame that is too large"
		}
		if _, err := io.ReadFull(conn, buf[:n]); err != nil {
			return end
		}
		switch http2.FrameType(head[3]) {
		case http2.FramePing:
			if bytes.Equal(buf[:n], mark[:]) {
				return stays
			}
		case http2.FrameGoAway:
			if end = http2.ErrCode(binary.BigEndian.Uint32(buf[4:])).String(); !patient {
				return end
			}
		}
	}
}

// descriptors returns the number of open descriptors, or 0 where the system does not tell.
func descriptors() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC() // pools keep what they have for one collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// In each case of abuse the connection ends with the right code, or stays and answers; handlers and queued bytes are
// bounded; and then goroutines, descriptors and memory return to what they were.
func TestAbuse(t *testing.T) {
	t.Run("once before", func(t *testing.T) { // what the process opens once stays open
		get(t, client(t), serve(t, &Server{Server: handler(echo)}, false))
		// The runtime keeps about 440 bytes of each goroutine for the next one, so many exist at once
		// here. Otherwise those of a case would count as memory that is not free.
		var running sync.WaitGroup
		end := make(chan bool)
		for range 5000 {
			running.Go(func() { <-end })
		}
		close(end)
		running.Wait()
	})
	for _, a := range abuses {
		t.Run(a.name, func(t *testing.T) {
			before, descriptorsBefore := goleak.IgnoreCurrent(), descriptors()
			t.Run("", func(t *testing.T) { a.test(t) })
			if err := leaks.Find(before); err != nil {
				t.Error(err)
			}
			until(t, "the descriptors are closed", func() bool { return descriptors() <= descriptorsBefore })
		})
	}
}

func (a *abuse) test(t *testing.T) {
	const most = 100
	var running, highest atomic.Int64
	h := newAbusedHandler()
	t.Cleanup(func() { h.close(t) })
	s := &Server{ExtendedConnect: true, Server: handler(func(w http.ResponseWriter, r *http.Request) {
		n := running.Add(1)
		defer running.Add(-1)
		for old := highest.Load(); n > old && !highest.CompareAndSwap(old, n); old = highest.Load() {
		}
		h.ServeHTTP(w, r)
	})}
	s.Server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: most}
	url := serve(t, s, false)
	get(t, client(t), url) // the lot and its workers exist
	heap := liveHeap()
	stop, watched := make(chan bool), make(chan int)
	go func() {
		queued := 0
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				watched <- queued
				return
			case <-ticker.C:
			}
			s.mu.Lock()
			for c := range s.conns {
				c.mu.Lock()
				queued = max(queued, c.queued())
				c.mu.Unlock()
			}
			s.mu.Unlock()
		}
	}()
	limit := 64 << 20
	if a.silent {
		url = serveUnix(t, s)
	}
	at := a.attackOnce(t, url, limit)
	if at.end != a.want && !(a.want == either && (at.end == stays || at.end == calm)) {
		t.Errorf("the end is %q, want %q", at.end, a.want)
	}
	if a.held {
		held := time.Now() // it stays when the connection had time to be parked
		for s.Stats().Parked == 0 && time.Since(held) < 20*time.Millisecond {
			await.Pause(time.Millisecond)
		}
		at.conn.Close()
		<-at.answer
	}
	close(stop)
	if queued := <-watched; queued > maxAnswers+maxOut+wire.MaxSize+1<<10 {
		t.Errorf("%d bytes were queued", queued)
	}
	until(t, "the handlers and the connection have ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			if c.conn.RemoteAddr().String() == at.conn.LocalAddr().String() {
				return false
			}
		}
		return running.Load() == 0
	})
	if h := highest.Load(); h > most+1 {
		t.Errorf("%d handlers ran at once", h)
	}
	until(t, "the memory is free", func() bool { return liveHeap() < heap+256<<10 })
}

// A client that takes nothing of what is written to it is closed after IdleTimeout, if it has no streams.
func TestIdleWhileWriting(t *testing.T) {
	hs := handler(echo)
	hs.IdleTimeout = 100 * time.Millisecond
	s := &Server{Server: hs}
	near, far := net.Pipe() // it has no buffer, so the first write waits
	defer near.Close()
	near.SetDeadline(time.Now().Add(timeout))
	must(t, s.ServeConn(t.Context(), far))
	var b bytes.Buffer
	f := http2.NewFramer(&b, nil)
	b.WriteString(http2.ClientPreface)
	f.WriteSettings()
	_, err := b.WriteTo(near)
	must(t, err)
	until(t, "the connection has ended", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 0
	})
	must(t, s.Shutdown(t.Context()))
}

// Handlers that wait for the connection, and for their own windows, are all served when the windows open by a byte at a time
// and at random: no wake-up is lost.
func TestManyWaitForWindows(t *testing.T) {
	const streams, size = 50, 40_000
	s := &Server{Server: handler(func(w http.ResponseWriter, r *http.Request) { w.Write(pattern(size)) })}
	p := dial(t, serve(t, s, false))
	var mu sync.Mutex
	send := func(write func()) {
		mu.Lock()
		defer mu.Unlock()
		write()
		p.send()
	}
	send(func() {
		p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
		for i := range streams {
			p.request(id(i), true)
		}
	})
	got, ended := make(map[uint32]int), 0
	for ended < streams {
		f, err := p.ReadFrame()
		must(t, err)
		if d, ok := f.(*http2.DataFrame); ok {
			got[d.StreamID] += len(d.Data())
			if d.StreamEnded() {
				ended++
			} else if n := got[d.StreamID]; n == 1 {
				send(func() { p.WriteWindowUpdate(d.StreamID, 10_000) })
			} else if n == 10_001 {
				send(func() { p.WriteWindowUpdate(d.StreamID, size) })
			}
			if n := len(d.Data()); n > 0 {
				send(func() { p.WriteWindowUpdate(0, uint32(n)) })
			}
		}
	}
	for stream, n := range got {
		if n != size {
			t.Errorf("stream %d: %d bytes, want %d", stream, n, size)
		}
	}
}

// A connection that has ended by a failed write begins no stream of what was received before: its handler would never end.
// FuzzFrames has found that.
func TestNothingBeginsAfterTheEnd(t *testing.T) {
	s := &Server{Server: handler(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	c := newConn(s, t.Context(), far, s.Server.Handler)
	p := &peer{t: t}
	p.Framer = http2.NewFramer(&p.out, nil)
	p.out.WriteString(http2.ClientPreface)
	p.WriteSettings()
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: p.staticRequest(), EndHeaders: true})
	c.mu.Lock()
	c.fail(errClosed)
	c.mu.Unlock()
	b := input{buf: p.out.Bytes(), end: p.out.Len(), pooled: p.out.Bytes()}
	if err := c.consume(&b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if len(c.streams) > 0 {
		t.Errorf("%d streams have begun", len(c.streams))
	}
}

// A HEADERS frame that cannot be parsed ends its connection, because its block is lost for the header table, and no other one.
func TestBrokenHeaders(t *testing.T) {
	url := serve(t, &Server{Server: handler(echo)}, false)
	for range 10 {
		bad, good := dial(t, url), dial(t, url)
		bad.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersPadded, 1, []byte{10, 0x82}) // it has no 10 bytes of padding
		bad.WriteContinuation(1, true, nil)
		must(t, bad.send())
		bad.want("goaway 0 PROTOCOL_ERROR")
		good.request(1, true)
		must(t, good.send())
		good.want("1 status 200")
	}
}

// Two changes of the header table's size may precede the fields of a block (RFC 7541, 4.2).
func TestTableResizedTwice(t *testing.T) {
	p := dial(t, serve(t, &Server{Server: handler(echo)}, false))
	p.request(1, true, "a", "b") // the table is not empty
	block := append([]byte{0x20, 0x3f, 0xe1, 0x1f}, p.staticRequest()...)
	p.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block, EndStream: true, EndHeaders: true})
	must(t, p.send())
	got := map[string]bool{}
	for len(got) < 2 {
		got[p.next()] = true
	}
	if !got["1 status 200"] || !got["3 status 200"] {
		t.Error(got)
	}
}

// A header block whose frames arrive one after the other does not outlive ReadHeaderTimeout, whether the connection is parked
// between them or not.
func TestSlowBlock(t *testing.T) {
	for _, linger := range []time.Duration{-1, 0} {
		hs := handler(echo)
		hs.ReadHeaderTimeout = 50 * time.Millisecond
		p := dial(t, serve(t, &Server{Server: hs, Linger: linger}, false))
		ended := make(chan string, 1)
		go func() { ended <- lastAnswer(p.conn, true) }()
		p.openPart(1, true, false, ":method", "GET")
		end := "not reached"
		for i := 0; i < 400 && end == "not reached"; i++ {
			p.WriteContinuation(1, false, []byte{0, 1, 'a', 1, 'b'})
			p.send()
			await.Pause(5 * time.Millisecond)
			select {
			case end = <-ended:
			default:
			}
		}
		if end != "NO_ERROR" {
			t.Errorf("the end is %q", end)
		}
	}
}
