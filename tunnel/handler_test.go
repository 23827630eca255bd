package tunnel

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"
	"github.com/socknotify/socknotify/internal/test/testclock"
)

// A connection that cannot be joined is copied by the proxy, and loses nothing of what was read ahead.
func TestHandlerCopies(t *testing.T) {
	for name, c := range map[string]struct {
		configure func(p *proxyRun)
		request   string
		inTurn    bool
		late      bool // nothing is sent before the answer, for the proxy loses it
		copied    uint64
	}{
		"beyond MaxConns": {configure: func(p *proxyRun) {
			p.g.MaxConns = 1
			a, _ := conntest.Pair(p.t, "tcp")
			b, _ := conntest.Pair(p.t, "tcp")
			check.OK(p.t, p.g.Join(a, b))
		}, copied: 1},
		"after Close": {configure: func(p *proxyRun) { p.g.Close() }, copied: 1},
		"another transport has wrapped the body": {configure: func(p *proxyRun) {
			p.proxy.Transport = wrappingTransport{p.proxy.Transport}
		}, late: true, copied: 1},
		"OnUpgrade panics": {configure: func(p *proxyRun) {
			p.g.OnUpgrade = func(*http.Response) Options { panic("from the test") }
		}, copied: 1},
		"the connections are read in turn": {configure: func(p *proxyRun) {
			p.wrap = func(h http.Handler) http.Handler { return p.g.Handler(inTurn(p)) }
		}, inTurn: true, copied: 1},
		"a request with a body": {
			request: strings.Replace(upgradeRequest, "\r\n\r\n", "\r\nContent-Length: 5\r\n\r\nhello", 1), late: true, copied: 1},
	} {
		for _, parked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, park.HTTPServer %t", name, parked), func(t *testing.T) {
				clock := testclock.Install(t)
				p := newProxyRun(t, false, parked, false, func(p *proxyRun) {
					p.around, p.greeting = true, "greeting, "
					p.proxy.ErrorLog = log.New(io.Discard, "", 0)
					if c.configure != nil {
						c.configure(p)
					} else {
						p.read.Store(5)
					}
				})
				before := p.g.Stats().Accepted
				conn, err := net.Dial("tcp", p.address)
				check.OK(t, err)
				defer conn.Close()
				early := "early, "
				if c.late {
					early = ""
				}
				conntest.Send(t, conn, cmp.Or(c.request, upgradeRequest)+early)
				in := bufio.NewReader(conn)
				r, err := http.ReadResponse(in, nil)
				check.OK(t, err)
				if r.StatusCode != http.StatusSwitchingProtocols {
					t.Fatal(r.Status)
				}
				client, backend := &bufferedPeer{conn, in}, await.Value(t, p.accepted)
				if c.inTurn {
					client.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
					await.Until(t, "the proxy reads one end", func() bool {
						clock.Advance(meetTime)
						_, err := in.Peek(1)
						client.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
						return err == nil
					})
					client.SetReadDeadline(time.Time{})
				}
				conntest.Expect(t, client, "greeting, ")
				conntest.Send(t, client, "question")
				conntest.Expect(t, backend, early+"question")
				conntest.Send(t, backend, "answer")
				conntest.Expect(t, client, "answer")
				if st := p.g.Stats(); st.Copied != c.copied || st.Accepted != before {
					t.Errorf("%+v", st)
				}
				client.Close()
				backend.Close()
				await.Value(t, p.returned)
			})
		}
	}
}

// A wrappingTransport wraps the bodies of responses.
type wrappingTransport struct{ http.RoundTripper }

func (t wrappingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		res.Body = struct{ io.ReadWriteCloser }{res.Body.(io.ReadWriteCloser)}
	}
	return res, err
}

// inTurn is a proxy that reads the first bytes of either side before it copies.
func inTurn(p *proxyRun) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		backend, conn, _ := p.upgrade(w, r)
		defer backend.Close()
		defer conn.Close()
		buf := make([]byte, 100)
		n, err := backend.Read(buf)
		check.OK(p.t, err)
		conn.Write(buf[:n])
		go io.Copy(backend, conn)
		io.Copy(conn, backend)
	})
}

// Bytes that the proxy has not flushed are not passed by those of the tunnel.
func TestHandlerUnflushed(t *testing.T) {
	p := newProxyRun(t, false, false, false, func(p *proxyRun) {
		p.around = true
		p.wrap = func(http.Handler) http.Handler {
			return p.g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				backend, conn, rw := p.upgrade(w, r)
				defer backend.Close()
				defer conn.Close()
				io.WriteString(rw, "unflushed, ")
				go io.Copy(backend, conn)
				buf := make([]byte, 100)
				n, _ := backend.Read(buf)
				rw.Write(buf[:n])
				rw.Flush()
				io.Copy(conn, backend)
			}))
		}
	})
	client, backend := p.dial("")
	conntest.Send(t, backend, "answer")
	conntest.Expect(t, client, "unflushed, answer")
	if st := p.g.Stats(); st.Accepted != 0 || st.Copied != 1 {
		t.Errorf("%+v", st)
	}
}

// upgrade sends a request to the backend, and passes the answer on.
func (p *proxyRun) upgrade(w http.ResponseWriter, r *http.Request) (io.ReadWriteCloser, net.Conn, *bufio.ReadWriter) {
	out := r.Clone(r.Context())
	p.proxy.Rewrite(&httputil.ProxyRequest{In: r, Out: out})
	res, err := p.proxy.Transport.RoundTrip(out)
	check.OK(p.t, err)
	conn, rw, err := http.NewResponseController(w).Hijack()
	check.OK(p.t, err)
	io.WriteString(rw, switching)
	check.OK(p.t, rw.Flush())
	return res.Body.(io.ReadWriteCloser), conn, rw
}

// OnUpgrade is called for each upgrade with its response, and says what OnClose gets. The time of a
// tunnel ends it in order.
func TestOnUpgrade(t *testing.T) {
	type key struct{}
	clock := testclock.Install(t)
	closed := make(chan any, 10)
	for _, around := range []bool{false, true} {
		p := newProxyRun(t, false, false, false, func(p *proxyRun) {
			p.around = around
			p.wrap = func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, "mine")))
				})
			}
			p.g.OnUpgrade = func(r *http.Response) Options {
				return Options{Value: fmt.Sprint(r.Request.Context().Value(key{}), r.Header.Get("Upgrade")),
					Timeout: time.Hour, FromA: []byte("without effect")}
			}
			p.g.OnClose = func(tn *Tunnel, err error) { closed <- []any{tn.Value, err} }
		})
		client, backend := p.dial("")
		p.g.resting(t, 1)
		clock.Advance(time.Hour)
		for _, conn := range []net.Conn{client, backend} {
			if got := lastOf(conn); got != `"", EOF` {
				t.Error(got)
			}
		}
		if got := fmt.Sprint(await.Value(t, closed)); got != "[minetest <nil>]" {
			t.Error(got)
		}
	}
}

// All has the tunnels that are open.
func TestAll(t *testing.T) {
	g, closed := newTunnels(t, &Tunnels{})
	if all := slices.Collect(g.All()); len(all) != 0 {
		t.Error(all)
	}
	var tunnels []*Tunnel
	for range 3 {
		a, _ := conntest.Pair(t, "tcp")
		b, _ := conntest.Pair(t, "tcp")
		tn, err := g.JoinWith(a, b, Options{})
		check.OK(t, err)
		tunnels = append(tunnels, tn)
	}
	tunnels[0].Abort(nil)
	await.Value(t, closed)
	await.Until(t, "two are left", func() bool { return len(slices.Collect(g.All())) == 2 })
	for tn := range g.All() {
		if !slices.Contains(tunnels[1:], tn) {
			t.Error("another tunnel")
		}
		break
	}
}

// A detachable is a connection that a middleware has hijacked, and has to see no longer.
type detachable struct {
	net.Conn
	below  net.Conn
	unread string
}

func (d *detachable) Detach() (net.Conn, []byte) { return d.below, []byte(d.unread) }

type detachableWriter struct{ http.ResponseWriter }

func (w detachableWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	return &detachable{conntest.Opaque(conn), conn, "unread, "}, rw, err
}

// A wrapper that can be detached costs nothing, and what it has read comes first.
func TestHandlerDetach(t *testing.T) {
	for _, parked := range []bool{false, true} {
		p := newProxyRun(t, false, parked, false, func(p *proxyRun) {
			p.around = true
			p.wrap = func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					h.ServeHTTP(detachableWriter{w}, r)
				})
			}
		})
		client, backend := p.dial("")
		conntest.Send(t, client, "question")
		conntest.Expect(t, backend, "unread, question")
		p.g.resting(t, 1)
		if st := p.g.Stats(); st.Unparkable != 0 || st.Accepted != 1 {
			t.Errorf("%+v", st)
		}
		client.Close()
		backend.Close()
		check.OK(t, await.Value(t, p.closed))
	}
}

// A program's own hijacker behind a Handler gets the server's connection.
func TestHandlerWithoutProxy(t *testing.T) {
	p := newProxyRun(t, false, false, false, func(p *proxyRun) {
		p.wrap = func(http.Handler) http.Handler {
			return p.g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				conn, rw, err := http.NewResponseController(w).Hijack()
				check.OK(t, err)
				defer conn.Close()
				if _, ok := conn.(*net.TCPConn); !ok {
					t.Errorf("%T", conn)
				}
				io.WriteString(rw, switching)
				rw.Flush()
				io.CopyN(conn, rw, 5)
			}))
		}
	})
	conn, err := net.Dial("tcp", p.address)
	check.OK(t, err)
	defer conn.Close()
	conntest.Send(t, conn, upgradeRequest+"early")
	conntest.ExpectRest(t, conn, switching+"early")
	if st := p.g.Stats(); st.Accepted != 0 || st.Copied != 0 {
		t.Errorf("%+v", st)
	}
}
