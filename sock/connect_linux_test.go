package sock_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/sock"
)

func TestConnectTCP(t *testing.T) {
	onLoopback(t, func(t *testing.T, on netip.AddrPort) {
		l := listen(t, on)
		c := connect(t, l.LocalAddr())
		waitPoll(t, c, out)
		if err := c.Err(); err != nil {
			t.Errorf("connected, but Err = %v", err)
		}
		if c.RemoteAddr() != l.LocalAddr() || c.LocalAddr().Addr() != on.Addr() {
			t.Errorf("%v to %v", c.LocalAddr(), c.RemoteAddr())
		}
		// After an asynchronous connect, the first call of connect reports the result once more
		// (connect(2)).
		if err := c.Connect(l.LocalAddr()); err != nil {
			wantError(t, err, "connect", c.Handle(), unix.EISCONN)
		}
		wantError(t, c.Connect(l.LocalAddr()), "connect", c.Handle(), unix.EISCONN)
	})
}

func TestConnectRefused(t *testing.T) {
	onLoopback(t, func(t *testing.T, on netip.AddrPort) {
		n := sock.NetworkOf(on, sock.TCP4, sock.TCP6)
		nowhere := bound(t, n, on).LocalAddr()
		c := bound(t, n, on)
		if err := c.Connect(nowhere); err != sock.ErrWouldBlock {
			t.Fatal(err)
		}
		waitPoll(t, c, broken)
		if err := c.Err(); !qemu.Is(err, unix.ECONNREFUSED) || errors.Unwrap(err) != nil {
			t.Errorf("Err = %v", err)
		}
		if err := c.Err(); err != nil {
			t.Errorf("Err once more = %v", err)
		}
	})
}

func TestConnectFails(t *testing.T) {
	needV6(t)
	listenUnix(t, abstract("connect"), 0)
	for _, c := range []struct {
		name    string
		network sock.Network
		connect func(s *sock.Socket) error
		cause   error
	}{
		{"no address", sock.TCP4, func(s *sock.Socket) error { return s.Connect(netip.AddrPort{}) }, unix.EDESTADDRREQ},
		{"no address for datagrams", sock.UDP6, func(s *sock.Socket) error { return s.Connect(netip.AddrPort{}) }, unix.EDESTADDRREQ},
		{"another family", sock.TCP4, func(s *sock.Socket) error { return s.Connect(sock.Loopback6) }, unix.EAFNOSUPPORT},
		{"no such path", sock.Unix, func(s *sock.Socket) error { return s.ConnectUnix(filepath.Join(t.TempDir(), "none")) }, unix.ENOENT},
		{"no such name", sock.Unix, func(s *sock.Socket) error { return s.ConnectUnix(abstract("none")) }, unix.ECONNREFUSED},
		{"of datagrams", sock.UnixDatagram, func(s *sock.Socket) error { return s.ConnectUnix(abstract("none")) }, unix.ECONNREFUSED},
		{"path to a TCP socket", sock.TCP4, func(s *sock.Socket) error { return s.ConnectUnix("@x") }, nil},
		{"address to a Unix socket", sock.Unix, func(s *sock.Socket) error { return s.Connect(sock.Loopback) }, unix.EINVAL},
		{"a path too long", sock.Unix, func(s *sock.Socket) error { return s.ConnectUnix(string(make([]byte, 200))) }, unix.EINVAL},
		{"a listener", sock.TCP4, func(s *sock.Socket) error {
			must(t, errors.Join(s.Bind(sock.Loopback), s.Listen(1)))
			return s.Connect(s.LocalAddr())
		}, unix.EISCONN},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSocket(t, c.network)
			wantError(t, c.connect(s), "connect", s.Handle(), c.cause)
		})
	}
}

func TestConnectUnix(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "s"), abstract("full")} {
		l := listenUnix(t, name, 1)
		var waits *sock.Socket
		for connected := 0; ; connected++ { // until the backlog is full
			waits = newSocket(t, sock.Unix)
			if err := waits.ConnectUnix(name); err != nil {
				if connected == 0 || err != sock.ErrWouldBlock {
					t.Fatalf("after %d: %v", connected, err)
				}
				break
			}
		}
		if err := waits.ConnectUnix(name); err != sock.ErrWouldBlock {
			t.Errorf("again: %v", err)
		}
		accept(t, l)
		if err := waits.ConnectUnix(name); err != nil {
			t.Errorf("after an Accept: %v", err)
		}
	}
}

// On a datagram socket Connect sets the peer, and may be called again to change it.
func TestConnectDatagram(t *testing.T) {
	s := bound(t, sock.UDP4, sock.Loopback)
	for range 2 {
		peer := bound(t, sock.UDP4, sock.Loopback)
		stranger := bound(t, sock.UDP4, sock.Loopback)
		if err := s.Connect(peer.LocalAddr()); err != nil || s.RemoteAddr() != peer.LocalAddr() {
			t.Fatalf("%v, to %v", err, s.RemoteAddr())
		}
		send(t, s, "to the peer")
		wantReceive(t, peer, 64, "to the peer")
		// Datagrams from other senders are not received.
		if err := errors.Join(stranger.SendTo([]byte("stranger"), s.LocalAddr()), peer.SendTo([]byte("peer"), s.LocalAddr())); err != nil {
			t.Fatal(err)
		}
		wantReceive(t, s, 64, "peer")
	}
	closedPeer := bound(t, sock.UDP4, sock.Loopback)
	must(t, s.Connect(closedPeer.LocalAddr()))
	closedPeer.Close()
	send(t, s, "anybody?")
	waitPoll(t, s, broken)
	if first, second := s.Err(), s.Err(); !qemu.Is(first, unix.ECONNREFUSED) || errors.Unwrap(first) != nil || second != nil {
		t.Errorf("Err = %v, then %v", first, second)
	}
}

func TestConnectUnixDatagram(t *testing.T) {
	name := abstract("datagrams")
	var ends [2]*sock.Socket
	for i := range ends {
		s, err := sock.New(sock.UnixDatagram)
		ends[i] = closeLater(t, s, err)
	}
	must(t, errors.Join(ends[0].BindUnix(name), ends[1].ConnectUnix(name)))
	send(t, ends[1], "datagram")
	wantReceive(t, ends[0], 64, "datagram")
}
