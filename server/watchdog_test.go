package server_test

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// If more handlers than there are workers do not return, the other connections are served, and Stats and the log report it.
func TestStuck(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		var log logged
		release := make(chan struct{})
		h := &handler{t: t, data: reading(func(c conn, text string) error {
			if text[0] == '!' {
				<-release
			}
			return write(c, text)
		})}
		s := &srv{Handler: h, Backend: backend, Workers: 2, StuckAfter: 300 * time.Millisecond,
			Logger: log.logger()}
		addr := start(t, s)
		var stuck, good []net.Conn
		for range 5 {
			stuck = append(stuck, dial(t, addr))
		}
		for range 200 {
			good = append(good, dial(t, addr))
		}
		h.conn(205)
		for range 3 {
			for i, c := range good { // those that are dequeued together with one that does not return as well
				if i%40 == 0 && len(stuck) > i/40 {
					stuck[i/40].Write([]byte("!"))
				}
				send(t, c, "hello")
			}
			for _, c := range good {
				expect(t, c, "hello")
			}
		}
		wait(t, func() bool { st := s.Stats(); return st.Stuck >= 5 && st.Longest >= s.StuckAfter })
		wait(t, func() bool { return log.count("does not return") >= 5 })
		close(release)
		for _, c := range stuck {
			expect(t, c, "!")
		}
		wait(t, func() bool { st := s.Stats(); return st.Workers == 2 && st.Longest < s.StuckAfter })
	})
}

// A worker that is alone on its port releases connections only when it has handled all that it has dequeued. If a handler
// does not return, or calls Goexit, the connections that were not released and those that were not begun are served.
func TestStuckAlone(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		for _, exits := range []bool{false, true} {
			const conns = 20
			first, begun := make(chan struct{}), make(chan struct{})
			release, second := make(chan struct{}), make(chan struct{})
			h := &handler{t: t, data: reading(func(c conn, text string) error {
				switch {
				case text[0] == '1':
					close(begun)
					<-first // until all the others have sent
				case text[0] == '2':
					<-second
				case text[0] == '!' && exits:
					runtime.Goexit()
				case text[0] == '!':
					<-release
				}
				return write(c, text)
			})}
			s := &srv{Handler: h, Backend: backend, Workers: 1}
			addr := start(t, s)
			var all []net.Conn
			for range conns {
				all = append(all, dial(t, addr))
			}
			h.conn(conns)
			send(t, all[0], "1")
			<-begun
			for i, c := range all[1:] {
				send(t, c, map[bool]string{true: "!", false: "hello"}[i == conns/2])
			}
			close(first)
			expect(t, all[0], "1")
			for round := range 4 {
				for i, c := range all[1:] {
					if i != conns/2 {
						expect(t, c, "hello")
						if round < 3 {
							send(t, c, "hello")
						}
					}
				}
			}
			if !exits {
				// The handler of a connection that was kept runs when the first worker comes back, which no longer has it.
				kept, late := all[1], all[1+conns/2]
				send(t, kept, "2")
				wait(t, func() bool { return s.Stats().Workers == 3 })
				send(t, kept, "more")
				close(release)
				expect(t, late, "!")
				for range 10 {
					echoes(t, late, "hello")
				}
				close(second)
				expect(t, kept, "2more")
			}
			wait(t, func() bool { return s.Stats().Workers == 1 })
		}
	})
}
