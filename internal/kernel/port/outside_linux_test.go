package port_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/internal/test/await"
)

// An outsider is a thread that waits outside, by poll(2), as the C library's do.
type outsider struct {
	fd    int // an eventfd
	alert func()
}

func newOutsider(t *testing.T) *outsider {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &outsider{fd, func() { unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 1}) }}
}

// wait dequeues one notification.
func (o *outsider) wait(p *port.Port, out []socknotify.Notification[int], timeout int) (int, error) {
	w := p.Begin()
	if w == nil {
		return 0, port.ErrClosed
	}
	defer p.End(w)
	for over := false; ; {
		n, lead, err := p.PollOutside(w, port.EntriesOf(unsafe.Pointer(unsafe.SliceData(out)), len(out)), o.alert, over)
		if n > 0 || err != nil {
			return n, err
		}
		fds := []unix.PollFd{{Fd: int32(o.fd), Events: unix.POLLIN}, {Fd: -1, Events: unix.POLLIN}}
		if lead {
			fds[1].Fd = int32(p.Descriptor())
		}
		k, err := unix.Poll(fds, timeout)
		over = k == 0 && err == nil
		if fds[0].Revents != 0 {
			var b [8]byte
			unix.Read(o.fd, b[:])
		}
	}
}

func newEpollPort(t *testing.T) (*socknotify.Port[int], *port.Port) {
	p, err := socknotify.New[int](socknotify.WithBackend("epoll"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, port.Of(p)
}

func newPair(t *testing.T) (a, b int) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

// Calls that wait outside, and goroutines that wait inside, share a port: each post and each notification reaches one of
// them, and none is left behind. All of them return when the port is closed.
func TestOutside(t *testing.T) {
	p, in := newEpollPort(t)
	const waiters, posts, pairs = 6, 2000, 8
	var posted, received atomic.Int64
	var wg sync.WaitGroup
	var peers [pairs]int
	for i := range pairs {
		a, b := newPair(t)
		peers[i] = b
		reg := []socknotify.Registration[int]{{Handle: uintptr(a), Key: a, Filter: socknotify.EventIn, Op: socknotify.OpEnable,
			Trigger: socknotify.TriggerLevel | socknotify.TriggerOneShot}}
		if p.Process(reg, nil, 0); reg[0].Result != nil {
			t.Fatal(reg[0].Result)
		}
	}
	handle := func(out []socknotify.Notification[int]) {
		for i := range out {
			if out[i].Kind() == socknotify.KindPosted {
				posted.Add(1)
				continue
			}
			var b [8]byte
			if n, err := unix.Read(out[i].Key, b[:]); n != 1 {
				t.Error(n, err)
			}
			received.Add(1)
			reg := []socknotify.Registration[int]{{Handle: uintptr(out[i].Key), Key: out[i].Key, Filter: socknotify.EventIn,
				Op: socknotify.OpEnable, Trigger: socknotify.TriggerLevel | socknotify.TriggerOneShot}}
			if p.Process(reg, nil, 0); reg[0].Result != nil {
				t.Error(reg[0].Result)
			}
		}
	}
	for i := range waiters {
		o := newOutsider(t)
		wg.Go(func() {
			var out [2]socknotify.Notification[int]
			for {
				var n int
				var err error
				if i%3 == 0 {
					n, err = p.Process(nil, out[:], -1)
				} else {
					n, err = o.wait(in, out[:], -1)
				}
				if err == socknotify.ErrClosed {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				handle(out[:n])
			}
		})
	}
	for i := range posts {
		if err := p.Post(0, uintptr(i)); err != nil {
			t.Fatal(err)
		}
		if i%4 == 0 { // each pair has one byte at a time
			before := received.Load()
			if _, err := unix.Write(peers[i/4%pairs], []byte{1}); err != nil {
				t.Fatal(err)
			}
			await.Until(t, "the byte is received", func() bool { return received.Load() > before })
		}
	}
	await.Until(t, "all posts are received", func() bool { return posted.Load() >= posts })
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if n := posted.Load(); n != posts {
		t.Errorf("%d posts dequeued, want %d", n, posts)
	}
}

// A call that has waited outside for its time returns ErrTimeout, and leaves the lead to another.
func TestOutsideTimeout(t *testing.T) {
	p, in := newEpollPort(t)
	a, b := newPair(t)
	reg := []socknotify.Registration[int]{{Handle: uintptr(a), Key: a, Filter: socknotify.EventIn, Op: socknotify.OpEnable,
		Trigger: socknotify.TriggerLevel | socknotify.TriggerPersistent}}
	p.Process(reg, nil, 0)
	first, second := newOutsider(t), newOutsider(t)
	done := make(chan error, 2)
	var out [2][1]socknotify.Notification[int]
	go func() {
		_, err := first.wait(in, out[0][:], 20)
		done <- err
	}()
	go func() {
		_, err := second.wait(in, out[1][:], -1)
		done <- err
	}()
	if err := <-done; err != socknotify.ErrTimeout {
		t.Fatal(err)
	}
	unix.Write(b, []byte{1})
	if err := <-done; err != nil || out[1][0].Key != a {
		t.Fatal(err, out)
	}
}

// Blocked re-arms an edge of a raw handle on a backend without edges, and Closing ends its registration.
func TestRawHandles(t *testing.T) {
	for _, backend := range []string{"epoll", "poll"} {
		t.Run(backend, func(t *testing.T) {
			p, err := socknotify.New[int](socknotify.WithBackend(backend))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			in := port.Of(p)
			if (in.Descriptor() >= 0) != (backend == "epoll") {
				t.Error(in.Descriptor())
			}
			a, b := newPair(t)
			reg := []socknotify.Registration[int]{{Handle: uintptr(a), Key: a, Filter: socknotify.EventIn, Op: socknotify.OpEnable,
				Trigger: socknotify.TriggerEdge}}
			p.Process(reg, nil, 0)
			var out [2]socknotify.Notification[int]
			for range 3 {
				unix.Write(b, []byte{1})
				if n, err := p.Process(nil, out[:], time.Minute); n != 1 {
					t.Fatal(n, err)
				}
				var buf [8]byte
				for err = nil; err == nil; {
					_, err = unix.Read(a, buf[:])
				}
				in.Blocked(uintptr(a), true)
			}
			in.Closing(uintptr(a))
			if n := p.Stats().Registrations; n != 0 {
				t.Errorf("%d registrations", n)
			}
			unix.Write(b, []byte{1})
			p.Post(7, 0)
			if n, err := p.Process(nil, out[:], time.Minute); n != 1 || out[0].Key != 7 {
				t.Fatal(n, err, out[0])
			}
		})
	}
}
