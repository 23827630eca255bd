package conformance

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A socket is one of a case. Where it is tied, its registrations name it (Registration.Sock), and not its
// handle, so that it vouches for itself.
type socket struct {
	*sock.Socket
	tied bool
}

// keep closes a socket at the end, unless the case has.
func (e *env) keep(s *sock.Socket, err error) *socket {
	e.Helper()
	if err != nil {
		e.Fatalf("socket: %v", err)
	}
	e.Cleanup(func() { s.Close() })
	return &socket{s, e.tied}
}

// unix makes a connected pair of Unix streams, or of TCP where the system has none.
func (e *env) unix() (a, b *socket) {
	e.Helper()
	x, y, err := sock.UnixPair(false)
	if errors.Is(err, errors.ErrUnsupported) {
		return e.tcp()
	}
	return e.keep(x, err), e.keep(y, err)
}

// datagrams makes a connected pair of Unix datagram sockets, or of UDP where the system has none.
func (e *env) datagrams() (a, b *socket) {
	e.Helper()
	x, y, err := sock.UnixPair(true)
	if errors.Is(err, errors.ErrUnsupported) {
		return e.udp()
	}
	return e.keep(x, err), e.keep(y, err)
}

func (e *env) listener() *socket {
	e.Helper()
	// Longer than any case needs: where a backlog is full, the peer tries again after a second.
	return e.keep(sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: 512}))
}

// fresh makes a TCP socket that has done nothing yet.
func (e *env) fresh() *socket {
	e.Helper()
	return e.keep(sock.New(sock.TCP4))
}

// connect starts to connect, which may succeed at once.
func (e *env) connect(s *socket, to netip.AddrPort) {
	e.Helper()
	if err := s.Connect(to); err != nil && !errors.Is(err, sock.ErrWouldBlock) {
		e.Fatalf("connect: %v", err)
	}
}

// tcp makes a TCP connection.
func (e *env) tcp() (client, server *socket) {
	e.Helper()
	l := e.listener()
	client = e.fresh()
	e.connect(client, l.LocalAddr())
	settle(e, l, stateIn)
	server = e.keep(l.Accept())
	settle(e, client, stateOut)
	l.Close()
	return client, server
}

// udp makes two UDP sockets that are connected to each other.
func (e *env) udp() (a, b *socket) {
	e.Helper()
	a, b = e.keep(sock.New(sock.UDP4)), e.keep(sock.New(sock.UDP4))
	for _, s := range []*socket{a, b} {
		if err := s.Bind(sock.Loopback); err != nil {
			e.Fatalf("bind: %v", err)
		}
	}
	e.connect(a, b.LocalAddr())
	e.connect(b, a.LocalAddr())
	return a, b
}

// nowhere is an address that refuses connections. The socket that is bound to it keeps others, and
// so a connection to itself, away; but on NetBSD and DragonFly, which answer nothing for it.
func (e *env) nowhere(n sock.Network) netip.AddrPort {
	e.Helper()
	s := e.keep(sock.New(n))
	if err := s.Bind(sock.Loopback); err != nil {
		e.Fatalf("bind: %v", err)
	}
	a := s.LocalAddr()
	if n == sock.UDP4 || runtime.GOOS == "netbsd" || runtime.GOOS == "dragonfly" {
		s.Close()
	}
	return a
}

// socketPath returns a path for a Unix socket. Those of TempDir are longer than some systems' addresses (104 bytes).
func (e *env) socketPath() string {
	e.Helper()
	dir, err := os.MkdirTemp("", "u")
	if err != nil {
		e.Fatalf("%v", err)
	}
	e.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func (e *env) send(s *socket, data string) {
	e.Helper()
	if n, err := s.Send([]byte(data)); n != len(data) || err != nil {
		e.Fatalf("send = %d, %v", n, err)
	}
}

// deliver sends and waits until it has arrived.
func (e *env) deliver(from, to *socket, data string) {
	e.Helper()
	e.send(from, data)
	settle(e, to, stateIn)
}

// receiveAll receives until that would block, and returns what came and how it ended: nil, end of
// stream or an error.
func receiveAll(s *socket) (string, error) {
	var all []byte
	var b [4096]byte
	for {
		n, err := s.Recv(b[:])
		if errors.Is(err, sock.ErrWouldBlock) {
			return string(all), nil
		}
		if err != nil {
			return string(all), err
		}
		all = append(all, b[:n]...)
	}
}

// drain is receiveAll where no more than would-block may end it.
func (e *env) drain(s *socket) string {
	e.Helper()
	data, err := receiveAll(s)
	if err != nil {
		e.Fatalf("receive: %v", err)
	}
	return data
}

// fill sends until that would block.
func (e *env) fill(s *socket) {
	e.Helper()
	b := make([]byte, 64<<10)
	for quietly := 0; quietly < 2; {
		_, err := s.Send(b)
		switch {
		case err == nil:
			quietly = 0
		case errors.Is(err, sock.ErrWouldBlock):
			quietly++ // the peer's side may have made room in between
		default:
			e.Fatalf("send: %v", err)
		}
	}
}

// wantIn is wantNow for IN of a stream that was filled. One of TCP may have got room without its peer, as what
// it had sent was acknowledged later: then OUT must be true.
func (e *env) wantIn(p *port, k any, s *socket) {
	e.Helper()
	got := e.come(p, 1)
	if len(got) == 1 && got[0].Events == in|out {
		if _, err := s.Send([]byte("x")); err != nil {
			e.Fatalf("OUT of a full stream: %v", err)
		}
		e.fill(s)
		return
	}
	if len(got) != 1 {
		e.Fatalf("%d notifications %v; want one, of %v: %v", len(got), got, k, in)
	}
	e.check(got[0], k, in)
}

// reset makes a TCP connection's peer abort it, and waits until that has arrived.
func (e *env) reset(s handle, peer *socket) {
	e.Helper()
	if err := peer.SetLinger(0); err != nil {
		e.Fatalf("linger: %v", err)
	}
	peer.Close()
	settle(e, s, stateErr|stateDead)
}

// shut shuts the peer's sending direction and waits until that has arrived.
func (e *env) shut(s handle, peer *socket) {
	e.Helper()
	if err := peer.Shutdown(sock.ShutWrite); err != nil {
		e.Fatalf("shutdown: %v", err)
	}
	settle(e, s, statePeerClosed)
}

// again enables an edge registration of a socket that was drained (T2).
func (e *env) again(p *port, s handle, k any, filter events, t socknotify.Trigger) {
	e.Helper()
	if t, ok := s.(*socket); ok && t.tied {
		return // such a socket re-arms by itself
	}
	e.do(p, drained(s, k, filter, t))
}

// mptcpPair makes a connection of an MPTCP socket to a listener.
func (e *env) mptcpPair(l *socket) (client, server *socket) {
	e.Helper()
	client = e.mptcp()
	e.connect(client, l.LocalAddr())
	settle(e, l, stateIn)
	server = e.keep(l.Accept())
	settle(e, client, stateOut)
	return client, server
}
