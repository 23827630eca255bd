package park

import (
	"bufio"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
)

// A hijackWriter is a middleware's ResponseWriter with a Hijack method of its own.
type hijackWriter struct {
	http.ResponseWriter
	hijack func(below http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error)
}

func (w hijackWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.hijack(w.ResponseWriter)
}

type unwrapOnly struct{ http.ResponseWriter }

func (w unwrapOnly) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func hijackBelow(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
	return w.(http.Hijacker).Hijack()
}

// The Hijack method of the outermost ResponseWriter is called when a request begins to wait. The
// request waits in the lot also if that method fails, as long as it has not taken the connection.
func TestSuspendAsksHijack(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		hijack func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error)
		below  bool  // the one below has no Hijack method
		failed error // what Suspend returns
		logged string
	}{
		"takes it": {hijack: hijackBelow},
		"wraps it": {hijack: func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			conn, rw, err := hijackBelow(w)
			return conntest.Opaque(conn), rw, err
		}},
		"refuses": {hijack: func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			return nil, nil, refused
		}},
		"expects another below": {hijack: hijackBelow, below: true},
		"takes it and fails": {hijack: func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			hijackBelow(w)
			return nil, nil, refused
		}, failed: refused},
		"panics": {hijack: func(http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			panic("on purpose")
		}, logged: "on purpose"},
		"takes it and panics": {hijack: func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
			hijackBelow(w)
			panic("on purpose")
		}, logged: "on purpose"},
	} {
		for _, kind := range []string{"plain", "TLS"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				calls := make(chan bool, 10)
				logged := new(conntest.Log)
				p := newPoll(t, kind, func(p *poll) { p.Server.ErrorLog = log.New(logged, "", 0) }, func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Path == "/hello" {
							h.ServeHTTP(w, r)
							return
						}
						if c.below {
							w = unwrapOnly{w}
						}
						h.ServeHTTP(unwrapOnly{hijackWriter{w, func(w http.ResponseWriter) (net.Conn, *bufio.ReadWriter, error) {
							calls <- true
							return c.hijack(w)
						}}}, r)
					})
				})
				conn, in := p.dial()
				if c.failed == nil && c.logged == "" {
					q := p.poll(conn, pollText+hello)
					await.Value(t, calls)
					q.Resume()
					p.wantAnswer(in)
					if _, _, body := answered(t, in, "GET"); body != "hello\n" { // what was received is not lost
						t.Errorf("%q", body)
					}
					if text := logged.String(); text != "" {
						t.Errorf("logged %q", text)
					}
				} else {
					conntest.Send(t, conn, pollText)
					if b, err := io.ReadAll(in); err != nil || len(b) > 0 {
						t.Errorf("%q, %v", b, err)
					}
					if c.failed != nil {
						check.Is(t, await.Value(t, p.failed), c.failed)
					}
				}
				await.Until(t, "the request is released, and the panic logged", func() bool {
					return p.Stats().Suspended == 0 && strings.Contains(logged.String(), c.logged)
				})
				conn.Close()
				await.Until(t, "closed", func() bool { return p.closedCount(1) == 1 })
				check.OK(t, p.Shutdown(t.Context()))
			})
		}
	}
}
