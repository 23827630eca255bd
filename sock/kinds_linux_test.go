package sock_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/socknotify/socknotify/sock"
)

// A kind is a kind of connection that the tests use.
type kind struct {
	name        string
	stream, tcp bool
	pair        func(t testing.TB) (a, b *sock.Socket)
}

var kinds = []kind{
	{"tcp4", true, true, func(t testing.TB) (a, b *sock.Socket) { return tcpOn(t, sock.Loopback) }},
	{"tcp6", true, true, func(t testing.TB) (a, b *sock.Socket) { return tcpOn(t, sock.Loopback6) }},
	{"unix", true, false, func(t testing.TB) (a, b *sock.Socket) { return unixPair(t, false) }},
	{"udp4", false, false, func(t testing.TB) (a, b *sock.Socket) { return udpOn(t, sock.Loopback) }},
	{"udp6", false, false, func(t testing.TB) (a, b *sock.Socket) { return udpOn(t, sock.Loopback6) }},
	{"unixgram", false, false, func(t testing.TB) (a, b *sock.Socket) { return unixPair(t, true) }},
}

func forEachKind(t *testing.T, f func(t *testing.T, k kind)) {
	t.Helper()
	forEachKindIf(t, f, func(kind) bool { return true })
}

func forEachStream(t *testing.T, f func(t *testing.T, k kind)) {
	t.Helper()
	forEachKindIf(t, f, func(k kind) bool { return k.stream })
}

func forEachKindIf(t *testing.T, f func(t *testing.T, k kind), want func(k kind) bool) {
	t.Helper()
	for _, k := range kinds {
		if !want(k) {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			if strings.HasSuffix(k.name, "6") {
				needV6(t)
			}
			f(t, k)
		})
	}
}

func tcpOn(t testing.TB, on netip.AddrPort) (client, server *sock.Socket) {
	t.Helper()
	l := listen(t, on)
	defer l.Close()
	client = connect(t, l.LocalAddr())
	server = accept(t, l)
	waitPoll(t, client, out)
	return client, server
}

func udpOn(t testing.TB, on netip.AddrPort) (a, b *sock.Socket) {
	t.Helper()
	n := sock.NetworkOf(on, sock.UDP4, sock.UDP6)
	a, b = bound(t, n, on), bound(t, n, on)
	for _, err := range []error{a.Connect(b.LocalAddr()), b.Connect(a.LocalAddr())} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

func unixPair(t testing.TB, datagram bool) (a, b *sock.Socket) {
	t.Helper()
	a, b, err := sock.UnixPair(datagram)
	closeLater(t, a, err)
	closeLater(t, b, err)
	return a, b
}
