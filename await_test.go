package socknotify

import (
	"errors"
	"testing"
	"time"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/sock"
)

var errRefusedOnce = errors.New("refused once")

// A kernel that refuses for now to watch for what an operation waits for is asked again.
func TestAwaitRefused(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, y := newPair(t)
		var in, out Overlapped[string]
		recv(t, p, x, make([]byte, 1), &in) // what is watched for is receiving
		refused := false
		h.refuse = func(c *kernel.Change) error {
			if c.Action != kernel.Set || refused {
				return nil
			}
			refused = true
			return errRefusedOnce
		}
		b := make([]byte, 1<<20)
		if err := p.Send(x, "k", b, &out); err != nil {
			t.Fatal(err)
		}
		if !refused {
			t.Fatal("the kernel was not asked")
		}
		received := make(chan error, 1)
		go func() {
			n, some := 0, make([]byte, 1<<16)
			for n < len(b) {
				m, err := y.Recv(some)
				if n += m; err == sock.ErrWouldBlock {
					time.Sleep(time.Millisecond)
				} else if err != nil {
					received <- err
					return
				}
			}
			received <- nil
		}()
		completes(t, p, &out, len(b), nil)
		if err := <-received; err != nil {
			t.Fatal(err)
		}
		send(t, y)
		completes(t, p, &in, 1, nil)
	})
}
