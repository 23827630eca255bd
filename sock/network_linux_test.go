package sock_test

import (
	"errors"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/sock"
)

func TestNew(t *testing.T) {
	needV6(t)
	handles.NoneLeft(t, "")
	for _, c := range []struct {
		network     sock.Network
		name        string
		domain, typ int
	}{
		{sock.TCP4, "tcp4", unix.AF_INET, unix.SOCK_STREAM},
		{sock.TCP6, "tcp6", unix.AF_INET6, unix.SOCK_STREAM},
		{sock.UDP4, "udp4", unix.AF_INET, unix.SOCK_DGRAM},
		{sock.UDP6, "udp6", unix.AF_INET6, unix.SOCK_DGRAM},
		{sock.Unix, "unix", unix.AF_UNIX, unix.SOCK_STREAM},
		{sock.UnixDatagram, "unixgram", unix.AF_UNIX, unix.SOCK_DGRAM},
	} {
		if c.network.String() != c.name {
			t.Errorf("String = %q, want %q", c.network, c.name)
		}
		s := newSocket(t, c.network)
		if d, typ := option(t, s, unix.SOL_SOCKET, unix.SO_DOMAIN), option(t, s, unix.SOL_SOCKET, unix.SO_TYPE); d != c.domain || typ != c.typ {
			t.Errorf("%s is of domain %d, type %d", c.name, d, typ)
		}
		checkFlags(t, s)
	}
	for _, n := range []sock.Network{-1, sock.UnixDatagram + 1, math.MaxInt} {
		s, err := sock.New(n)
		if s != nil || n.String() != "invalid" {
			t.Errorf("New(%d) = %v, %s", int(n), s, n)
		}
		wantError(t, err, "socket", none, os.ErrInvalid)
	}
}

// checkFlags verifies that a socket is non-blocking and close-on-exec.
func checkFlags(t *testing.T, s *sock.Socket) {
	t.Helper()
	if blocking(t, s.Handle()) {
		t.Error("the socket is in blocking mode")
	}
	if flags, err := unix.FcntlInt(s.Handle(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the descriptor is inherited by child processes: %#x, %v", flags, err)
	}
}

func TestUnixPair(t *testing.T) {
	for _, datagram := range []bool{false, true} {
		a, b := unixPair(t, datagram)
		checkFlags(t, a)
		checkFlags(t, b)
		for range 2 {
			send(t, a, "ping")
			wantReceive(t, b, 64, "ping")
			a, b = b, a
		}
	}
}

// If descriptors run out, each call that creates one returns the error and leaves no descriptor behind.
func TestExhausted(t *testing.T) {
	handles.NoneLeft(t, "")
	l := listen(t, sock.Loopback)
	connect(t, l.LocalAddr())
	waitPoll(t, l, in)
	restore := exhaust(t, 1)
	last := newSocket(t, sock.TCP4)
	_, err := sock.New(sock.TCP4)
	wantError(t, err, "socket", none, unix.EMFILE)
	_, _, err2 := sock.UnixPair(false)
	wantError(t, err2, "socketpair", none, unix.EMFILE)
	_, err3 := l.Accept()
	wantError(t, err3, "accept", l.Handle(), unix.EMFILE)
	_, err4 := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
	_, err5 := sock.ListenUnix(abstract("exhausted"), sock.ListenOptions{})
	for _, err := range []error{err, err2, err3, err4, err5} {
		if !sock.IsExhausted(err) {
			t.Errorf("IsExhausted(%v) = false", err)
		}
	}
	last.Close()
	if s, err := l.Accept(); err != nil { // the connection is still pending
		t.Error(err)
	} else {
		s.Close()
	}
	restore()
	for _, err := range []error{nil, sock.ErrWouldBlock, unix.EBADF, &sock.Error{Op: "x", Err: unix.EADDRINUSE}} {
		if sock.IsExhausted(err) {
			t.Errorf("IsExhausted(%v) = true", err)
		}
	}
	for _, err := range []error{unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if !sock.IsExhausted(&sock.Error{Op: "x", Err: err}) {
			t.Errorf("IsExhausted(%v) = false", err)
		}
	}
}

func TestNetworkOf(t *testing.T) {
	for a, want := range map[string]sock.Network{
		"127.0.0.1:1": sock.UDP4, "[::1]:1": sock.UDP6, "[::ffff:127.0.0.1]:1": sock.UDP6, "[fe80::1%lo]:1": sock.UDP6,
	} {
		if got := sock.NetworkOf(netip.MustParseAddrPort(a), sock.UDP4, sock.UDP6); got != want {
			t.Errorf("NetworkOf(%s) = %s", a, got)
		}
	}
}

func TestBind(t *testing.T) {
	needV6(t)
	taken := bound(t, sock.UDP4, sock.Loopback).LocalAddr()
	for _, c := range []struct {
		name    string
		network sock.Network
		to      netip.AddrPort
		cause   error // nil if it succeeds
	}{
		{"IPv4", sock.TCP4, sock.Loopback, nil},
		{"IPv6", sock.TCP6, sock.Loopback6, nil},
		{"IPv4 datagrams", sock.UDP4, sock.Loopback, nil},
		{"IPv6 datagrams", sock.UDP6, sock.Loopback6, nil},
		{"in use", sock.UDP4, taken, unix.EADDRINUSE},
		{"no address", sock.TCP4, netip.AddrPort{}, unix.EDESTADDRREQ},
		{"another family", sock.TCP6, sock.Loopback, unix.EINVAL},
		{"not ours", sock.TCP4, netip.MustParseAddrPort("192.0.2.1:0"), unix.EADDRNOTAVAIL},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSocket(t, c.network)
			err := s.Bind(c.to)
			if c.cause != nil {
				wantError(t, err, "bind", s.Handle(), c.cause)
				return
			}
			a := s.LocalAddr()
			if err != nil || a.Addr() != c.to.Addr() || a.Port() == 0 || s.RemoteAddr().IsValid() {
				t.Fatalf("at %v, %v, peer %v", a, err, s.RemoteAddr())
			}
			wantError(t, s.Bind(c.to), "bind", s.Handle(), unix.EINVAL) // Bind again
		})
	}
}

func TestUnknownZone(t *testing.T) {
	if qemu.BreaksNetlink.Here() {
		t.Skip(qemu.BreaksNetlink)
	}
	needV6(t)
	a := netip.MustParseAddrPort("[fe80::1%no-such-interface]:7")
	s := newSocket(t, sock.UDP6)
	for op, err := range map[string]error{"bind": s.Bind(a), "connect": s.Connect(a), "sendto": s.SendTo(nil, a)} {
		wantError(t, err, op, s.Handle(), nil)
		if err != nil && !strings.Contains(err.Error(), "no such network interface") {
			t.Errorf("%v", err)
		}
	}
}

func TestBindUnix(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	for _, n := range []sock.Network{sock.Unix, sock.UnixDatagram} {
		for _, c := range []struct {
			name  string
			cause error
		}{
			{path, nil},
			{path, unix.EADDRINUSE},
			{abstract("bind"), nil},
			{filepath.Join(dir, "none", "s"), unix.ENOENT},
			{strings.Repeat("x", 108), unix.EINVAL},
		} {
			s := newSocket(t, n)
			if got := s.LocalPath(); got != "" {
				t.Errorf("%s: before Bind: %q", n, got)
			}
			err := s.BindUnix(c.name)
			if c.cause != nil {
				wantError(t, err, "bind", s.Handle(), c.cause)
				continue
			}
			if err != nil || s.LocalPath() != c.name {
				t.Errorf("%s: %q is bound to %q, %v", n, c.name, s.LocalPath(), err)
			}
			if s.LocalAddr().IsValid() || s.RemoteAddr().IsValid() {
				t.Errorf("%s: %v, %v", n, s.LocalAddr(), s.RemoteAddr())
			}
			defer s.Close()
			if strings.HasPrefix(c.name, "@") {
				s.Close() // the other network uses the same path
			}
		}
		if fi, err := os.Stat(path); err != nil || fi.Mode().Type() != fs.ModeSocket {
			t.Errorf("%v, %v", fi, err)
		}
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
	s := newSocket(t, sock.Unix)
	if err := s.BindUnix(""); err != nil || !strings.HasPrefix(s.LocalPath(), "@") { // the system chooses an abstract name
		t.Errorf("%q, %v", s.LocalPath(), err)
	}
	if err := bound(t, sock.TCP4, sock.Loopback).BindUnix("@x"); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EAFNOSUPPORT) {
		t.Errorf("a TCP socket: %v", err)
	}
}

// The local address of each end is the remote address of the other.
func TestAddresses(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		a, b := k.pair(t)
		if a.LocalAddr() != b.RemoteAddr() || a.RemoteAddr() != b.LocalAddr() {
			t.Errorf("%v to %v and %v to %v", a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr())
		}
		isIP := !strings.HasPrefix(k.name, "unix")
		if a.LocalAddr().IsValid() != isIP || a.LocalPath() != "" {
			t.Errorf("at %v, %q", a.LocalAddr(), a.LocalPath())
		}
		if isIP && (!a.LocalAddr().Addr().IsLoopback() || a.LocalAddr().Port() == 0 || a.LocalAddr() == b.LocalAddr()) {
			t.Errorf("%v, %v", a.LocalAddr(), b.LocalAddr())
		}
	})
}
