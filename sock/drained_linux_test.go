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

// The calls of a handler between a notification and the next enable decide whether that enable needs a system call.
// If it needs none, data that arrives later is reported. If it needs one, data that is left is reported (X5).
func TestFastEnable(t *testing.T) {
	all := []string{"tcp4", "unix", "udp4", "unixgram"}
	for _, c := range []struct {
		name  string
		kinds []string
		ready func(t *testing.T, peer, s *sock.Socket) // before the notification
		calls func(t *testing.T, peer, s *sock.Socket) // after it
		saved bool                                     // on a backend with kernel edges
		left  bool                                     // a notification must follow
	}{
		{"nothing is done", all, sendOne, func(t *testing.T, peer, s *sock.Socket) {}, false, true},
		{"would block", all, sendOne, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
			recv(t, s, 8, "", sock.ErrWouldBlock)
		}, true, false},
		{"short, of TCP", []string{"tcp4"}, sendOne, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
		}, true, false},
		{"short, of others", []string{"unix", "udp4", "unixgram"}, sendOne, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
		}, false, false},
		{"short, and another is there", []string{"udp4", "unixgram"}, func(t *testing.T, peer, s *sock.Socket) {
			sendOne(t, peer, s)
			sendOne(t, peer, s)
		}, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
		}, false, true},
		{"a full buffer", []string{"tcp4", "unix"}, sendOne, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 3, "one", nil)
		}, false, false},
		{"a part", []string{"tcp4", "unix"}, sendOne, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 2, "on", nil)
		}, false, true},
		{"a part, then short", []string{"tcp4"}, sendOne, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 2, "on", nil)
			recv(t, s, 2, "e", nil)
		}, true, false},
		{"into nothing", []string{"tcp4", "unix"}, sendOne, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 0, "", nil)
		}, false, true},
		{"the end", []string{"tcp4", "unix"}, shutPeer, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "", io.EOF)
		}, false, true},
		{"short before an end that was notified", []string{"tcp4"}, func(t *testing.T, peer, s *sock.Socket) {
			sendOne(t, peer, s)
			shutPeer(t, peer, s)
		}, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
		}, false, true},
		{"short before an urgent byte that was notified", []string{"tcp4"}, func(t *testing.T, peer, s *sock.Socket) {
			sendOne(t, peer, s)
			urgent(t, peer, s)
			waitArrival(t, s, func() { send(t, peer, "two") })
		}, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
		}, false, true},
		{"would block behind an urgent byte", []string{"tcp4"}, func(t *testing.T, peer, s *sock.Socket) {
			sendOne(t, peer, s)
			urgent(t, peer, s)
			waitArrival(t, s, func() { send(t, peer, "two") })
		}, func(t *testing.T, peer, s *sock.Socket) {
			recv(t, s, 8, "one", nil)
			recv(t, s, 8, "two", nil)
			recv(t, s, 8, "", sock.ErrWouldBlock)
		}, false, false}, // a signal makes Linux return EAGAIN too
		{"an error", []string{"tcp4"}, func(t *testing.T, peer, s *sock.Socket) {
			peer.SetLinger(0)
			peer.Close()
			waitPoll(t, s, broken)
		}, func(t *testing.T, peer, s *sock.Socket) {
			if _, err := s.Recv(make([]byte, 8)); !isCause(err, unix.ECONNRESET) {
				t.Fatal(err)
			}
		}, false, true},
		{"the sending side blocks", []string{"tcp4", "unix"}, sendOne, func(t *testing.T, peer, s *sock.Socket) {
			fill(t, s)
		}, false, true},
		{"RecvFrom would block", []string{"udp4"}, sendOne, func(t *testing.T, peer, s *sock.Socket) {
			for _, want := range []error{nil, sock.ErrWouldBlock} {
				if _, _, err := s.RecvFrom(make([]byte, 8)); err != want {
					t.Fatal(err)
				}
			}
		}, true, false},
		{"RecvBatch would block", []string{"udp4", "unixgram"}, sendOne, func(t *testing.T, peer, s *sock.Socket) {
			for _, want := range []error{nil, sock.ErrWouldBlock} {
				if _, err := s.RecvBatch(buffers(4, 8)); err != want {
					t.Fatal(err)
				}
			}
		}, true, false},
		{"RecvBatch of fewer", []string{"udp4"}, sendOne, func(t *testing.T, peer, s *sock.Socket) {
			if n, err := s.RecvBatch(buffers(4, 8)); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			forEachKindIf(t, func(t *testing.T, k kind) {
				onPorts(t, func(t *testing.T, p port) {
					for _, trigger := range []socknotify.Trigger{oneShot, once} {
						peer, s := k.pair(t)
						c.ready(t, peer, s)
						p.enable(s, eventIn|eventHangup, trigger)
						p.next()
						c.calls(t, peer, s)
						if saved := p.enable(s, eventIn|eventHangup, trigger); saved != (c.saved && p.edges()) {
							t.Errorf("%v: the enable was saved: %v", trigger, saved)
						}
						if !c.left {
							p.wantEmpty()
							sendOne(t, peer, s)
						}
						p.next()
						p.remove(s)
					}
				})
			}, func(k kind) bool { return slices.Contains(c.kinds, k.name) })
		})
	}
}

func sendOne(t *testing.T, peer, s *sock.Socket) {
	t.Helper()
	send(t, peer, "one")
	waitPoll(t, s, in)
}

func shutPeer(t *testing.T, peer, s *sock.Socket) {
	t.Helper()
	must(t, peer.Shutdown(sock.ShutWrite))
	waitPoll(t, s, ended)
}

// fill sends until the socket stays full. At first the kernel may still make room after ErrWouldBlock.
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

// With both directions in the filter, a fast enable requires that both have been drained.
func TestFastEnableSend(t *testing.T) {
	needV6(t)
	block := func(t *testing.T, peer, s *sock.Socket) { recv(t, s, 8, "", sock.ErrWouldBlock) }
	part := func(t *testing.T, peer, s *sock.Socket) { send(t, s, "x") }
	full := func(t *testing.T, peer, s *sock.Socket) { fill(t, s) }
	onPorts(t, func(t *testing.T, p port) {
		for _, c := range []struct {
			name   string
			filter socknotify.Events
			calls  []func(t *testing.T, peer, s *sock.Socket)
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
				p.next() // EventOut
				for _, f := range c.calls {
					f(t, peer, s)
				}
				if saved := p.enable(s, c.filter, oneShot); saved != (c.saved && p.edges()) {
					t.Errorf("%s, %s: the enable was saved: %v", k.name, c.name, saved)
				}
				// Receiving makes room, eventually.
				buf, end := make([]byte, 1<<20), time.Now().Add(timeout)
				for n, err := p.poll(); n == 0; n, err = p.poll() {
					if peer.Recv(buf); err != socknotify.ErrTimeout || time.Now().After(end) {
						t.Fatalf("%s, %s: %v", k.name, c.name, err)
					}
				}
				p.remove(s)
			}
		}
	})
}

func TestFastEnableAccept(t *testing.T) {
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
			p.wantEmpty()
		}
	})
}

// An edge registration re-arms as soon as the socket is drained, also on a backend without kernel edges (T2).
func TestEdgeRearm(t *testing.T) {
	onPorts(t, func(t *testing.T, p port) {
		forEachKind(t, func(t *testing.T, k kind) {
			peer, s := k.pair(t)
			p.enable(s, eventIn, edge)
			for range 5 {
				sendOne(t, peer, s)
				p.next()
				recv(t, s, 8, "one", nil)
				if !k.tcp { // for TCP, the short receive is enough
					recv(t, s, 8, "", sock.ErrWouldBlock)
				}
				p.wantEmpty()
			}
			p.remove(s)
		})
	})
}
