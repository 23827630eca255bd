//go:build unix || windows

package model

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/socknotify/socknotify"
	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/sock"
)

// A kind is what a socket is.
type kind int

const (
	tcp kind = iota
	unixStream
	udp
	listener
	kinds
)

func (k kind) String() string { return [...]string{"tcp", "unix", "udp", "listener"}[k] }

// stream tells what can be hung up on (E4).
func (k kind) stream() bool { return k == tcp || k == unixStream }

// A file is one socket, by its kernel object, and the other end of it.
type file struct {
	kind kind
	fd   int // its number, or -1: closed
	sock *sock.Socket
	dup  *sock.Socket // what keeps it alive when its number is closed, or nil
	peer *sock.Socket // or nil: closed

	peerShut bool // the peer shut its direction, closed or reset
	urged    bool // there has been urgent data, after which a would-block does not show a sock.Socket that it is drained
	masks    []maskAt

	// What Drained vouches for, and when it was found out.
	recvBlocked, sendBlocked bool
	recvAt, sendAt           int
}

// A state is what the system says of a socket when it is asked without the port.
type state int

const (
	stateIn state = 1 << iota
	stateOut
	stateUrgent
	stateErr
	stateEnded // the peer's direction is shut
	stateDead  // both are
)

// A maskAt is what the system said at a time.
type maskAt struct {
	at   int
	mask state
}

// grace is how long an effect may take to cross the loopback device before the sequence goes on.
const grace = 20 * time.Millisecond

// await gives an effect that crosses the loopback device time to show. It may be in vain.
func await(fd int, any state) { awaitFor(fd, any, grace) }

func awaitFor(fd int, any state, long time.Duration) {
	for end := time.Now().Add(long); poll(fd)&any == 0 && time.Now().Before(end); {
		testawait.Pause(20 * time.Microsecond)
	}
}

// open is what the file can be used by, or -1.
func (f *file) open() int {
	switch {
	case f.fd >= 0:
		return f.fd
	case f.dup != nil:
		return int(f.dup.Handle())
	}
	return -1
}

// by is what it can be used with, or nil.
func (f *file) by() *sock.Socket {
	if f.fd >= 0 {
		return f.sock
	}
	return f.dup
}

func (f *file) mask() state {
	if f.open() < 0 {
		return 0
	}
	return poll(f.open())
}

// look notes what holds now.
func (f *file) look(now int) state {
	m := f.mask()
	if n := len(f.masks); n == 0 || f.masks[n-1].mask != m {
		f.masks = append(f.masks, maskAt{now, m})
	}
	return m
}

// since is everything that may have been notified at some time since then.
func (f *file) since(at int) events {
	e := f.may(f.mask())
	for i := len(f.masks) - 1; i >= 0; i-- {
		e |= f.may(f.masks[i].mask)
		if f.masks[i].at < at {
			break
		}
	}
	return e
}

// holds translates what the system says into what must be notified. A hang-up must be where it is the
// peer's doing (E3).
func (f *file) holds(m state) (e events) {
	e = f.may(m)
	if !f.peerShut {
		e &^= socknotify.EventHangup
	}
	return e
}

// may translates what the system says into what may be notified.
func (f *file) may(m state) (e events) {
	hung := f.kind.stream() && m&(stateEnded|stateDead) != 0
	if m&stateIn != 0 || hung {
		e |= socknotify.EventIn
	}
	if m&stateOut != 0 && !f.dead(m) {
		e |= socknotify.EventOut
	}
	if hung {
		e |= socknotify.EventHangup
	}
	if m&stateErr != 0 {
		e |= socknotify.EventErr
	}
	return e
}

// standing is holds, with OUT even of a dead stream: a send would not block there either, so reading
// the error is no beginning.
func (f *file) standing(m state) events {
	e := f.holds(m)
	if m&stateOut != 0 {
		e |= socknotify.EventOut
	}
	return e
}

// dead is a stream with an error on which nothing can be sent (E5, E7).
func (f *file) dead(m state) bool {
	return f.kind.stream() && m&stateErr != 0 && m&stateDead != 0
}

// must ends the test where the system refuses what it cannot refuse.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func listen() *sock.Socket {
	return must(sock.ListenTCP(sock.Loopback, sock.ListenOptions{Backlog: 64}))
}

// connect starts a connection. It is reset when it is closed, so that it leaves nothing behind.
func connect(to netip.AddrPort) *sock.Socket {
	s := must(sock.New(sock.TCP4))
	spare(s)
	check(s.Bind(source()))
	if err := s.Connect(to); err != sock.ErrWouldBlock {
		check(err)
	}
	return s
}

// resetOnClose has a socket's Close reset its connection. A system may refuse that where the connection is over already,
// and nothing is left to be reset.
func resetOnClose(s *sock.Socket) {
	if err := s.SetLinger(0); err != nil && poll(int(s.Handle()))&(stateErr|stateEnded|stateDead) == 0 {
		panic(fmt.Sprint("linger: ", err))
	}
}

const buffer = 4096

// newFile makes a socket and its peer. Their buffers are small, to be filled soon. The file has no number
// yet.
func (w *world) newFile(k kind) *file {
	f := &file{kind: k, fd: -1}
	switch k {
	case tcp:
		f.peer, f.sock = w.tcp()
	case unixStream:
		a, b, err := sock.UnixPair(false)
		if errors.Is(err, errors.ErrUnsupported) {
			f.kind = tcp
			a, b = w.tcp()
			err = nil
		}
		check(err)
		f.peer, f.sock = a, b
	case udp:
		f.sock, f.peer = must(sock.New(sock.UDP4)), must(sock.New(sock.UDP4))
		check(f.sock.Bind(sock.Loopback))
		check(f.peer.Bind(sock.Loopback))
		check(f.sock.Connect(f.peer.LocalAddr()))
		check(f.peer.Connect(f.sock.LocalAddr()))
	case listener:
		f.sock = listen()
	}
	for _, s := range []*sock.Socket{f.sock, f.peer} {
		if s == nil || k == listener {
			continue
		}
		if f.kind == tcp {
			check(s.SetNoDelay(true))
		}
		check(s.SetWriteBuffer(buffer))
		check(s.SetReadBuffer(buffer))
	}
	return f
}

// tcp makes a connection.
func (w *world) tcp() (client, server *sock.Socket) {
	client = connect(w.hub.LocalAddr())
	awaitFor(int(w.hub.Handle()), stateIn, patience())
	server = must(w.hub.Accept())
	awaitFor(int(client.Handle()), stateOut, patience())
	return client, server
}
