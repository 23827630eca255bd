package sock_test

import (
	"io"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

func recv(t *testing.T, s *sock.Socket, size int, want string, end error) {
	t.Helper()
	buf := make([]byte, size)
	if n, err := s.Recv(buf); string(buf[:n]) != want || err != end {
		t.Fatalf("Recv = %q, %v; want %q, %v", buf[:n], err, want, end)
	}
}

// What a handler does between a notification and its next enable decides whether that costs a system call
// (X5). Where it vouches, what comes then is heard of; where it does not, what is left is.
func TestVouching(t *testing.T) {
	all := []string{"tcp4", "unix", "udp4", "unixgram"}
	for _, c := range []struct {
		name  string
		kinds []string
		ready func(t *testing.T, peer, s *sock.Socket) // before the notification
		turn  func(t *testing.T, peer, s *sock.Socket) // after it
		saved bool                                     // on a kernel with edges
		left  bool                                     // something to be notified of
	}{
		{"nothing is done", all, one, func(t *testing.T, peer, s *sock.Socket) {}, false, true},
		{"would block", all, one, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
			recv(t, s, 8, "", sock.ErrWouldBlock)
		}, true, false},
		{"short, of TCP", []string{"tcp4"}, one, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
		}, true, false},
		{"short, of others", []string{"unix", "udp4", "unixgram"}, one, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
		}, false, false},
		{"short, and another is there", []string{"udp4", "unixgram"}, func(t *testing.T, peer, s *sock.Socket) {
			one(t, peer, s)
			one(t, peer, s)
		}, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
		}, false, true},
		{"a full buffer", []string{"tcp4", "unix"}, one, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 3, "one", nil)
		}, false, false},
		{"a part", []string{"tcp4", "unix"}, one, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 2, "on", nil)
		}, false, true},
		{"a part, then short", []string{"tcp4"}, one, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 2, "on", nil)
			recv(t, s, 2, "e", nil)
		}, true, false},
		{"into nothing", []string{"tcp4", "unix"}, one, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 0, "", nil)
		}, false, true},
		{"the end", []string{"tcp4", "unix"}, shut, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "", io.EOF)
		}, false, true},
		{"short before an end that was notified", []string{"tcp4"}, func(t *testing.T, peer, s *sock.Socket) {
			one(t, peer, s)
			shut(t, peer, s)
		}, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
		}, false, true},
		{"short before an urgent byte that was notified", []string{"tcp4"}, func(t *testing.T, peer, s *sock.Socket) {
			one(t, peer, s)
			urgent(t, peer, s)
			settled(t, s, func() { send(t, peer, "two") })
		}, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
		}, false, true},
		{"would block behind an urgent byte", []string{"tcp4"}, func(t *testing.T, peer, s *sock.Socket) {
			one(t, peer, s)
			urgent(t, peer, s)
			settled(t, s, func() { send(t, peer, "two") })
		}, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
			recv(t, s, 8, "two", nil)
			recv(t, s, 8, "", sock.ErrWouldBlock)
		}, false, false}, // a signal makes Linux say so too
		{"an error", []string{"tcp4"}, func(t *testing.T, peer, s *sock.Socket) {
			peer.SetLinger(0)
			peer.Close()
			settle(t, s, broken)
		}, func(t *testing.T, peer, s *sock.Socket) {
			if _, err := s.Recv(make([]byte, 8)); !isCause(err, unix.ECONNRESET) {
				t.Fatal(err)
			}
		}, false, true},
		{"the sending side blocks", []string{"tcp4", "unix"}, one, func(t *testing.T, peer, s *sock.Socket) {
			fill(t, s)
		}, false, true},
		{"RecvFrom would block", []string{"udp4"}, one, func(t *testing.T, peer, s *sock.Socket) {
			for _, want := range []error{nil, sock.ErrWouldBlock} {
				if _, _, err := s.RecvFrom(make([]byte, 8)); err != want {
					t.Fatal(err)
				}
			}
		}, true, false},
		{"RecvBatch would block", []string{"udp4", "unixgram"}, one, func(t *testing.T, peer, s *sock.Socket) {
			for _, want := range []error{nil, sock.ErrWouldBlock} {
				if _, err := s.RecvBatch(room(4, 8)); err != want {
					t.Fatal(err)
				}
			}
		}, true, false},
		{"RecvBatch of fewer", []string{"udp4"}, one, func(t *testing.T, peer, s *sock.Socket) {
			if n, err := s.RecvBatch(room(4, 8)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			on(t, func(t *testing.T, k kind) {
				onPorts(t, func(t *testing.T, p port) {
					for _, trigger := range []socknotify.Trigger{oneShot, once} {
						peer, s := k.pair(t)
						c.ready(t, peer, s)
						p.enable(s, eventIn|eventHangup, trigger)
						p.next()
						c.turn(t, peer, s)
						if saved := p.enable(s, eventIn|eventHangup, trigger); saved != (c.saved && p.edges()) {
							t.Errorf("%v: the enable was saved: %v", trigger, saved)
						}
						if !c.left {
							p.none()
							one(t, peer, s)
						}
						p.next()
						p.forget(s)
					}
				})
			}, func(k kind) bool { return slices.Contains(c.kinds, k.name) })
		})
	}
}

func one(t *testing.T, peer, s *sock.Socket) {
	t.Helper()
	send(t, peer, "one")
	settle(t, s, in)
}

func shut(t *testing.T, peer, s *sock.Socket) {
	t.Helper()
	if err := peer.Shutdown(sock.ShutWrite); err != nil {
		t.Fatal(err)
	}
	settle(t, s, ended)
}

// fill sends until that would block for good: the peer's side may make room at first.
func fill(t *testing.T, s *sock.Socket) {
	t.Helper()
	data := make([]byte, 64<<10)
	for quiet := 0; quiet < 3; {
		_, err := s.Send(data)
		switch {
		case err == nil:
			quiet = 0
		case err != sock.ErrWouldBlock:
			t.Fatal(err)
		default:
			quiet++
			fds := []unix.PollFd{{Fd: int32(s.Handle()), Events: out}}
			unix.Poll(fds, 5)
		}
	}
}

// A receive from before the notification was dequeued says nothing of what that is for.
func TestVouchedTooEarly(t *testing.T) {
	onPorts(t, func(t *testing.T, p port) {
		peer, s := tcpOn(t, sock.Loopback)
		p.enable(s, eventIn, oneShot)
		one(t, peer, s)
		recv(t, s, 8, "one", nil)
		recv(t, s, 8, "", sock.ErrWouldBlock)
		one(t, peer, s)
		p.next()
		if p.enable(s, eventIn, oneShot) {
			t.Error("the enable was saved")
		}
		p.next()
		p.forget(s)
	})
}

// A filter of both directions is vouched for by both.
func TestVouchingForSends(t *testing.T) {
	block := func(t *testing.T, peer, s *sock.Socket) { recv(t, s, 8, "", sock.ErrWouldBlock) }
	part := func(t *testing.T, peer, s *sock.Socket) { send(t, s, "x") }
	full := func(t *testing.T, peer, s *sock.Socket) { fill(t, s) }
	onPorts(t, func(t *testing.T, p port) {
		for _, c := range []struct {
			name   string
			filter socknotify.Events
			turn   []func(t *testing.T, peer, s *sock.Socket)
			saved  bool
		}{
			{"out, sent", eventOut, []func(t *testing.T, peer, s *sock.Socket){part}, false},
			{"out, full", eventOut, []func(t *testing.T, peer, s *sock.Socket){full}, true},
			{"out, drained", eventOut, []func(t *testing.T, peer, s *sock.Socket){block}, false},
			{"both, full", eventIn | eventOut, []func(t *testing.T, peer, s *sock.Socket){full}, false},
			{"both, drained", eventIn | eventOut, []func(t *testing.T, peer, s *sock.Socket){block}, false},
			{"both, full and drained", eventIn | eventOut, []func(t *testing.T, peer, s *sock.Socket){full, block}, true},
			{"hang-up and out, full", eventOut | eventHangup, []func(t *testing.T, peer, s *sock.Socket){full}, false},
		} {
			for _, k := range kinds {
				if !k.stream {
					continue
				}
				peer, s := k.pair(t)
				p.enable(s, c.filter, oneShot)
				p.next() // it can send
				for _, f := range c.turn {
					f(t, peer, s)
				}
				if saved := p.enable(s, c.filter, oneShot); saved != (c.saved && p.edges()) {
					t.Errorf("%s, %s: the enable was saved: %v", k.name, c.name, saved)
				}
				// Then there is room again, sooner or later.
				buf, end := make([]byte, 1<<20), time.Now().Add(soon)
				for n, err := p.try(); n == 0; n, err = p.try() {
					if peer.Recv(buf); err != socknotify.ErrTimeout || time.Now().After(end) {
						t.Fatalf("%s, %s: %v", k.name, c.name, err)
					}
				}
				p.forget(s)
			}
		}
	})
}

func TestVouchingForAccepts(t *testing.T) {
	onPorts(t, func(t *testing.T, p port) {
		l := listen(t, sock.Loopback)
		p.enable(l, eventIn, oneShot)
		for _, drain := range []bool{false, true, true} {
			connect(t, l.LocalAddr())
			p.next()
			accept(t, l)
			if drain {
				if _, err := l.Accept(); err != sock.ErrWouldBlock {
					t.Fatal(err)
				}
			}
			if saved := p.enable(l, eventIn, oneShot); saved != (drain && p.edges()) {
				t.Errorf("the enable was saved: %v", saved)
			}
			p.none()
		}
	})
}

// Drained is enough for an edge registration to go on, on a kernel without edges as well (T2).
func TestEdgesGoOn(t *testing.T) {
	onPorts(t, func(t *testing.T, p port) {
		onEach(t, func(t *testing.T, k kind) {
			peer, s := k.pair(t)
			p.enable(s, eventIn, edge)
			for range 5 {
				one(t, peer, s)
				p.next()
				recv(t, s, 8, "one", nil)
				if !k.tcp { // of a TCP stream, the short receive is enough
					recv(t, s, 8, "", sock.ErrWouldBlock)
				}
				p.none()
			}
			p.forget(s)
		})
	})
}
