package iouring

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
)

func newPoller(t *testing.T, completions uint32) *Poller {
	t.Helper()
	if err := Probe(); err != nil {
		t.Skip(err)
	}
	p, err := open(completions)
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

func do(t *testing.T, p *Poller, action kernel.Action, fd int, token uint64) {
	t.Helper()
	c := [1]kernel.Change{{Handle: uintptr(fd), Token: token, Interest: kernel.In | kernel.PeerClosed, Action: action}}
	if p.Poll(c[:], nil); c[0].Status != kernel.Done {
		t.Fatalf("action %d: status %d, %v", action, c[0].Status, c[0].Err)
	}
}

// reports takes what there is by now.
func reports(p *Poller) []kernel.Ready {
	p.Settle()
	var all []kernel.Ready
	var some [8]kernel.Ready
	for n := p.Poll(nil, some[:]); n > 0; n = p.Poll(nil, some[:]) {
		all = append(all, some[:n]...)
	}
	return all
}

func send(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte("x")); err != nil {
		t.Fatal(err)
	}
}

func drain(fd int) {
	for b := make([]byte, 64); ; {
		if n, err := unix.Read(fd, b); n <= 0 || err != nil {
			return
		}
	}
}

// eventually waits for a state that others bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// hungUp reports whether a socket's peer has been closed.
func hungUp(fd int) bool {
	f := []unix.PollFd{{Fd: int32(fd)}}
	unix.Poll(f, 0)
	return f[0].Revents&unix.POLLHUP != 0
}
