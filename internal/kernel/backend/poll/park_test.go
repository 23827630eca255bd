//go:build unix

package poll

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// Each change makes the parked goroutine take a new copy, the second change as well as the first, and before the
// longest poll(2) is over.
func TestChangesKick(t *testing.T) {
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	p := k.(*Poller)
	parked := make(chan error)
	go func() { parked <- p.Park(time.Time{}, func() bool { return false }) }()
	// blocks reports whether the copy has n sockets and the next change would kick.
	blocks := func(n int) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.parked && !p.kicked && len(p.blocking) == 1+n
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		await.Until(t, what, ok)
	}
	until("Park", func() bool { return blocks(0) })
	var peer int
	for i := range 4 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fds[0])
		defer unix.Close(fds[1])
		peer = fds[1]
		p.Poll([]backend.Change{{Handle: uintptr(fds[0]), Token: uint64(i), Interest: backend.In}}, nil)
		until("a new copy", func() bool { return blocks(i + 1) })
	}
	if _, err := unix.Write(peer, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-parked; err != nil {
		t.Fatal(err)
	}
}
