package sock_test

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

// forEachUDP runs f with two bound, unconnected sockets.
func forEachUDP(t *testing.T, f func(t *testing.T, a, b *sock.Socket)) {
	t.Run("udp4", func(t *testing.T) {
		f(t, bound(t, sock.UDP4, sock.Loopback), bound(t, sock.UDP4, sock.Loopback))
	})
	t.Run("udp6", func(t *testing.T) {
		needV6(t)
		f(t, bound(t, sock.UDP6, sock.Loopback6), bound(t, sock.UDP6, sock.Loopback6))
	})
}

func TestRecvFrom(t *testing.T) {
	forEachUDP(t, func(t *testing.T, a, b *sock.Socket) {
		buf := make([]byte, 8)
		if n, from, err := b.RecvFrom(buf); n != 0 || from.IsValid() || err != sock.ErrWouldBlock {
			t.Errorf("nothing is there: %d, %v, %v", n, from, err)
		}
		for _, c := range []struct{ sent, want string }{
			{"datagram", "datagram"}, {"", ""}, {"short", "short"}, {"too long for it", "too long"}, {"next", "next"},
		} {
			sendTo(t, a, c.sent, b.LocalAddr())
			waitPoll(t, b, in)
			n, from, err := b.RecvFrom(buf)
			if string(buf[:n]) != c.want || from != a.LocalAddr() || err != nil {
				t.Errorf("%q from %v, %v; want %q", buf[:n], from, err, c.want)
			}
		}
		// With an empty buffer, the whole datagram is lost.
		for _, data := range []string{"lost", "kept"} {
			sendTo(t, a, data, b.LocalAddr())
		}
		waitPoll(t, b, in)
		if n, from, err := b.RecvFrom(nil); n != 0 || from != a.LocalAddr() || err != nil {
			t.Errorf("into nothing: %d from %v, %v", n, from, err)
		}
		wantReceive(t, b, 8, "kept")
	})
}

// Unix sockets and streams return no sender address.
func TestRecvFromWithoutAddress(t *testing.T) {
	for _, k := range kinds {
		if k.name != "unix" && k.name != "unixgram" && k.name != "tcp4" {
			continue
		}
		a, b := k.pair(t)
		send(t, a, "data")
		waitPoll(t, b, in)
		buf := make([]byte, 8)
		if n, from, err := b.RecvFrom(buf); string(buf[:n]) != "data" || from.IsValid() || err != nil {
			t.Errorf("%s: %q from %v, %v", k.name, buf[:n], from, err)
		}
	}
}

func TestSendToFails(t *testing.T) {
	forEachUDP(t, func(t *testing.T, a, b *sock.Socket) {
		other := sock.Loopback6
		if b.LocalAddr().Addr().Is6() {
			other = netip.AddrPortFrom(sock.Loopback.Addr(), b.LocalAddr().Port())
		}
		for _, c := range []struct {
			name  string
			data  []byte
			to    netip.AddrPort
			cause error // nil: any
		}{
			{"no address", []byte("x"), netip.AddrPort{}, unix.EDESTADDRREQ},
			{"another family", []byte("x"), other, nil},
			{"port 0", []byte("x"), netip.AddrPortFrom(b.LocalAddr().Addr(), 0), unix.EINVAL},
			{"too large", make([]byte, 1<<16), b.LocalAddr(), unix.EMSGSIZE},
		} {
			wantError(t, a.SendTo(c.data, c.to), "sendto", a.Handle(), c.cause)
		}
		if _, _, err := b.RecvFrom(make([]byte, 1)); err != sock.ErrWouldBlock {
			t.Errorf("received something: %v", err)
		}
		_, err := a.Send([]byte("x")) // the socket has no peer
		wantError(t, err, "send", a.Handle(), unix.EDESTADDRREQ)
	})
}

// A connected socket reports once that a datagram was sent to a closed port.
func TestDatagramRefused(t *testing.T) {
	for name, receive := range map[string]func(s *sock.Socket) error{
		"recv":     func(s *sock.Socket) error { _, err := s.Recv(make([]byte, 8)); return err },
		"recvfrom": func(s *sock.Socket) error { _, _, err := s.RecvFrom(make([]byte, 8)); return err },
		"recvmmsg": func(s *sock.Socket) error {
			_, err := s.RecvBatch([]sock.Message{{Buf: make([]byte, 8)}})
			return err
		},
		"send":    func(s *sock.Socket) error { _, err := s.Send([]byte("x")); return err },
		"sendmsg": func(s *sock.Socket) error { _, err := s.SendV([][]byte{{1}}); return err },
		"sendmmsg": func(s *sock.Socket) error {
			_, err := s.SendBatch([]sock.Message{{Buf: []byte("x")}})
			return err
		},
	} {
		a, b := udpOn(t, sock.Loopback)
		b.Close()
		send(t, a, "anybody?")
		waitPoll(t, a, broken)
		wantError(t, receive(a), name, a.Handle(), unix.ECONNREFUSED)
		if err := a.Err(); err != nil && name[0] == 'r' {
			t.Errorf("%s: once more: %v", name, err)
		}
	}
}

// Sending on a Unix datagram socket returns ErrWouldBlock when the receiver's queue is full.
func TestDatagramWouldBlock(t *testing.T) {
	for name, call := range map[string]func(s *sock.Socket) error{
		"Send":  func(s *sock.Socket) error { _, err := s.Send(make([]byte, 1000)); return err },
		"SendV": func(s *sock.Socket) error { _, err := s.SendV([][]byte{make([]byte, 1000)}); return err },
		"SendBatch": func(s *sock.Socket) error {
			_, err := s.SendBatch([]sock.Message{{Buf: make([]byte, 1000)}})
			return err
		},
	} {
		a, b := unixPair(t, true)
		n := 0
		err := call(a)
		for ; err == nil; err = call(a) {
			n++
		}
		if err != sock.ErrWouldBlock || n == 0 {
			t.Errorf("%s: after %d: %v", name, n, err)
		}
		for range n {
			if got, err := b.Recv(make([]byte, 2000)); got != 1000 || err != nil {
				t.Fatalf("%s: %d, %v", name, got, err)
			}
		}
		if _, err := b.Recv(make([]byte, 1)); err != sock.ErrWouldBlock {
			t.Errorf("%s: received more than was sent: %v", name, err)
		}
		if err := call(a); err != nil {
			t.Errorf("%s: after receiving: %v", name, err)
		}
	}
}

// A dual-stack socket returns and accepts IPv4-mapped addresses.
func TestDualStackDatagrams(t *testing.T) {
	needV6(t)
	s := newSocket(t, sock.UDP6)
	four := bound(t, sock.UDP4, sock.Loopback)
	mapped := func(a netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
	}
	must(t, errors.Join(s.SetDualStack(true), s.Bind(mapped(sock.Loopback))))
	sendTo(t, four, "there", netip.AddrPortFrom(sock.Loopback.Addr(), s.LocalAddr().Port()))
	waitPoll(t, s, in)
	_, from, err := s.RecvFrom(make([]byte, 8))
	if from != mapped(four.LocalAddr()) || err != nil {
		t.Errorf("from %v, %v", from, err)
	}
	for _, to := range []netip.AddrPort{from, four.LocalAddr()} {
		if err := s.SendTo([]byte("back"), to); err != nil {
			t.Errorf("to %v: %v", to, err)
		} else if got := receive(t, four, 8); got != "back" {
			t.Errorf("%q", got)
		}
	}
}
