package sock_test

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/sock"
)

// backlog returns the backlog of a TCP listener. For listeners, the kernel reports it in this field.
func backlog(t *testing.T, l *sock.Socket) int {
	t.Helper()
	info, err := unix.GetsockoptTCPInfo(int(l.Handle()), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sacked)
}

func maxBacklog(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		t.Skip(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	return min(n, 1<<16-1)
}

func TestListenBacklog(t *testing.T) {
	if qemu.HidesTCPInfo.Here() {
		t.Skip(qemu.HidesTCPInfo)
	}
	for asked, want := range map[int]int{1: 1, 7: 7, 0: maxBacklog(t), -1: maxBacklog(t), 1 << 30: maxBacklog(t)} {
		l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: asked})
		if closeLater(t, l, err); backlog(t, l) != want {
			t.Errorf("ListenTCP with backlog %d: %d, want %d", asked, backlog(t, l), want)
		}
		l = bound(t, sock.TCP4, sock.Loopback)
		if err := l.Listen(asked); err != nil || backlog(t, l) != want {
			t.Errorf("Listen(%d): %d, %v, want %d", asked, backlog(t, l), err, want)
		}
		if err := l.Listen(3); err != nil || backlog(t, l) != 3 { // changes the backlog
			t.Errorf("Listen(3): %d, %v", backlog(t, l), err)
		}
	}
	d := bound(t, sock.UDP4, sock.Loopback)
	wantError(t, d.Listen(1), "listen", d.Handle(), unix.EOPNOTSUPP)
}

func TestListenTCP(t *testing.T) {
	needV6(t)
	handles.NoneLeft(t, "")
	taken := listen(t, sock.Loopback).LocalAddr()
	for _, c := range []struct {
		name  string
		on    netip.AddrPort
		o     sock.ListenOptions
		op    string // the operation that fails
		cause error
	}{
		{"IPv4", sock.Loopback, sock.ListenOptions{}, "", nil},
		{"IPv6", sock.Loopback6, sock.ListenOptions{}, "", nil},
		{"the other family asked for too", sock.Loopback, sock.ListenOptions{DualStack: true}, "", nil},
		{"in use", taken, sock.ListenOptions{}, "bind", unix.EADDRINUSE},
		{"in use by one that does not share", taken, sock.ListenOptions{ReusePort: true}, "bind", unix.EADDRINUSE},
		{"no address", netip.AddrPort{}, sock.ListenOptions{}, "bind", unix.EDESTADDRREQ},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := sock.ListenTCP(c.on, c.o)
			if c.cause != nil {
				var e *sock.Error
				if l != nil || !errors.As(err, &e) || e.Op != c.op || !errors.Is(err, c.cause) || !strings.Contains(err.Error(), c.on.String()) {
					t.Errorf("%v, %v", l, err)
				}
				return
			}
			closeLater(t, l, err)
			checkFlags(t, l)
			if a := l.LocalAddr(); a.Addr() != c.on.Addr() || a.Port() == 0 {
				t.Errorf("at %v", a)
			}
			if option(t, l, unix.SOL_SOCKET, unix.SO_ACCEPTCONN) != 1 || option(t, l, unix.SOL_SOCKET, unix.SO_REUSEADDR) != 1 {
				t.Error("the socket does not listen or has no SO_REUSEADDR")
			}
			if option(t, l, unix.SOL_SOCKET, unix.SO_REUSEPORT) != 0 {
				t.Error("the socket has SO_REUSEPORT")
			}
			connect(t, l.LocalAddr())
			accept(t, l)
		})
	}
}

// IPv4 peers have mapped addresses. The test listens on the mapped IPv4 loopback address instead of the wildcard
// address.
func TestListenDualStack(t *testing.T) {
	needV6(t)
	mapped := netip.MustParseAddrPort("[::ffff:127.0.0.1]:0")
	if _, err := sock.ListenTCP(mapped, sock.ListenOptions{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("listening on an IPv4 address without DualStack: %v", err)
	}
	l, err := sock.ListenTCP(mapped, sock.ListenOptions{DualStack: true})
	closeLater(t, l, err)
	four := netip.AddrPortFrom(sock.Loopback.Addr(), l.LocalAddr().Port())
	c := connect(t, four)
	s := accept(t, l)
	if got := s.RemoteAddr(); !got.Addr().Is4In6() || netip.AddrPortFrom(got.Addr().Unmap(), got.Port()) != c.LocalAddr() {
		t.Errorf("from %v, seen as %v", c.LocalAddr(), got)
	}
}

func TestListenReusePort(t *testing.T) {
	share := sock.ListenOptions{ReusePort: true}
	a, err := sock.ListenTCP(sock.Loopback, share)
	closeLater(t, a, err)
	b, err := sock.ListenTCP(a.LocalAddr(), share)
	closeLater(t, b, err)
	if a.LocalAddr() != b.LocalAddr() || option(t, b, unix.SOL_SOCKET, unix.SO_REUSEPORT) != 1 {
		t.Errorf("%v, %v", a.LocalAddr(), b.LocalAddr())
	}
	if _, err := sock.ListenTCP(a.LocalAddr(), sock.ListenOptions{}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("without ReusePort: %v", err)
	}
}

func TestListenTCPGroup(t *testing.T) {
	handles.NoneLeft(t, "")
	const size, connections = 3, 150
	group, err := sock.ListenTCPGroup(sock.Loopback, sock.ListenOptions{Backlog: connections}, size)
	if err != nil || len(group) != size {
		t.Fatal(group, err)
	}
	for _, l := range group {
		if closeLater(t, l, nil); l.LocalAddr() != group[0].LocalAddr() {
			t.Errorf("%v, not %v", l.LocalAddr(), group[0].LocalAddr())
		}
		if !qemu.HidesTCPInfo.Here() && backlog(t, l) != connections {
			t.Errorf("%v with backlog %d", l.LocalAddr(), backlog(t, l))
		}
	}
	// The system chooses a listener by a hash of the addresses. With this many connections it is practically
	// certain that every listener receives some.
	var clients []*sock.Socket
	for range connections {
		clients = append(clients, connect(t, group[0].LocalAddr()))
	}
	for _, c := range clients {
		waitPoll(t, c, out)
	}
	var took [size]int
	for total, end := 0, time.Now().Add(timeout); total < connections; {
		for i, l := range group {
			s, err := l.Accept()
			for ; err == nil; s, err = l.Accept() {
				took[i]++
				total++
				s.Close()
			}
			if err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("accepted %v connections of %d", took, connections)
		}
	}
	if slices.Contains(took[:], 0) {
		t.Errorf("connections per listener: %v", took)
	}

	if group, err = sock.ListenTCPGroup(sock.Loopback, sock.ListenOptions{}, 0); len(group) != runtime.GOMAXPROCS(0) {
		t.Errorf("%d of them, %v", len(group), err)
	}
	for _, l := range group {
		l.Close()
	}
}

// If one listener of a group fails, the others are closed.
func TestListenTCPGroupFails(t *testing.T) {
	handles.NoneLeft(t, "")
	taken := listen(t, sock.Loopback).LocalAddr()
	if group, err := sock.ListenTCPGroup(taken, sock.ListenOptions{}, 2); group != nil || !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("%v, %v", group, err)
	}
	restore := exhaust(t, 3)
	before := len(handles.List())
	group, err := sock.ListenTCPGroup(sock.Loopback, sock.ListenOptions{}, 4)
	after := len(handles.List())
	restore()
	if group != nil || !sock.IsExhausted(err) || after != before {
		t.Errorf("%v, %v, descriptors %d before and %d after", group, err, before, after)
	}
}

func TestListenUnix(t *testing.T) {
	handles.NoneLeft(t, "")
	path := filepath.Join(t.TempDir(), "s")
	for _, name := range []string{path, abstract("listen")} {
		l := listenUnix(t, name, 2)
		checkFlags(t, l)
		if l.LocalPath() != name {
			t.Errorf("at %q, not %q", l.LocalPath(), name)
		}
		if _, err := sock.ListenUnix(name, sock.ListenOptions{}); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("a second listener: %v", err)
		}
		l.Close()
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the path is gone: %v", err)
	}
	if _, err := sock.ListenUnix(path, sock.ListenOptions{}); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("an existing path: %v", err)
	}
	if _, err := sock.ListenUnix(filepath.Join(path, "below"), sock.ListenOptions{}); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("an invalid path: %v", err)
	}
}
