package conformance

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/freeport"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/sock"
)

// A socket is one of a case. Where it is tied, its registrations name it (Registration.Sock), and
// not its handle, so that it vouches for itself.
type socket struct {
	*sock.Socket
	tied bool
	path string // where a Unix stream listens, if it does
}

// keep closes a socket at the end, unless the case has.
func (e *env) keep(s *sock.Socket, err error) *socket {
	e.Helper()
	e.mustDo("socket", err)
	e.Cleanup(func() { s.Close() })
	return &socket{Socket: s, tied: e.tied}
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

// unixFresh makes a Unix stream that has done nothing yet.
func (e *env) unixFresh() *socket {
	if wine.HasNoUnix.Here() {
		e.Skip(wine.HasNoUnix)
	}
	s := e.keep(sock.New(sock.Unix))
	s.path = e.socketPath()
	return s
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
	client, server = e.connected(e.fresh(), l)
	l.Close()
	return client, server
}

// connected connects a client to a listener, and accepts the connection.
func (e *env) connected(client, l *socket) (_, server *socket) {
	e.Helper()
	e.connect(client, l.LocalAddr())
	settle(e, l, stateIn)
	server = e.keep(l.Accept())
	settle(e, client, stateOut)
	return client, server
}

// udp makes two UDP sockets that are connected to each other.
func (e *env) udp() (a, b *socket) {
	a, b = e.keep(sock.New(sock.UDP4)), e.keep(sock.New(sock.UDP4))
	for _, s := range []*socket{a, b} {
		e.mustDo("bind", s.Bind(sock.Loopback))
	}
	e.connect(a, b.LocalAddr())
	e.connect(b, a.LocalAddr())
	return a, b
}

// nowhere is an address that refuses connections. The socket that is bound to it keeps others, and
// so a connection to itself, away; but on NetBSD and DragonFly, which answer nothing for it. There,
// and for datagrams, it is closed, and the port is one that no other program is given.
func (e *env) nowhere(n sock.Network) netip.AddrPort {
	s := e.keep(sock.New(n))
	if n != sock.UDP4 && runtime.GOOS != "netbsd" && runtime.GOOS != "dragonfly" {
		e.mustDo("bind", s.Bind(sock.Loopback))
		return s.LocalAddr()
	}
	defer s.Close()
	for tries := 0; ; tries++ {
		err := s.Bind(netip.AddrPortFrom(sock.Loopback.Addr(), freeport.Port()))
		if err == nil {
			return s.LocalAddr()
		}
		if tries == 100 {
			e.Fatalf("bind: %v", err)
		}
	}
}

// socketPath returns a path for a Unix socket. Those of TempDir are longer than some systems'
// addresses (104 bytes).
func (e *env) socketPath() string {
	dir, err := os.MkdirTemp("", "u")
	e.must(err)
	e.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// send sends. Where there is no room it waits for the peer, which must receive.
func (e *env) send(s *socket, data string) {
	e.Helper()
	e.sendBytes(s, []byte(data))
}

func (e *env) sendBytes(s *socket, left []byte) {
	e.Helper()
	e.until("all is sent", func() bool {
		n, err := s.Send(left)
		if err != nil && !errors.Is(err, sock.ErrWouldBlock) {
			e.Fatalf("send: %v", err)
		}
		left = left[n:]
		return len(left) == 0
	})
}

// deliver sends and waits until it has arrived.
func (e *env) deliver(from, to *socket, data string) {
	e.Helper()
	e.send(from, data)
	settle(e, to, stateIn)
}

// receiveAll receives until that would block, and returns what came and how it ended: nil, end of
// stream or an error. It leaves out what fill has sent.
func receiveAll(s *socket) ([]byte, error) {
	var all []byte
	var b [32 << 10]byte
	for {
		n, err := s.Recv(b[:])
		if errors.Is(err, sock.ErrWouldBlock) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		if b[0] != filling || b[n-1] != filling {
			all = append(all, b[:n]...)
		}
	}
}

// drain is receiveAll where no more than would-block may end it.
func (e *env) drain(s *socket) []byte {
	e.Helper()
	data, err := receiveAll(s)
	e.mustDo("receive", err)
	return data
}

// filling is what fill sends, and nothing else does.
const filling = 0xff

// fill sends until that would block.
func (e *env) fill(s *socket) {
	b := bytes.Repeat([]byte{filling}, 64<<10)
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

// reset makes a TCP connection's peer abort it, and waits until that has arrived.
func (e *env) reset(s handle, peer *socket) {
	e.mustDo("linger", peer.SetLinger(0))
	peer.Close()
	settle(e, s, stateErr|stateDead)
}

// refusedSocket makes a socket whose connect has failed.
func (e *env) refusedSocket() *socket {
	for range 20 {
		if s := e.fresh(); e.refuseConnect(s) {
			return s
		}
	}
	e.Skip("this system refuses within the call")
	return nil
}

// refuseConnect starts a connect that fails. It returns false if the call itself has failed, so
// that nothing is pending; the socket is closed then.
func (e *env) refuseConnect(s *socket) bool {
	if err := s.Connect(e.nowhere(sock.TCP4)); !errors.Is(err, sock.ErrWouldBlock) {
		s.Close()
		return false
	}
	settle(e, s, stateErr)
	return true
}

// at gives a number that was closed to one of a pair of new sockets. The system may have given it
// to either by itself. The case closes it.
func (e *env) at(number uintptr, a, b *socket) (again fd, peer *socket) {
	if b.Handle() == number {
		a, b = b, a
	}
	spare := e.dup(a)
	a.Close()
	if spare.Handle() == number {
		return spare, b
	}
	again = e.become(number, spare)
	e.closeFD(spare)
	return again, b
}

// accepted takes the connection out of a notification.
func (e *env) accepted(got note, k any) *socket {
	s, err := got.Accepted()
	posted := got.Kind() == socknotify.KindPosted
	if got.Key != k || got.Events != socknotify.EventNone || posted || s == nil || err != nil {
		e.Fatalf("notification of %v: %v, posted %t, accepted %v, %v; want a connection for %v",
			got.Key, got.Events, posted, s, err, k)
	}
	return e.keep(s, nil)
}

// file makes a file for the case.
func (e *env) file(data string) *os.File {
	f, err := os.CreateTemp(e.TempDir(), "")
	if err == nil {
		_, err = f.WriteString(data)
	}
	e.mustDo("file", err)
	e.Cleanup(func() { f.Close() })
	return f
}
