package socknotify_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

// exhaust leaves the process no descriptor to open; the function it returns gives them back.
func exhaust(t *testing.T) (restore func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	// Below the limit every number is taken first, so that nothing opens even a lower one.
	limit := was
	limit.Cur = 256
	var taken []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, f)
		if uint64(f.Fd())+1 >= limit.Cur {
			limit.Cur = uint64(f.Fd()) + 1
			break
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	restore = func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
		for _, f := range taken {
			f.Close()
		}
		taken = nil
	}
	t.Cleanup(restore)
	return restore
}

// Out of descriptors accepting reports once, and goes on by itself when there are some again (X3).
func TestAcceptOutOfDescriptors(t *testing.T) {
	porttest.OnEach(t, func(t *testing.T, p *Port[string], h *porttest.Hooked) {
		l, err := sock.ListenTCP(sock.Loopback, sock.ListenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := p.Accept(l, "l", 8); err != nil {
			t.Fatal(err)
		}
		var clients [3]*sock.Socket
		for i := range clients {
			if clients[i], err = sock.New(sock.TCP4); err != nil {
				t.Fatal(err)
			}
			defer clients[i].Close()
		}
		if _, err := p.Process(nil, make([]Notification[string], 1), 1); err != ErrTimeout {
			t.Fatal(err) // whatever the runtime opens on the way, it has now
		}
		restore := exhaust(t)
		for _, c := range clients {
			if err := c.Connect(l.LocalAddr()); err != nil && err != sock.ErrWouldBlock {
				t.Fatal(err)
			}
		}
		nt := porttest.Next(t, p)
		if s, err := nt.Accepted(); nt.Events != EventErr || s != nil || !errors.Is(err, unix.EMFILE) {
			t.Fatalf("%v, accepted %v, %v", nt.Events, s, err)
		}
		var polls int
		h.After = func([]backend.Ready) { polls++ }
		var out [4]Notification[string]
		if n, err := p.Process(nil, out[:], 200_000_000); n != 0 || err != ErrTimeout {
			t.Fatalf("Wait = %d, %v; want one report alone", n, err)
		}
		if polls > 20 { // 5, 10, 20, … ms apart
			t.Errorf("tried %d times in 200 ms", polls)
		}
		h.After = nil
		restore()
		for range clients {
			s, err := porttest.Next(t, p).Accepted()
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
		}
		porttest.None(t, p)
	})
}
