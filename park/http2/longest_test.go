package http2

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/durationtest"
	"github.com/socknotify/socknotify/park"
)

// awaitTicks waits until an idle timeout of another connection has expired on the lot of each
// server. A timeout that is over would have ended its connection by then.
func awaitTicks(t *testing.T, servers ...*Server) {
	t.Helper()
	expired := make(chan error, len(servers))
	for _, s := range servers {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer ln.Close()
		client, err := net.Dial("tcp", ln.Addr().String())
		must(t, err)
		defer client.Close()
		conn, err := ln.Accept()
		must(t, err)
		s.mu.Lock()
		lot := s.lot
		s.mu.Unlock()
		must(t, lot.ParkWith(conn, park.Options{IdleTimeout: 1}, func(conn net.Conn) {
			expired <- conn.Close()
		}))
	}
	for range servers {
		must(t, <-expired)
	}
}

// With the longest durations in its fields, and in those of the http.Server, a server works as
// without timeouts: while a connection is idle, while a body arrives and while it is answered. The
// client answers the server's PINGs.
func TestLongestDurations(t *testing.T) {
	like := &Server{Server: &http.Server{HTTP2: new(http.HTTP2Config)}}
	durationtest.Longest(t, like, func(t *testing.T, set func(*Server)) {
		type exchange struct {
			url    string
			client *http.Client
			remote string // of the connection
			body   *io.PipeWriter
			answer chan *http.Response
		}
		var servers []*Server
		var all []*exchange
		for _, secure := range []bool{false, true} {
			s := &Server{Linger: -1, Server: handler(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Remote", r.RemoteAddr)
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				w.Write(b)
			})}
			s.Server.HTTP2 = &http.HTTP2Config{SendPingTimeout: 5 * time.Millisecond}
			set(s)
			e := &exchange{url: serve(t, s, secure), client: client(t)}
			e.answer = make(chan *http.Response)
			answer, _ := get(t, e.client, e.url)
			e.remote = answer.Header.Get("Remote")
			servers, all = append(servers, s), append(all, e)
		}
		awaitTicks(t, servers...)
		for _, e := range all {
			body, w := io.Pipe()
			e.body = w
			go func() {
				answer, err := e.client.Post(e.url, "text/plain", body)
				if err != nil {
					t.Error(err)
				}
				e.answer <- answer
			}()
			_, err := io.WriteString(w, "half ")
			must(t, err)
		}
		awaitTicks(t, servers...)
		for _, e := range all {
			_, err := io.WriteString(e.body, "a body")
			must(t, err)
			e.body.Close()
			answer := <-e.answer
			if answer == nil {
				return
			}
			b, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			if string(b) != "half a body" || err != nil || answer.Header.Get("Remote") != e.remote {
				t.Errorf("%q, %v, from %s, want %s", b, err, answer.Header.Get("Remote"), e.remote)
			}
			if answer, _ := get(t, e.client, e.url); answer.Header.Get("Remote") != e.remote {
				t.Errorf("from %s, want %s", answer.Header.Get("Remote"), e.remote)
			}
		}
	})
}
