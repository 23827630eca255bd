package epoll

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// If poll(2) fails, here because it names more descriptors than the process may have, no change is left out.
func TestSkipIdleRefused(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	changes := []backend.Change{{Handle: uintptr(fds[0]), Interest: backend.In, Action: backend.Set, SkipIdle: true}}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 0, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	refused := len(skipIdle(changes)) == 1 && !changes[0].SkipIdle
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !refused {
		t.Error("a change was left out although poll(2) failed")
	}
	changes[0].SkipIdle = true
	if rest := skipIdle(changes); len(rest) != 0 || !changes[0].SkipIdle || changes[0].Status != backend.Done {
		t.Errorf("%d changes left of an idle socket, %+v", len(rest), changes[0])
	}
}

// BenchmarkSkipIdle measures a recheck of an idle socket among 32, by poll(2) and by epoll_ctl.
func BenchmarkSkipIdle(b *testing.B) {
	for name, same := range map[string]bool{"poll": true, "epoll_ctl": false} {
		b.Run(name, func(b *testing.B) {
			p, err := New()
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			changes := make([]backend.Change, skipBatch)
			for i := range changes {
				fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					b.Fatal(err)
				}
				defer unix.Close(fds[0])
				defer unix.Close(fds[1])
				changes[i] = backend.Change{Handle: uintptr(fds[0]), Interest: backend.In | backend.PeerClosed}
			}
			p.Poll(changes, nil)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				for i := range changes {
					changes[i].Action, changes[i].SkipIdle = backend.Set, same
				}
				p.Poll(changes, nil)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*skipBatch), "ns/socket")
		})
	}
}
