package epoll

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend"
)

// Where poll(2) is refused, here because it names more descriptors than a process may have, nothing is known of any
// socket, and epoll is asked about each.
func TestGlanceRefused(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	changes := []backend.Change{{Handle: uintptr(fds[0]), Interest: backend.In, Action: backend.Set, Same: true}}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 0, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	refused := len(glance(changes)) == 1 && !changes[0].Same
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !refused {
		t.Error("a look was taken for made though the system refused it")
	}
	changes[0].Same = true
	if rest := glance(changes); len(rest) != 0 || !changes[0].Same || changes[0].Status != backend.Done {
		t.Errorf("%d changes left of an idle socket, %+v", len(rest), changes[0])
	}
}

// BenchmarkLook is what it costs to look again at an idle socket among 32, by poll(2) and by epoll_ctl.
func BenchmarkLook(b *testing.B) {
	for name, same := range map[string]bool{"poll": true, "epoll_ctl": false} {
		b.Run(name, func(b *testing.B) {
			p, err := Open()
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			looks := make([]backend.Change, glances)
			for i := range looks {
				fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					b.Fatal(err)
				}
				defer unix.Close(fds[0])
				defer unix.Close(fds[1])
				looks[i] = backend.Change{Handle: uintptr(fds[0]), Interest: backend.In | backend.PeerClosed}
			}
			p.Poll(looks, nil)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				for i := range looks {
					looks[i].Action, looks[i].Same = backend.Set, same
				}
				p.Poll(looks, nil)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*glances), "ns/socket")
		})
	}
}
