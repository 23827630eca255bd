//go:build unix || windows

package model

import (
	"time"

	testawait "github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/wine"
	"github.com/socknotify/socknotify/sock"
)

// peerSend sends n bytes, one datagram, or one connection.
func (f *file) peerSend(n int) {
	if f.kind == listener {
		if f.open() >= 0 && f.mask()&stateIn == 0 {
			c := connect(f.by().LocalAddr())
			await(f.open(), stateIn)
			resetOnClose(c)
			check(c.Close())
		}
		return
	}
	if f.peer == nil {
		return
	}
	// An error is the consequence of an earlier operation, and no matter.
	if sent, _ := f.peer.Send(make([]byte, n)); sent > 0 && f.open() >= 0 {
		await(f.open(), stateIn)
	}
}

func (f *file) peerUrgent() {
	if f.kind == tcp && f.peer != nil && sendUrgent(f.peer.Handle()) == nil {
		f.urged = true
		if f.open() >= 0 {
			await(f.open(), stateUrgent)
		}
	}
}

// recv receives a little, or to would-block.
func (f *file) recv(now int, all bool) {
	s := f.by()
	if s == nil {
		return
	}
	b := make([]byte, 1)
	if all {
		b = make([]byte, 64<<10)
	}
	for {
		var n int
		var err error
		if f.kind == listener {
			n, err = accept(s)
		} else {
			n, err = s.Recv(b)
		}
		f.recvBlocked, f.recvAt = err == sock.ErrWouldBlock, now
		if !all || err != nil || n == 0 && f.kind.stream() {
			return
		}
	}
}

// accept takes a connection and resets it.
func accept(s *sock.Socket) (n int, err error) {
	c, err := s.Accept()
	if err != nil {
		return 0, err
	}
	resetOnClose(c)
	return 1, c.Close()
}

// send sends a little, or to would-block. Datagrams are sent once.
func (f *file) send(now int, full bool) {
	s := f.by()
	if s == nil || f.kind == listener || f.kind == udp && f.peer == nil && wine.TakesError.Here() {
		return
	}
	b := make([]byte, 1)
	if full && f.kind != udp {
		b = make([]byte, 32<<10)
	}
	for range 1000 {
		_, err := s.Send(b)
		f.sendBlocked, f.sendAt = err == sock.ErrWouldBlock, now
		if err != nil || !full || f.kind == udp {
			return
		}
	}
}

func (f *file) peerRecvAll() {
	if f.peer == nil {
		return
	}
	b := make([]byte, 64<<10)
	// What is on the way follows as room is made for it.
	for end := time.Now().Add(grace); ; testawait.Pause(20 * time.Microsecond) {
		for n := 1; n > 0; {
			n, _ = f.peer.Recv(b)
		}
		if f.open() < 0 || f.mask()&(stateOut|stateDead) != 0 || time.Now().After(end) {
			return
		}
	}
}

func (f *file) readErr() {
	if s := f.by(); s != nil {
		_ = s.Err()
	}
}

func (f *file) shut(how sock.How) {
	if s := f.by(); s != nil && f.kind.stream() {
		_ = s.Shutdown(how) // it is not connected after a reset
	}
}

func (f *file) peerShut1() {
	if f.peer == nil || !f.kind.stream() {
		return
	}
	if f.peer.Shutdown(sock.ShutWrite) == nil {
		f.peerShut = true
		if f.open() >= 0 {
			await(f.open(), stateEnded)
		}
	}
}

// peerClose closes the other end, or resets it.
func (f *file) peerClose(reset bool) {
	if f.peer == nil {
		return
	}
	if reset && f.kind == tcp {
		resetOnClose(f.peer)
	}
	check(f.peer.Close())
	f.peer = nil
	if f.kind.stream() {
		f.peerShut = true
		if f.open() >= 0 {
			await(f.open(), stateEnded|stateDead)
		}
	}
}

// destroy closes everything, and leaves no connection behind.
func (f *file) destroy() {
	if f.kind == tcp && f.peer != nil {
		resetOnClose(f.peer)
	}
	for _, s := range []*sock.Socket{f.peer, f.by()} {
		if s != nil {
			check(s.Close())
		}
	}
}
