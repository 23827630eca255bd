package gateway

import (
	"cmp"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/internal/test/durationtest"
	"github.com/socknotify/socknotify/park"
)

// awaitTick waits until an idle timeout of another connection has expired on each lot of the
// gateway. A timeout that is over would have ended its connection by then.
func (s *site) awaitTick() {
	s.t.Helper()
	lots := []*park.Lot{s.lot, s.transports.Sockets.Lots()[0]}
	expired := make(chan error, len(lots))
	for _, l := range lots {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(s.t, err)
		defer ln.Close()
		client, err := net.Dial("tcp", ln.Addr().String())
		must(s.t, err)
		defer client.Close()
		conn, err := ln.Accept()
		must(s.t, err)
		must(s.t, l.ParkWith(conn, park.Options{IdleTimeout: 1}, func(conn net.Conn) {
			expired <- conn.Close()
		}))
	}
	for range lots {
		must(s.t, <-expired)
	}
}

// With the longest durations in its fields a gateway works as without timeouts: while clients are
// silent, and while they do not take what is queued for them.
func TestLongestDurations(t *testing.T) {
	durationtest.Longest(t, new(Config), func(t *testing.T, set func(*Config)) {
		c := Config{MaxQueued: 1 << 30, WriteTimeout: readTimeout}
		set(&c)
		c.Stream.MaxAge = cmp.Or(c.Stream.MaxAge, c.Stream.Window) // which must not be longer
		s := newSite(t, t.TempDir(), c)
		sse, err := openSSE(s.url, "topic=a", "")
		must(t, err)
		defer sse.close()
		socket, err := openWS(s.url, "topic=a")
		must(t, err)
		defer socket.close()
		polled := make(chan message, 1)
		poll := &pollReader{url: s.url, topics: []string{"a"}, after: []string{sse.lastID}}
		go func() {
			m, err := poll.next()
			if err != nil {
				t.Error(err)
			}
			polled <- m
		}()
		until(t, "all have joined", func() bool { return s.Stats().Conns == 3 })
		s.awaitTick()
		id := s.publish("a", "first")
		expect(t, sse, message{Data: "first", ID: id})
		expect(t, socket, message{Topic: "a", Data: "first", ID: id})
		if m := <-polled; m.Data != "first" || m.ID != id {
			t.Errorf("polled %+v", m)
		}
		large, n := strings.Repeat("x", 200<<10), 0
		queued := func() bool {
			return s.transports.Events.Stats().QueuedBytes > 0 && s.transports.Sockets.Stats().QueuedBytes > 0
		}
		// The system may take more a little later, as its buffers grow: then there is more to send.
		for !queued() {
			for ; !queued(); n++ {
				s.publish("a", large)
				until(t, "the event was given to both", func() bool {
					st := s.Stats()
					return st.Delivered >= uint64(3+2*(n+1)) || st.TimedOut.Slow > 0
				})
				if s.Stats().TimedOut.Slow > 0 {
					t.Fatal("a client was closed as slow")
				}
			}
			s.awaitTick()
		}
		for range n {
			expect(t, sse, message{Data: large})
			expect(t, socket, message{Topic: "a", Data: large})
		}
		s.access.Draining.Store(true) // from now on clients are told when to come back
		status, body := s.request("GET", "/events?topic=a", "")
		if status != http.StatusServiceUnavailable {
			t.Errorf("%d %s", status, body)
		}
		if st := s.Stats(); st.TimedOut.Slow != 0 || st.TimedOut.Idle != 0 {
			t.Errorf("%+v", st)
		}
	})
}
