package park

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// The connection of a request is not taken over as long as a part of its body is on it: that would
// be taken for what follows. net/http's own field is read for that. If a Go release renames it, this
// test fails.
func TestTakeOverBody(t *testing.T) {
	for _, parked := range []bool{false, true} {
		received := make(chan string, 10)
		g, closed := newStreams(t, &Streams{OnInput: func(s *Stream, b []byte) error {
			received <- string(b)
			return io.ErrNoProgress
		}})
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Header.Get("X-Read") {
			case "a part":
				io.ReadFull(r.Body, make([]byte, 2))
			case "all":
				io.Copy(io.Discard, r.Body)
			}
			s := new(Stream)
			early, err := g.OpenHTTP(s, w)
			if err != nil {
				code := http.StatusInternalServerError
				if errors.Is(err, ErrBodyUnread) {
					code = http.StatusBadRequest
				}
				http.Error(w, err.Error(), code)
				return
			}
			s.Write([]byte(switching))
			s.Start(early, nil)
		})
		ln := newListening(t)
		srv := &http.Server{Handler: handler}
		serve := srv.Serve
		if parked {
			serve = (&HTTPServer{Server: srv}).Serve
		}
		go serve(ln)
		t.Cleanup(func() { srv.Close() })
		for _, c := range []struct {
			read, header, body string
			code               int
		}{
			{"", "Content-Length: 0\r\n", "", 101},
			{"", "Content-Length: 4\r\n", "body", 400},
			{"a part", "Content-Length: 4\r\n", "body", 400},
			{"all", "Content-Length: 4\r\n", "body", 101},
			{"", "Transfer-Encoding: chunked\r\n", "4\r\nbody\r\n0\r\n\r\n", 400},
			{"a part", "Transfer-Encoding: chunked\r\n", "4\r\nbody\r\n0\r\n\r\n", 400},
			{"all", "Transfer-Encoding: chunked\r\n", "4\r\nbody\r\n0\r\n\r\n", 101},
			{"", "Expect: 100-continue\r\nContent-Length: 4\r\n", "body", 400},
		} {
			conn, err := net.Dial("tcp", ln.Addr().String())
			must(t, err)
			defer conn.Close()
			send(t, conn, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nX-Read: %s\r\n%s\r\n%safter", c.read, c.header, c.body))
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			if r.StatusCode != c.code {
				t.Fatalf("%v: %s, want %d", c, r.Status, c.code)
			}
			if r.StatusCode == 101 {
				if got := receive(t, received); got != "after" {
					t.Errorf("%v: received %q", c, got)
				}
				wantErr(t, receive(t, closed), io.ErrNoProgress)
			}
		}
		if st := g.Stats(); st.Conns != 0 || st.Accepted != 3 {
			t.Errorf("%+v", st)
		}
	}
}

// A proxy's client is not upgraded before the backend was sent its whole request, also if the backend
// does not wait for that.
func TestReverseProxyUnreadBody(t *testing.T) {
	for _, parked := range []bool{false, true} {
		failed := make(chan error, 10)
		p := newProxyRun(t, false, parked, false, func(p *proxyRun) {
			p.proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
				failed <- err
				w.WriteHeader(http.StatusBadGateway)
			}
		})
		for _, c := range []struct {
			body string
			code int
		}{{"he", http.StatusBadGateway}, {"hello", http.StatusSwitchingProtocols}} {
			conn, err := net.Dial("tcp", p.address)
			must(t, err)
			defer conn.Close()
			head := "POST / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: test\r\nContent-Length: 5\r\n\r\n"
			p.read.Store(int64(len(c.body)))
			send(t, conn, head+c.body)
			if c.code != http.StatusSwitchingProtocols {
				if err := receive(t, failed); !strings.Contains(err.Error(), ErrBodyUnread.Error()) {
					t.Error(err)
				}
				send(t, conn, "llo") // net/http does not answer before
			}
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			if r.StatusCode != c.code {
				t.Errorf("with %q of the body: %s", c.body, r.Status)
			}
			receive(t, p.accepted).Close()
			receive(t, p.returned)
		}
		if st := p.g.Stats(); st.Accepted != 1 {
			t.Errorf("%+v", st)
		}
	}
}
