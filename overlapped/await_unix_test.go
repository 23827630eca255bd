//go:build unix

package overlapped

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/test/backendtest"
)

// A handle that is closed without its sock.Socket just before the backend is told what its operations wait
// for: they complete, all of them (O9).
func TestAwaitOfClosed(t *testing.T) {
	onEach(t, func(t *testing.T, p *socknotify.Port[string], h *backendtest.Hooked) {
		x, _ := newPair(t)
		other, _ := newPair(t)
		var in, out Op[string]
		recv(t, p, x, make([]byte, 1), &in)
		h.Before = func(changes []backend.Change) {
			if len(changes) > 0 && changes[0].Action == backend.Set {
				h.Before = nil
				if err := unix.Dup2(int(other.Handle()), int(x.Handle())); err != nil {
					t.Error(err)
				}
			}
		}
		b := make([]byte, 1<<20)
		must(t, Send(p, x, "k", b, &out))
		if h.Before != nil {
			t.Fatal("the kernel was not asked")
		}
		for range 2 {
			nt := next(t, p)
			o := Of(&nt)
			if _, err := o.Result(); err == nil {
				t.Fatal("completed without an error")
			} else if !errors.Is(err, socknotify.ErrBadSocket) || !errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
		}
	})
}
