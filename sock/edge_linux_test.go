package sock_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

// A receiver that enables again after every short receive misses no data. The peer concurrently sends pieces of any
// size and urgent bytes, and then closes.
func TestShortReceiveEdge(t *testing.T) {
	onPorts(t, func(t *testing.T, p port) {
		const size = 1 << 20
		peer, s := tcpOn(t, sock.Loopback)
		var received, stop atomic.Int64
		var all sync.WaitGroup
		all.Go(func() { sendPieces(t, peer, size, &received, &stop) })
		t.Cleanup(func() { stop.Store(1); all.Wait() })

		buf, want := make([]byte, 700), make([]byte, 700)
		for at := 0; ; {
			p.enable(s, eventIn, oneShot)
			p.next()
			n, err := len(buf), error(nil)
			for n == len(buf) {
				if n, err = s.Recv(buf); err != nil {
					break
				}
				fillKeystream(want[:n], 5, at)
				if !bytes.Equal(buf[:n], want[:n]) {
					t.Fatalf("at %d: received wrong bytes", at)
				}
				at += n
				received.Store(int64(at))
			}
			if err == io.EOF && at == size {
				break
			}
			if err != nil && err != sock.ErrWouldBlock {
				t.Fatalf("at %d: %v", at, err)
			}
		}
		if saved := p.Stats().FastEnables; (saved > 0) != p.edges() {
			t.Errorf("%d fast enables", saved)
		}
		p.remove(s)
	})
}

// sendPieces sends a keystream in pieces, and closes. It sends an urgent byte only after the receiver has passed the
// previous one; otherwise the system would make the previous one a part of the stream.
func sendPieces(t *testing.T, s *sock.Socket, size int, received, stop *atomic.Int64) {
	defer s.Close()
	random := rand.New(rand.NewPCG(1, 2))
	data := keystream(5, 0, size)
	mark := -1
	had, end := int64(-1), time.Time{}
	for at := 0; at < size && stop.Load() == 0; {
		if now := received.Load(); now != had {
			had, end = now, time.Now().Add(timeout)
		} else if time.Now().After(end) {
			t.Errorf("timed out: the peer has received %d of %d bytes", had, at)
			return
		}
		n, err := s.Send(data[at:min(size, at+1+random.IntN(2000))])
		if err != nil && err != sock.ErrWouldBlock {
			t.Errorf("send: %v", err)
			return
		}
		at += n
		switch random.IntN(8) {
		case 0:
			if received.Load() > int64(mark) {
				if err := unix.Send(int(s.Handle()), []byte("!"), unix.MSG_OOB); err == nil {
					mark = at
				}
			}
		case 1, 2:
			for end := time.Now().Add(timeout); received.Load() < int64(at) && stop.Load() == 0 && time.Now().Before(end); {
				runtime.Gosched() // lets the receiver drain the socket
			}
		}
	}
}

// In many round trips, every enable is a fast enable, and every answer is reported.
func TestFastEnableRoundTrips(t *testing.T) {
	onPorts(t, func(t *testing.T, p port) {
		const rounds = 1000
		client, server := tcpOn(t, sock.Loopback)
		for i := range rounds {
			saved := p.enable(server, eventIn, oneShot)
			if saved != (i > 0 && p.edges()) {
				t.Fatalf("round %d: fast enable: %v", i, saved)
			}
			send(t, client, "question")
			if e := p.next(); e != eventIn {
				t.Fatalf("round %d: %v", i, e)
			}
			recv(t, server, 64, "question", nil)
			send(t, server, "answer")
			if got := receive(t, client, 64); got != "answer" {
				t.Fatalf("round %d: %q", i, got)
			}
		}
		p.remove(server)
	})
}
