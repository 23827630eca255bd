package tunnel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

// lastOf reads to the end, and returns what has ended the connection.
func lastOf(conn net.Conn) string {
	conn.SetReadDeadline(time.Now().Add(conntest.Timeout))
	b, err := io.ReadAll(conn)
	text := fmt.Sprintf("%d bytes, ", len(b))
	if len(b) < 100 {
		text = fmt.Sprintf("%q, ", b)
	} else if !bytes.Equal(b, pattern(len(b))) {
		text = "other bytes, "
	}
	switch {
	case err == nil:
		return text + "EOF"
	case errors.Is(err, net.ErrClosed):
		return text + "closed"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.Errno(10054)): // WSAECONNRESET
		return text + "reset"
	}
	return text + err.Error()
}

// someBytes is the number in what lastOf returns, for connections that fail while bytes move.
var someBytes = regexp.MustCompile(`^[0-9]+ bytes`)

// peers is what lastOf returns for both ends of an upgraded connection.
type peers struct{ client, backend string }

// A proxyCase is something that happens to an upgraded connection.
type proxyCase struct {
	name            string
	early, greeting string // see proxyRun
	act             func(p *proxyRun, client, backend *bufferedPeer)
	// differs is the outcome of a tunnel, if it is another one than that of the proxy's own copying.
	// docs/tunnels.md names the differences.
	differs *peers
	// either is a second outcome that both may have instead of differs: the kernel reports a reset
	// to one operation. If that is the write, Read sees the end of the stream, which a tunnel may
	// pass on first. The proxy's own copying closes both connections, and a close with bytes unread
	// resets the peer.
	either *peers
}

var proxyCases = []proxyCase{
	{name: "both end their streams", act: func(p *proxyRun, client, backend *bufferedPeer) {
		conntest.Send(p.t, client, "question")
		conntest.Expect(p.t, backend, "question")
		endStream(p.t, client)
		conntest.Send(p.t, backend, "answer")
		endStream(p.t, backend)
	}},
	{name: "the backend ends its stream first", act: func(p *proxyRun, client, backend *bufferedPeer) {
		conntest.Send(p.t, backend, "all")
		endStream(p.t, backend)
		conntest.Expect(p.t, client, "all")
		conntest.Send(p.t, client, "much")
		endStream(p.t, client)
	}},
	{name: "the client closes", act: func(p *proxyRun, client, backend *bufferedPeer) {
		p.atRest()
		client.Close()
		backend.SetReadDeadline(time.Now().Add(conntest.Timeout))
		io.Copy(io.Discard, backend)
		backend.Close()
	}},
	{name: "the backend dies", act: func(p *proxyRun, client, backend *bufferedPeer) {
		conntest.Send(p.t, client, "x")
		conntest.Expect(p.t, backend, "x")
		p.atRest()
		resetPeer(backend)
	}, differs: &peers{`"", reset`, `"", closed`}},
	{name: "the client dies", act: func(p *proxyRun, client, backend *bufferedPeer) {
		conntest.Send(p.t, backend, "x")
		conntest.Expect(p.t, client, "x")
		p.atRest()
		resetPeer(client)
	}, differs: &peers{`"", closed`, `"", reset`}},
	{name: "the backend dies at once", act: func(p *proxyRun, client, backend *bufferedPeer) {
		resetPeer(backend)
	}, differs: &peers{`"", reset`, `"", closed`}},
	{name: "the client dies at once", act: func(p *proxyRun, client, backend *bufferedPeer) {
		resetPeer(client)
	}, differs: &peers{`"", closed`, `"", reset`}},
	{name: "the backend dies after the client has ended its stream", act: func(p *proxyRun, client, backend *bufferedPeer) {
		endStream(p.t, client)
		conntest.ExpectRest(p.t, backend, "")
		resetPeer(backend)
	}, differs: &peers{`"", reset`, `"", closed`}},
	{name: "the backend dies while the client is slow", act: func(p *proxyRun, client, backend *bufferedPeer) {
		p.fill(backend, client)
		resetPeer(backend)
	}, differs: &peers{`some bytes, reset`, `"", closed`}},
	{name: "the client dies while it is slow", act: func(p *proxyRun, client, backend *bufferedPeer) {
		p.fill(backend, client)
		resetPeer(client)
	}, differs: &peers{`some bytes, closed`, `"", reset`},
		either: &peers{`some bytes, closed`, `"", EOF`}},
	{name: "a slow client", act: func(p *proxyRun, client, backend *bufferedPeer) {
		backend.Write(pattern(1 << 10))
		go func() {
			backend.Write(pattern(9 << 20)[1<<10:])
			backend.CloseWrite()
		}()
		await.Pause(20 * time.Millisecond)
		endStream(p.t, client)
	}},
	{name: "a slow backend", act: func(p *proxyRun, client, backend *bufferedPeer) {
		client.Write(pattern(1 << 10))
		go func() {
			client.Write(pattern(9 << 20)[1<<10:])
			client.CloseWrite()
		}()
		await.Pause(20 * time.Millisecond)
		endStream(p.t, backend)
	}},
	{name: "both are slow", act: func(p *proxyRun, client, backend *bufferedPeer) {
		for _, conn := range []*bufferedPeer{client, backend} {
			go func() {
				conn.Write(pattern(5 << 20))
				conn.CloseWrite()
			}()
		}
		await.Pause(20 * time.Millisecond)
	}},
	{name: "the backend greets with its answer", greeting: "hello", act: func(p *proxyRun, client, backend *bufferedPeer) {
		endStream(p.t, client)
		endStream(p.t, backend)
	}},
	{name: "the client does not wait for the answer", early: "early", act: func(p *proxyRun, client, backend *bufferedPeer) {
		endStream(p.t, client)
		endStream(p.t, backend)
	}, differs: &peers{`"", EOF`, `"early", EOF`}},
	{name: "bytes between parkings", act: func(p *proxyRun, client, backend *bufferedPeer) {
		for range 20 {
			p.atRest()
			conntest.Send(p.t, client, "to")
			conntest.Expect(p.t, backend, "to")
			p.atRest()
			conntest.Send(p.t, backend, "fro")
			conntest.Expect(p.t, client, "fro")
		}
		conntest.Send(p.t, client, "at once")
		conntest.Send(p.t, backend, "at once")
		endStream(p.t, client)
		endStream(p.t, backend)
	}},
	{name: "bytes while the connections are being parked", act: func(p *proxyRun, client, backend *bufferedPeer) {
		for range 500 {
			conntest.Send(p.t, client, "to")
			conntest.Expect(p.t, backend, "to")
			conntest.Send(p.t, backend, "fro")
			conntest.Send(p.t, client, "too")
			conntest.Expect(p.t, client, "fro")
			conntest.Expect(p.t, backend, "too")
		}
		endStream(p.t, client)
		endStream(p.t, backend)
	}},
	{name: "Shutdown, for which there is time", act: func(p *proxyRun, client, backend *bufferedPeer) {
		p.atRest()
		done := make(chan error, 1)
		go func() { done <- p.shutdown(context.Background()) }()
		for range 20 {
			conntest.Send(p.t, client, "to")
			conntest.Expect(p.t, backend, "to")
			conntest.Send(p.t, backend, "fro")
			conntest.Expect(p.t, client, "fro")
		}
		endStream(p.t, client)
		endStream(p.t, backend)
		check.OK(p.t, await.Value(p.t, done))
	}},
	// net/http's Shutdown does not know upgraded connections.
	{name: "Shutdown, whose time is over", act: func(p *proxyRun, client, backend *bufferedPeer) {
		conntest.Send(p.t, client, "x")
		conntest.Expect(p.t, backend, "x")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		p.shutdown(ctx)
		if p.g == nil {
			endStream(p.t, client)
			endStream(p.t, backend)
		}
	}, differs: &peers{`"", reset`, `"", reset`}},
}

// fill writes bytes of pattern from one peer to the other until the system takes no more for a
// while, and waits until the first of them have arrived.
func (p *proxyRun) fill(from, to *bufferedPeer) {
	much := pattern(16 << 20)
	conntest.Send(p.t, from, string(much[:1000]))
	from.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	from.Write(much[1000:])
	to.SetReadDeadline(time.Now().Add(conntest.Timeout))
	_, err := to.in.Peek(1000)
	check.OK(p.t, err)
}

// shutdown shuts down what has the upgraded connections.
func (p *proxyRun) shutdown(ctx context.Context) error {
	if p.g != nil {
		return p.g.Shutdown(ctx)
	}
	return p.server.Shutdown(ctx)
}

// atRest waits until the connections are parked.
func (p *proxyRun) atRest() {
	if p.g != nil {
		p.g.resting(p.t, 1)
	}
}

// What happens to a proxied connection is the same as with the proxy's own copying, or named in the
// table.
func TestReverseProxyOutcomes(t *testing.T) {
	for _, c := range proxyCases {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", c.name, secure), func(t *testing.T) {
				want := []peers{c.outcome(t, true, false, false, secure)}
				if c.differs != nil {
					t.Logf("stock: %+v", want[0])
					if want[0] == *c.differs && c.either == nil {
						t.Error("the outcome of the proxy's own copying does not differ")
					}
					want[0] = *c.differs
				}
				if c.either != nil {
					want = append(want, *c.either)
				}
				for _, parked := range []bool{false, true} {
					for _, around := range []bool{false, true} {
						if got := c.outcome(t, false, around, parked, secure); !slices.Contains(want, got) {
							t.Errorf("park.HTTPServer %t, Handler %t: %+v, want one of %+v", parked, around, got, want)
						}
					}
				}
			})
		}
	}
}

// outcome returns what becomes of a connection, of the proxy's own copying if stock is true, and with Handler and RoundTripper
// if around is true.
func (c *proxyCase) outcome(t *testing.T, stock, around, parked, secure bool) (o peers) {
	p := newProxyRun(t, stock, parked, secure, func(p *proxyRun) { p.greeting, p.around = c.greeting, around })
	x, y := p.dial(c.early)
	client, backend := x.(*bufferedPeer), y.(*bufferedPeer)
	c.act(p, client, backend)
	var all sync.WaitGroup
	all.Go(func() { o.client = lastOf(client) })
	all.Go(func() { o.backend = lastOf(backend) })
	all.Wait()
	if c.differs != nil && someBytes.MatchString(o.client) {
		o.client = someBytes.ReplaceAllString(o.client, "some bytes")
	}
	client.Close()
	backend.Close()
	await.Value(t, p.returned)
	if p.g != nil {
		await.Value(t, p.closed)
		if st := p.g.Stats(); st.Accepted != 1 || st.Copied != 0 || st.Unparkable != 0 {
			t.Errorf("%+v", st)
		}
	}
	return o
}
