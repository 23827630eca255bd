package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/soheilhy/cmux"
	"golang.org/x/net/netutil"

	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/park"
)

const timeout = time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func waitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	await.Until(t, what, holds)
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln
}

type embedding struct{ net.Listener }

type embeddedConn struct{ net.Conn }

func (l embedding) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &embeddedConn{conn}, nil
}

// idle is the number of idle connections of a test, and limit that of LimitListener.
const idle, limit = 10, 12

// A wrapper is a listener that wraps another.
type wrapper struct {
	name, header string // the header is what a client sends first
	wrap         func(t testing.TB, ln net.Listener) net.Listener
}

var wrappers = []wrapper{
	{"LimitListener", "", func(_ testing.TB, ln net.Listener) net.Listener { return netutil.LimitListener(ln, limit) }},
	{"go-proxyproto", "PROXY TCP4 192.0.2.1 192.0.2.2 1234 80\r\n", func(_ testing.TB, ln net.Listener) net.Listener {
		return &proxyproto.Listener{Listener: ln}
	}},
	{"cmux", "", func(t testing.TB, ln net.Listener) net.Listener {
		mux := cmux.New(ln)
		matched := mux.Match(cmux.PrefixMatcher("GET ", "echo"), cmux.Any())
		done := make(chan struct{})
		go func() {
			mux.Serve()
			close(done)
		}()
		if t != nil { // nil in a server that runs to the end of its process
			t.Cleanup(func() {
				ln.Close()
				mux.Close()
				<-done
			})
		}
		return matched
	}},
	{"embedded", "", func(_ testing.TB, ln net.Listener) net.Listener { return embedding{ln} }},
}

func dial(t testing.TB, ln net.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", ln.Addr().String())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(timeout))
	return conn
}

// exchange sends text, and expects it as the answer.
func exchange(t testing.TB, conn net.Conn, header, text string) {
	t.Helper()
	_, err := io.WriteString(conn, header+text) // in one segment
	must(t, err)
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != text {
		t.Fatalf("%q, %v; want %q", buf, err, text)
	}
}

func echo(conn net.Conn) error {
	var buf [64]byte
	n, err := conn.Read(buf[:])
	if err == nil {
		_, err = conn.Write(buf[:n])
	}
	return err
}

// With each wrapper all idle connections of a Server park, and the wrapper works: LimitListener counts right after parked
// connections have ended, and a header with data behind it in one segment is not waited for again.
func TestServer(t *testing.T) {
	for _, w := range wrappers {
		t.Run(w.name, func(t *testing.T) {
			ln := listen(t)
			server := park.Server{Handler: echo}
			remote := make(chan string, 1000)
			server.Open = func(conn net.Conn) (func(net.Conn) error, error) {
				remote <- conn.RemoteAddr().String()
				return echo, nil
			}
			served := make(chan error, 1)
			go func() { served <- server.Serve(w.wrap(t, ln)) }()
			for range 2 { // the second round has room again
				var conns []net.Conn
				for range idle {
					conns = append(conns, dial(t, ln))
				}
				if w.name != "cmux" { // it reads before it accepts
					waitFor(t, "parked before the first byte", func() bool { return server.Stats().Parked == idle })
				}
				for _, conn := range conns {
					exchange(t, conn, w.header, "echo one")
				}
				for range 3 {
					waitFor(t, "parked", func() bool { n := server.Stats(); return n.Parked == idle && n.Running == 0 })
					for _, conn := range conns {
						exchange(t, conn, "", "echo more")
					}
				}
				for _, conn := range conns {
					if address := <-remote; (address == "192.0.2.1:1234") != (w.header != "") {
						t.Errorf("remote address %s", address)
					}
					conn.Close()
				}
				waitFor(t, "ended", func() bool { return server.Stats().Conns == 0 })
			}
			if n := server.Stats(); n.Unparkable != 0 {
				t.Errorf("%+v", n)
			}
			server.Close()
			if err := <-served; !errors.Is(err, park.ErrServerClosed) {
				t.Error(err)
			}
			must(t, server.Shutdown(context.Background()))
		})
	}
}

// The same with a Lot, to which each connection is given when it is accepted.
func TestLot(t *testing.T) {
	for _, w := range wrappers {
		t.Run(w.name, func(t *testing.T) {
			ln := listen(t)
			lot, err := park.New(park.Config{})
			must(t, err)
			var serve func(net.Conn)
			serve = func(conn net.Conn) {
				if echo(conn) != nil || lot.Park(conn, serve) != nil {
					conn.Close()
				}
			}
			wrapped := w.wrap(t, ln)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					conn, err := wrapped.Accept()
					if err != nil {
						return
					}
					if err := lot.Park(conn, serve); err != nil {
						conn.Close()
					}
				}
			}()
			var conns []net.Conn
			for range idle {
				conn := dial(t, ln)
				conns = append(conns, conn)
				exchange(t, conn, w.header, "echo one") // cmux waits for more than the prefix that it matches
			}
			for range 3 {
				waitFor(t, "parked", func() bool { n := lot.Stats(); return n.Parked == idle && n.Running == 0 })
				for _, conn := range conns {
					exchange(t, conn, "", "echo more")
				}
			}
			must(t, lot.Shutdown(context.Background()))
			ln.Close()
			wrapped.Close()
			<-done
		})
	}
}

// With each wrapper all idle connections of an HTTPServer park.
func TestHTTPServer(t *testing.T) {
	for _, w := range wrappers {
		t.Run(w.name, func(t *testing.T) {
			ln := listen(t)
			server := park.HTTPServer{Linger: time.Millisecond, Server: &http.Server{Handler: http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })}}
			served := make(chan error, 1)
			go func() { served <- server.Serve(w.wrap(t, ln)) }()
			var conns []net.Conn
			for range idle {
				conns = append(conns, dial(t, ln))
			}
			header := w.header
			for range 3 {
				for _, conn := range conns {
					_, err := io.WriteString(conn, header+"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
					must(t, err)
					answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
					must(t, err)
					text, err := io.ReadAll(answer.Body)
					if err != nil || (string(text) == "192.0.2.1:1234") != (w.header != "") {
						t.Errorf("%q, %v", text, err)
					}
				}
				header = ""
				waitFor(t, "parked", func() bool { return server.Stats().Parked == idle })
			}
			server.Close()
			<-served
			must(t, server.Shutdown(context.Background()))
		})
	}
}
