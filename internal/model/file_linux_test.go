package model

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
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
	dup  int // what keeps it alive when its number is closed, or -1
	peer int // or -1: closed
	to   unix.Sockaddr

	peerShut bool // the peer shut its direction, closed or reset
	masks    []maskAt

	// What Drained vouches for, and when it was found out.
	recvBlocked, sendBlocked bool
	recvAt, sendAt           int
}

// A maskAt is what poll(2) said at a time.
type maskAt struct {
	at   int
	mask int16
}

const pollAll = unix.POLLIN | unix.POLLOUT | unix.POLLRDHUP | unix.POLLPRI

// poll asks poll(2), without waiting.
func poll(fd int, events int16) int16 {
	f := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		_, err := unix.Poll(f, 0)
		if err == nil {
			return f[0].Revents
		}
		if err != unix.EINTR {
			panic(fmt.Sprint("poll: ", err))
		}
	}
}

// grace is how long an effect may take to cross the loopback device before the sequence goes on.
const grace = 20 * time.Millisecond

// await gives an effect that crosses the loopback device time to show. It may be in vain.
func await(fd int, events int16) {
	for end := time.Now().Add(grace); poll(fd, events)&events == 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Microsecond)
	}
}

// open is what the file can be used by, or -1.
func (f *file) open() int {
	if f.fd >= 0 {
		return f.fd
	}
	return f.dup
}

func (f *file) mask() int16 {
	if f.open() < 0 {
		return 0
	}
	return poll(f.open(), pollAll)
}

// look notes what holds now.
func (f *file) look(now int) int16 {
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

// holds translates what poll(2) says into what must be notified. A hang-up must be where it is the
// peer's doing (E3).
func (f *file) holds(m int16) (e events) {
	e = f.may(m)
	if !f.peerShut {
		e &^= socknotify.EventHangup
	}
	return e
}

// may translates what poll(2) says into what may be notified.
func (f *file) may(m int16) (e events) {
	hung := f.kind.stream() && m&(unix.POLLRDHUP|unix.POLLHUP) != 0
	if m&unix.POLLIN != 0 || hung {
		e |= socknotify.EventIn
	}
	if m&unix.POLLOUT != 0 && !f.dead(m) {
		e |= socknotify.EventOut
	}
	if hung {
		e |= socknotify.EventHangup
	}
	if m&unix.POLLERR != 0 {
		e |= socknotify.EventErr
	}
	return e
}

// standing is holds, with OUT even of a dead stream: a send would not block there either, so reading
// the error is no beginning.
func (f *file) standing(m int16) events {
	e := f.holds(m)
	if m&unix.POLLOUT != 0 {
		e |= socknotify.EventOut
	}
	return e
}

// dead is a stream with an error on which nothing can be sent (E5, E7).
func (f *file) dead(m int16) bool {
	return f.kind.stream() && m&unix.POLLERR != 0 && m&unix.POLLHUP != 0
}

// sources spreads connections over the loopback addresses, because closed ones use up ports.
var sources atomic.Uint32

func source() unix.Sockaddr {
	n := sources.Add(1)
	return &unix.SockaddrInet4{Addr: [4]byte{127, 0, byte(1 + n>>8%200), byte(1 + n%250)}}
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

func newSocket(domain, typ int) int {
	return must(unix.Socket(domain, typ|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0))
}

func listen() (fd int, at unix.Sockaddr) {
	fd = newSocket(unix.AF_INET, unix.SOCK_STREAM)
	check(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	check(unix.Listen(fd, 64))
	return fd, must(unix.Getsockname(fd))
}

// connect starts a connection. It is reset when it is closed, so that it leaves nothing behind.
func connect(to unix.Sockaddr) int {
	fd := newSocket(unix.AF_INET, unix.SOCK_STREAM)
	check(unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1))
	check(unix.Bind(fd, source()))
	if err := unix.Connect(fd, to); err != nil && err != unix.EINPROGRESS {
		panic(err)
	}
	return fd
}

func linger(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

const buffer = 4096

// newFile makes a socket and its peer. Their buffers are small, to be filled soon.
func (w *world) newFile(k kind) *file {
	f := &file{kind: k, fd: -1, dup: -1, peer: -1}
	switch k {
	case tcp:
		f.peer = connect(w.hubAt)
		await(w.hub, unix.POLLIN)
		fd, _, err := unix.Accept4(w.hub, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		f.fd = must(fd, err)
		await(f.peer, unix.POLLOUT)
	case unixStream:
		p := must(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0))
		f.fd, f.peer = p[0], p[1]
	case udp:
		f.fd, f.peer = newSocket(unix.AF_INET, unix.SOCK_DGRAM), newSocket(unix.AF_INET, unix.SOCK_DGRAM)
		for _, fd := range []int{f.fd, f.peer} {
			check(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
		}
		check(unix.Connect(f.fd, must(unix.Getsockname(f.peer))))
		check(unix.Connect(f.peer, must(unix.Getsockname(f.fd))))
	case listener:
		f.fd, f.to = listen()
	}
	if k == tcp {
		for _, fd := range []int{f.fd, f.peer} {
			check(unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_NODELAY, 1))
		}
	}
	if k != listener {
		for _, fd := range []int{f.fd, f.peer} {
			check(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, buffer))
			check(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer))
		}
	}
	return f
}
