package model

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

// peerSend sends n bytes, one datagram, or one connection.
func (f *file) peerSend(n int) {
	if f.kind == listener {
		if f.open() >= 0 && len(f.pending()) == 0 {
			c := connect(f.to)
			await(f.open(), unix.POLLIN)
			linger(c)
			check(unix.Close(c))
		}
		return
	}
	if f.peer < 0 {
		return
	}
	// An error is the consequence of an earlier operation, and no matter.
	if sent, _ := unix.SendmsgN(f.peer, make([]byte, n), nil, nil, unix.MSG_NOSIGNAL); sent > 0 && f.open() >= 0 {
		await(f.open(), unix.POLLIN)
	}
}

// pending is not empty if a connection waits to be accepted.
func (f *file) pending() string {
	if poll(f.open(), unix.POLLIN) != 0 {
		return "pending"
	}
	return ""
}

func (f *file) peerUrgent() {
	if f.kind != tcp || f.peer < 0 {
		return
	}
	if _, err := unix.SendmsgN(f.peer, []byte{1}, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_OOB); err == nil && f.open() >= 0 {
		await(f.open(), unix.POLLPRI)
	}
}

// recv receives a little, or to would-block.
func (f *file) recv(now int, all bool) {
	fd := f.open()
	if fd < 0 {
		return
	}
	b := make([]byte, 1)
	if all {
		b = make([]byte, 64<<10)
	}
	for {
		var n int
		var err error
		switch {
		case f.kind == listener:
			n, err = f.accept()
		case f.fd >= 0:
			n, err = f.sock.Recv(b)
		default:
			n, _, err = unix.Recvfrom(fd, b, 0)
		}
		f.recvBlocked, f.recvAt = wouldBlock(err), now
		if !all || err != nil || n == 0 && f.kind.stream() {
			return
		}
	}
}

// accept takes a connection and resets it.
func (f *file) accept() (n int, err error) {
	s := f.sock
	if f.fd < 0 {
		s = must(sock.Adopt(uintptr(must(unix.FcntlInt(uintptr(f.dup), unix.F_DUPFD_CLOEXEC, 0))), sock.RefuseBlocking))
		defer s.Close()
	}
	c, err := s.Accept()
	if err != nil {
		return 0, err
	}
	check(c.SetLinger(0))
	return 1, c.Close()
}

func wouldBlock(err error) bool { return err == unix.EAGAIN || err == sock.ErrWouldBlock }

// send sends a little, or to would-block. Datagrams are sent once.
func (f *file) send(now int, full bool) {
	fd := f.open()
	if fd < 0 || f.kind == listener {
		return
	}
	b := make([]byte, 1)
	if full && f.kind != udp {
		b = make([]byte, 32<<10)
	}
	for range 1000 {
		var err error
		if f.fd >= 0 {
			_, err = f.sock.Send(b)
		} else {
			_, err = unix.SendmsgN(fd, b, nil, nil, unix.MSG_NOSIGNAL)
		}
		f.sendBlocked, f.sendAt = wouldBlock(err), now
		if err != nil || !full || f.kind == udp {
			return
		}
	}
}

func (f *file) peerRecvAll() {
	if f.peer < 0 || f.kind == listener {
		return
	}
	b := make([]byte, 64<<10)
	// What is on the way follows as room is made for it.
	for end := time.Now().Add(grace); ; time.Sleep(20 * time.Microsecond) {
		for n := 1; n > 0; {
			n, _, _ = unix.Recvfrom(f.peer, b, 0)
		}
		if f.open() < 0 || poll(f.open(), unix.POLLOUT|unix.POLLHUP) != 0 || time.Now().After(end) {
			return
		}
	}
}

func (f *file) readErr() {
	if f.open() >= 0 {
		must(unix.GetsockoptInt(f.open(), unix.SOL_SOCKET, unix.SO_ERROR))
	}
}

func (f *file) shut(how int) {
	if f.open() >= 0 && f.kind.stream() {
		_ = unix.Shutdown(f.open(), how) // ENOTCONN after a reset
	}
}

func (f *file) peerShut1() {
	if f.peer < 0 || !f.kind.stream() {
		return
	}
	if unix.Shutdown(f.peer, unix.SHUT_WR) == nil {
		f.peerShut = true
		if f.open() >= 0 {
			await(f.open(), unix.POLLRDHUP)
		}
	}
}

// peerClose closes the other end, or resets it.
func (f *file) peerClose(reset bool) {
	if f.peer < 0 {
		return
	}
	if reset && f.kind == tcp {
		linger(f.peer)
	}
	check(unix.Close(f.peer))
	f.peer = -1
	if f.kind.stream() {
		f.peerShut = true
		if f.open() >= 0 {
			await(f.open(), unix.POLLRDHUP|unix.POLLHUP)
		}
	}
}

// destroy closes everything, and leaves no connection behind.
func (f *file) destroy() {
	if f.kind == tcp && f.peer >= 0 {
		linger(f.peer)
	}
	for _, fd := range []*int{&f.peer, &f.fd, &f.dup} {
		if *fd >= 0 {
			check(unix.Close(*fd))
			*fd = -1
		}
	}
}
