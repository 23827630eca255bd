package ring

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/handles"
	"github.com/socknotify/socknotify/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func newPoller(t *testing.T, always bool) *Poller {
	t.Helper()
	if err := Probe(); err != nil {
		t.Skip(err)
	}
	handles.NoneLeft(t, "anon_inode:")
	p, err := open(always)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func pair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

// watched returns sockets that a Poller watches, and their peers.
func watched(t *testing.T, p backend.Poller, n int) (fds, peers []int) {
	t.Helper()
	for range n {
		a, b := pair(t)
		fds, peers = append(fds, a), append(peers, b)
	}
	allDone(t, p, changes(backend.Add, fds))
	return fds, peers
}

// changes applies a change for each descriptor. The token is the descriptor's number.
func changes(action backend.Action, fds []int) []backend.Change {
	list := make([]backend.Change, len(fds))
	for i, fd := range fds {
		list[i] = backend.Change{Handle: uintptr(fd), Token: uint64(fd), Interest: backend.In, Action: action}
	}
	return list
}

func allDone(t *testing.T, p backend.Poller, list []backend.Change) {
	t.Helper()
	p.Poll(list, nil)
	for i := range list {
		if c := &list[i]; c.Status != backend.Done || c.Err != nil {
			t.Fatalf("change %d of %d: status %d, %v", i, len(list), c.Status, c.Err)
		}
	}
}

// reports harvests all reports and returns how many there are of each token.
func reports(p backend.Poller) map[uint64]int {
	seen := map[uint64]int{}
	var some [16]backend.Ready
	for n := p.Poll(nil, some[:]); n > 0; n = p.Poll(nil, some[:]) {
		for _, r := range some[:n] {
			seen[r.Token]++
		}
	}
	return seen
}

func send(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte("x")); err != nil {
		t.Fatal(err)
	}
}
