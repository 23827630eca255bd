//go:build unix

package socknotify

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// A handle that is closed behind the back of its sock.Socket just before the kernel is told what its operations wait
// for: they complete, all of them (O9).
func TestAwaitOfClosed(t *testing.T) {
	onEach(t, func(t *testing.T, p *Port[string], h *hooked) {
		x, _ := newPair(t)
		other, _ := newPair(t)
		var in, out Overlapped[string]
		recv(t, p, x, make([]byte, 1), &in)
		h.before = func(changes []backend.Change) {
			if len(changes) > 0 && changes[0].Action == backend.Set {
				h.before = nil
				if err := unix.Dup2(int(other.Handle()), int(x.Handle())); err != nil {
					t.Error(err)
				}
			}
		}
		b := make([]byte, 1<<20)
		if err := p.Send(x, "k", b, &out); err != nil {
			t.Fatal(err)
		}
		if h.before != nil {
			t.Fatal("the kernel was not asked")
		}
		for range 2 {
			o := next(t, p).Completed()
			if _, err := o.Result(); err == nil {
				t.Fatal("completed without an error")
			} else if !errors.Is(err, ErrBadSocket) || !errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
		}
	})
}
