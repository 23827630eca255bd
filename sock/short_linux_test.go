package sock_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/qemu"
	"github.com/socknotify/socknotify/sock"
)

// A peerAction is an action of the peer, and what the receiver must receive because of it.
type peerAction struct {
	name string
	do   func(t *testing.T, peer, s *sock.Socket)
	want string // after "first"
	end  error
}

var moves = []peerAction{
	{"send", func(t *testing.T, peer, s *sock.Socket) {
		send(t, peer, "second")
		waitPoll(t, s, in)
	}, "second", sock.ErrWouldBlock},
	{"close", func(t *testing.T, peer, s *sock.Socket) {
		peer.Close()
		waitPoll(t, s, ended)
	}, "", io.EOF},
	{"half-close", func(t *testing.T, peer, s *sock.Socket) {
		if err := peer.Shutdown(sock.ShutWrite); err != nil {
			t.Fatal(err)
		}
		waitPoll(t, s, ended)
	}, "", io.EOF},
	{"send and close", func(t *testing.T, peer, s *sock.Socket) {
		send(t, peer, "second")
		peer.Close()
		waitPoll(t, s, ended)
	}, "second", io.EOF},
	{"reset", func(t *testing.T, peer, s *sock.Socket) {
		peer.SetLinger(0)
		peer.Close()
		waitPoll(t, s, broken)
	}, "", unix.ECONNRESET},
	{"urgent", func(t *testing.T, peer, s *sock.Socket) {
		urgent(t, peer, s)
		waitArrival(t, s, func() { send(t, peer, "second") })
	}, "second", sock.ErrWouldBlock},
	{"send and urgent", func(t *testing.T, peer, s *sock.Socket) {
		send(t, peer, "sec")
		urgent(t, peer, s)
		waitArrival(t, s, func() { send(t, peer, "ond") })
	}, "second", sock.ErrWouldBlock},
	{"urgent and close", func(t *testing.T, peer, s *sock.Socket) {
		urgent(t, peer, s)
		send(t, peer, "second")
		peer.Close()
		waitPoll(t, s, ended)
	}, "second", io.EOF},
}

// waitArrival waits until f has caused more data to arrive at a TCP socket. The number of bytes that can be
// received is not enough, because it ends at an urgent byte.
func waitArrival(t *testing.T, s *sock.Socket, f func()) {
	t.Helper()
	if qemu.HidesTCPInfo.Here() {
		t.Skip(qemu.HidesTCPInfo)
	}
	count := func() uint64 {
		info, err := unix.GetsockoptTCPInfo(int(s.Handle()), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			t.Fatal(err)
		}
		return info.Bytes_received
	}
	before, end := count(), time.Now().Add(timeout)
	for f(); count() == before; {
		if time.Now().After(end) {
			t.Fatal("timed out waiting for the data")
		}
	}
}

// urgent sends an urgent byte. It is not part of the stream, and receives stop at it.
func urgent(t *testing.T, peer, s *sock.Socket) {
	t.Helper()
	if err := unix.Send(int(peer.Handle()), []byte("!"), unix.MSG_OOB); err != nil {
		t.Fatal(err)
	}
	waitPoll(t, s, unix.POLLPRI)
}

// recvAll receives after each notification until everything that the action has sent was received.
func (p port) recvAll(s *sock.Socket, m peerAction, got string, again func()) {
	p.t.Helper()
	buf := make([]byte, 64)
	for {
		e := p.next()
		for {
			n, err := s.Recv(buf)
			got += string(buf[:n])
			if err == nil {
				continue // receive again, even after a short receive
			}
			if err != sock.ErrWouldBlock {
				if got != m.want || err != m.end && !isCause(err, m.end) {
					p.t.Fatalf("%q, %v at %v; want %q, %v", got, err, e, m.want, m.end)
				}
				return
			}
			break
		}
		if got == m.want && m.end == sock.ErrWouldBlock {
			return
		}
		again()
	}
}

func isCause(err, cause error) bool {
	e, ok := err.(*sock.Error)
	return ok && e.Err == cause
}

// A short receive drains a TCP stream. Enabling then needs no system call, and any concurrent action of the peer is
// still reported.
func TestShortReceive(t *testing.T) {
	onPorts(t, func(t *testing.T, p port) {
		for _, filter := range []socknotify.Events{eventIn, eventIn | eventHangup} {
			for _, trigger := range []socknotify.Trigger{oneShot, edge, once} {
				for _, m := range moves {
					for _, when := range []string{"before the receive", "before the enable", "after the enable"} {
						t.Run(fmt.Sprint(filter, trigger, " ", m.name, " ", when), func(t *testing.T) {
							p := port{p.Port, t}
							peer, s := tcpOn(t, sock.Loopback)
							p.enable(s, filter, trigger)
							send(t, peer, "first")
							p.next()
							p.shortReceive(peer, s, m, when, filter, trigger)
							p.remove(s)
						})
					}
				}
			}
		}
	})
}

func (p port) shortReceive(peer, s *sock.Socket, m peerAction, when string, filter socknotify.Events, trigger socknotify.Trigger) {
	p.t.Helper()
	if when == "before the receive" {
		m.do(p.t, peer, s)
	}
	buf := make([]byte, 64)
	n, err := s.Recv(buf)
	got := string(buf[:n])
	if err != nil || when != "before the receive" && got != "first" || len(got) < 5 || got[:5] != "first" {
		p.t.Fatalf("Recv = %q, %v", got, err)
	}
	if when == "before the enable" {
		m.do(p.t, peer, s)
	}
	again := func() { p.enable(s, filter, trigger) }
	if saved := p.enable(s, filter, trigger); saved != p.edges() {
		p.t.Errorf("the enable was saved: %v", saved)
	}
	if when == "after the enable" {
		p.wantEmpty()
		m.do(p.t, peer, s)
	}
	if got = got[5:]; got == m.want && m.end == sock.ErrWouldBlock {
		return // everything was received already
	}
	p.recvAll(s, m, got, again)
}
