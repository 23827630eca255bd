package http2

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/socknotify/socknotify/park/http2/internal/flow"
)

// isParked waits until the server's only connection is parked.
func isParked(t testing.TB, s *Server) {
	t.Helper()
	until(t, "the connection is parked", func() bool { return s.Stats().Parked == 1 })
}

// A connection whose handler waits is parked. The handler can write to it, and what arrives is
// handled: pings, settings, windows, bodies in pieces, resets.
func TestParkedWithStreams(t *testing.T) {
	both(t, func(t *testing.T, secure bool) {
		next, ended := make(chan bool), make(chan error, 1)
		s := &Server{Linger: -1, Server: handler(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/flush":
				for range next {
					io.WriteString(w, "event")
					w.(http.Flusher).Flush()
				}
			case "/read":
				w.(http.Flusher).Flush()
				b, err := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%s %v", b, err)
			case "/large":
				_, err := w.Write(make([]byte, flow.Initial+10))
				ended <- err
			case "/wait":
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				ended <- r.Context().Err()
			}
		})}
		p := dial(t, serve(t, s, secure))

		p.open(1, "/flush", true)
		must(t, p.send())
		for i := range 3 {
			isParked(t, s)
			next <- true
			if i == 0 {
				p.want("1 status 200")
			}
			p.want(`1 data "event" end false`)
			p.synced()
		}
		isParked(t, s)
		close(next)
		p.want(`1 data "" end true`)

		p.open(3, "/read", false)
		must(t, p.send())
		p.want("3 status 200")
		p.WriteData(3, false, []byte("ab"))
		p.WriteData(3, true, []byte("cd"))
		all := append([]byte(nil), p.out.Bytes()...)
		p.out.Reset()
		for _, b := range all {
			isParked(t, s)
			p.out.Write([]byte{b})
			must(t, p.send())
		}
		p.want(`3 data "abcd <nil>" end true`)

		p.open(5, "/large", true)
		must(t, p.send())
		isParked(t, s)
		p.WriteWindowUpdate(5, 1<<20)
		must(t, p.send())
		isParked(t, s)
		p.WriteWindowUpdate(0, 1<<20)
		must(t, p.send())
		must(t, <-ended)
		for f := ""; f != `5 data "" end true`; f = p.next() {
			if f == "the end" {
				t.Fatal(f)
			}
		}

		p.open(7, "/wait", true)
		must(t, p.send())
		p.want("7 status 200")
		isParked(t, s)
		p.WriteRSTStream(7, http2.ErrCodeCancel)
		must(t, p.send())
		if err := <-ended; err == nil {
			t.Error("no error")
		}
		p.open(9, "/wait", true)
		must(t, p.send())
		p.want("9 status 200")
		isParked(t, s)
		p.conn.Close()
		if err := <-ended; err == nil {
			t.Error("no error")
		}
	})
}

// The idle timeout of a connection that was parked with a stream begins when the stream ends, and a
// part of a frame that is older than ReadHeaderTimeout then ends the connection at once.
func TestParkedStreamEnds(t *testing.T) {
	for _, part := range []bool{false, true} {
		proceed := make(chan bool)
		hs := handler(func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			<-proceed
		})
		hs.IdleTimeout, hs.ReadHeaderTimeout = 50*time.Millisecond, 10*time.Millisecond
		if part {
			hs.IdleTimeout = time.Hour
		}
		s := &Server{Linger: -1, Server: hs}
		p := dial(t, serve(t, s, false))
		p.open(1, "/", true)
		must(t, p.send())
		p.want("1 status 200")
		if part {
			p.out.Write(make([]byte, 5))
			must(t, p.send())
			until(t, "the part was received", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				for c := range s.conns {
					c.mu.Lock()
					defer c.mu.Unlock()
					return c.partSince != 0
				}
				return false
			})
		} else {
			until(t, "IdleTimeout has passed twice", func() bool { return s.Stats().Expired >= 2 })
		}
		isParked(t, s)
		proceed <- true
		p.want(`1 data "" end true`, "goaway 1 NO_ERROR", "the end")
	}
}
