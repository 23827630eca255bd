package park

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/traps"
)

// A hook of a Server that panics or calls Goexit costs one connection.
func TestServerTraps(t *testing.T) {
	traps.EachKind(t, []string{"Handler", "Open", "Closed"}, func(t *testing.T, c *traps.Client) {
		ln, unwrap := c.Listen()
		s := &Server{Logger: c.P.Logger(), Unwrap: unwrap,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}},
			Closed:    func(net.Conn, error) { c.P.Call("Closed") }}
		echo := func(conn net.Conn) error {
			c.P.Call("Handler")
			var b [4]byte
			if _, err := io.ReadFull(conn, b[:]); err != nil {
				return err
			}
			_, err := conn.Write(b[:])
			return err
		}
		s.Open = func(net.Conn) (func(net.Conn) error, error) {
			c.P.Call("Open")
			return echo, nil
		}
		traps.Background(t, func() {
			if c.Secure() {
				s.ServeTLS(ln, "", "")
			} else {
				s.Serve(ln)
			}
		})
		c.Talk("text")
		c.P.Check(t, traps.Server{Conns: func() int { return s.Stats().Conns },
			Panics: func() uint64 { return s.Stats().Panics }, Shutdown: s.Shutdown})
	})
}

// A hook of an HTTPServer costs one connection. Those that run in a handler are net/http's.
func TestHTTPServerTraps(t *testing.T) {
	hooks := []string{"StateActive", "StateIdle", "register", "then", "StateClosed"}
	traps.EachKind(t, hooks, func(t *testing.T, c *traps.Client) {
		ln, unwrap := c.Listen()
		waits := make(chan *Suspended, 10)
		s := &HTTPServer{Linger: -1, Unwrap: unwrap}
		s.Server = &http.Server{ErrorLog: log.New(c.P, "", 0),
			TLSConfig:    &tls.Config{Certificates: []tls.Certificate{conntest.Certificate(t)}, NextProtos: []string{"http/1.1"}},
			TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
			ConnState: func(_ net.Conn, state http.ConnState) {
				switch state {
				case http.StateActive:
					c.P.Call("StateActive")
				case http.StateIdle:
					c.P.Call("StateIdle")
				case http.StateClosed:
					c.P.Call("StateClosed") // after its panic net/http would end the process
				}
			},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/wait" {
					Suspend(w, r, func(q *Suspended) { c.P.Call("register"); q.Resume() },
						func(w http.ResponseWriter, r *http.Request, _ *Suspended) { c.P.Call("then"); io.WriteString(w, "x") })
					return
				}
				io.WriteString(w, "x")
			})}
		traps.Background(t, func() {
			if c.Secure() {
				s.ServeTLS(ln, "", "")
			} else {
				s.Serve(ln)
			}
		})
		conn := c.Dial()
		in := bufio.NewReader(conn)
		ok := true
		for i := 0; i < 4 && ok; i++ {
			_, err := io.WriteString(conn, request("GET", []string{"/", "/wait"}[i%2]))
			if err == nil {
				var r *http.Response
				if r, err = http.ReadResponse(in, nil); err == nil {
					_, err = io.Copy(io.Discard, r.Body)
				}
			}
			ok = err == nil
			if ok {
				await.Until(t, "parked", func() bool { return s.Stats().Parked == 1 || c.P.Sprung() })
			}
		}
		if c.P.Sprung() {
			c.P.Rest(t, conn)
		} else {
			conn.Close()
		}
		close(waits)
		c.P.Check(t, traps.Server{Conns: func() int { return s.Stats().Conns }, NetHTTP: c.P.Hook != "Unwrap",
			Panics: func() uint64 { return s.Stats().Panics }, Shutdown: s.Shutdown})
	})
}

// A Listener goes on after its hook.
func TestListenerTraps(t *testing.T) {
	for _, kind := range []string{"wrapped"} {
		traps.Each(t, []string{"Unwrap"}, func(t *testing.T, p *traps.Trap) {
			c := &traps.Client{T: t, P: p, Kind: kind}
			ln, unwrap := c.Listen()
			l := ListenerConfig{Unwrap: unwrap, Logger: p.Logger()}.Listener(ln)
			traps.Background(t, func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go func() {
						io.CopyN(conn, conn, 8)
						conn.Close()
					}()
				}
			})
			t.Cleanup(func() { l.Close() })
			for range 3 {
				conn := c.Dial()
				traps.Exchanged(conn, "text", 4)
				traps.Exchanged(conn, "text", 4)
				conn.SetReadDeadline(time.Now().Add(2 * conntest.Timeout))
				if _, err := io.Copy(io.Discard, conn); serving.IsTimeout(err) {
					t.Error("the connection was left open")
				}
				conn.Close()
			}
			for n := range 2 { // the trap may be sprung by the first
				last := c.Dial()
				went := traps.Exchanged(last, "text", 4)
				last.Close()
				if went {
					break
				} else if n > 0 {
					t.Error("the listener does not go on")
				}
			}
			p.Check(t, traps.Server{Conns: func() int { return l.Stats().Parked },
				Panics: func() uint64 { return l.Stats().Panics }, Shutdown: func(context.Context) error { return l.Close() }})
		})
	}
}
