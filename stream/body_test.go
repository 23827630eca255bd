package stream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/socknotify/socknotify/internal/serving/nethttp"
	"github.com/socknotify/socknotify/park"

	"github.com/socknotify/socknotify/internal/test/check"
	"github.com/socknotify/socknotify/internal/test/conntest"

	"github.com/socknotify/socknotify/internal/test/await"
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
				if errors.Is(err, nethttp.ErrBodyUnread) {
					code = http.StatusBadRequest
				}
				http.Error(w, err.Error(), code)
				return
			}
			s.Write([]byte(switchingAnswer))
			s.Start(early, nil)
		})
		ln := conntest.Listen(t)
		srv := &http.Server{Handler: handler}
		serve := srv.Serve
		if parked {
			serve = (&park.HTTPServer{Server: srv}).Serve
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
			check.OK(t, err)
			defer conn.Close()
			conntest.Send(t, conn, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nX-Read: %s\r\n%s\r\n%safter", c.read, c.header, c.body))
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			check.OK(t, err)
			if r.StatusCode != c.code {
				t.Fatalf("%v: %s, want %d", c, r.Status, c.code)
			}
			if r.StatusCode == 101 {
				if got := await.Value(t, received); got != "after" {
					t.Errorf("%v: received %q", c, got)
				}
				check.Is(t, await.Value(t, closed), io.ErrNoProgress)
			}
		}
		if st := g.Stats(); st.Conns != 0 || st.Accepted != 3 {
			t.Errorf("%+v", st)
		}
	}
}

const switchingAnswer = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n"
