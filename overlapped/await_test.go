package overlapped

import (
	"errors"
	"testing"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/sock"
)

var errRefusedOnce = errors.New("refused once")

// A kernel that refuses for now to watch for what an operation waits for is asked again.
func TestAwaitRefused(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked) {
		x, y := newPair(t)
		var in, out Op[string]
		recv(t, p, x, make([]byte, 1), &in) // what is watched for is receiving
		refused := false
		h.Refuse = func(c *backend.Change) error {
			if c.Action != backend.Set || refused {
				return nil
			}
			refused = true
			return errRefusedOnce
		}
		b := make([]byte, 1<<16)
		filled := 0 // what the system takes before it would block differs from one to the other
		for {
			n, err := x.Send(b)
			if err == sock.ErrWouldBlock {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			filled += n
		}
		must(t, Send(p, x, "k", b, &out))
		if !refused {
			t.Fatal("the kernel was not asked")
		}
		received := receiveAll(y, filled+len(b))
		completes(t, p, &out, len(b), nil)
		must(t, <-received)
		send(t, y)
		completes(t, p, &in, 1, nil)
	})
}

// A send that stops for the others' sake goes on, though the socket has been writable all along and the kernel has
// nothing to report (O5).
func TestSendResumesAfterItsTurn(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], _ *backendtest.Hooked) {
		x, y := newTCP(t)
		var o Op[string]
		b := make([]byte, 4<<20)
		must(t, Send(p, x, "k", b[:1], &o))
		completes(t, p, &o, 1, nil)
		none(t, p) // what the kernel had to report it has
		must(t, Send(p, x, "k", b, &o))
		received := receiveAll(y, len(b)+1)
		completes(t, p, &o, len(b), nil)
		must(t, <-received)
	})
}

// receiveAll has so many bytes received.
func receiveAll(s *sock.Socket, n int) <-chan error {
	received := make(chan error, 1)
	go func() {
		for some := make([]byte, 1<<16); n > 0; {
			m, err := s.Recv(some)
			if n -= m; err == sock.ErrWouldBlock {
				time.Sleep(time.Millisecond) // the socket has no port here that would tell
			} else if err != nil {
				received <- err
				return
			}
		}
		received <- nil
	}()
	return received
}
