package socknotify_test

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/test/await"
	"github.com/socknotify/socknotify/internal/test/handles"
	"github.com/socknotify/socknotify/internal/test/long"
	"github.com/socknotify/socknotify/internal/test/porttest"
	"github.com/socknotify/socknotify/sock"
)

func threads(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// spareThreads has the runtime make threads, which it keeps. What it needs on a busy machine for reasons of its own, such as
// one for each of GOMAXPROCS, it takes from them.
func spareThreads(t *testing.T) {
	t.Helper()
	var blocked sync.WaitGroup
	for range runtime.GOMAXPROCS(0) + 8 {
		blocked.Go(func() {
			wait := syscall.Timespec{Nsec: 50e6}
			syscall.Nanosleep(&wait, nil) // a system call that holds its thread
		})
	}
	blocked.Wait()
}

// Parked waiters cost no thread each: on epoll two at most for all of them, on poll one that blocks
// besides.
func TestParkedWaitersCostNoThreads(t *testing.T) {
	onEachName(t, func(t *testing.T, backend string) {
		p, err := New[int](WithBackend(backend))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		porttest.HadSocket(t, p)
		spareThreads(t)
		before := threads(t)
		const waiters = 64
		done := make(chan struct{})
		for range waiters {
			go func() {
				var out [1]Notification[int]
				p.Process(nil, out[:], -1)
				done <- struct{}{}
			}()
		}
		porttest.Waiting(t, p, waiters)
		settle(t)
		if after := threads(t); after > before+2 {
			t.Errorf("%d threads before, %d with %d parked waiters", before, after, waiters)
		}
		p.Close()
		for range waiters {
			<-done
		}
	})
}

// settle waits until every other goroutine waits, or is in a system call with a thread of its own.
func settle(t *testing.T) {
	t.Helper()
	s := []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}, {Name: "/sched/goroutines/running:goroutines"}}
	await.Until(t, "no other goroutine runs", func() bool {
		metrics.Read(s)
		return s[0].Value.Uint64() == 0 && s[1].Value.Uint64() <= 1
	})
}

// A parked waiter does nothing: less than a fiftieth of a thousandth of the time, measured over five
// seconds, or half a second with -short.
func TestParkedWaiterUsesNoCPU(t *testing.T) {
	if runtime.GOARCH == "mips" {
		t.Skip("a thread of Go's runtime spins there instead of sleeping for less than a second (golang/go#77934)")
	}
	onEachName(t, func(t *testing.T, backend string) {
		p, err := New[int](WithBackend(backend))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		x, _ := porttest.Pair(t)
		porttest.Do(t, p, porttest.EnableHandle(x.Handle(), 1, EventIn, porttest.OneShot))
		waits := long.Or(5*time.Second, time.Second/2)
		debug.FreeOSMemory() // otherwise the runtime would do it during the test
		cpu, switches := usage(t)
		var out [1]Notification[int]
		p.Process(nil, out[:], waits)
		used, switched := usage(t)
		used, switched = used-cpu, switched-switches
		t.Logf("%v of CPU and %d switches in %v", used, switched, waits)
		// The bound asked for is 1 ms in 5 s. The whole process is measured, the runtime's own
		// housekeeping included, so the test only refuses what a spinning or ticking waiter uses.
		// A kernel that runs as a program (user-mode Linux) also charges the process for the time
		// that the machine gave to others, so a waiter that ticks must have switched, too.
		ticks := switched > 100+int64(waits/(20*time.Millisecond))
		if used > waits/2 || used > waits/100 && ticks {
			t.Errorf("a parked waiter used %v of CPU and switched %d times in %v", used, switched, waits)
		}
	})
}

// usage returns the process's CPU time, and how often its threads were switched.
func usage(t *testing.T) (cpu time.Duration, switches int64) {
	t.Helper()
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), int64(ru.Nvcsw) + int64(ru.Nivcsw)
}

// An idle registration costs at most 96 live bytes.
func TestIdleRegistrationMemory(t *testing.T) {
	onEachName(t, func(t *testing.T, backend string) {
		const n = 5000
		type context struct{ _ int }
		contexts := make([]context, n)
		p, err := New[*context](WithBackend(backend))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		socks := make([]*sock.Socket, n)
		for i := range socks {
			if socks[i], err = sock.New(sock.UDP4); err != nil {
				t.Fatal(err)
			}
			defer socks[i].Close()
		}
		before := liveBytes()
		for i, s := range socks {
			porttest.Do(t, p, porttest.EnableHandle(s.Handle(), &contexts[i], EventIn, porttest.OneShot))
		}
		each := float64(liveBytes()-before) / n
		t.Logf("%.1f live bytes per idle registration", each)
		if each > 96 {
			t.Errorf("%.1f live bytes per idle registration; want at most 96", each)
		}
		runtime.KeepAlive(contexts)
	})
}

func liveBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// New without a descriptor left fails with the system's error and leaves none behind.
func TestNewOutOfDescriptors(t *testing.T) {
	onEachName(t, func(t *testing.T, backend string) {
		// The runtime's own poller must have its descriptors first.
		warm, err := New[int](WithBackend(backend))
		if err != nil {
			t.Fatal(err)
		}
		warm.Close()
		before := handles.List()
		var old unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
		for room := range 3 {
			lowest, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			unix.Close(lowest)
			limit := old
			limit.Cur = uint64(lowest + room)
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
				t.Fatal(err)
			}
			p, err := New[int](WithBackend(backend))
			if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); e != nil {
				t.Fatal(e)
			}
			if err == nil {
				p.Close()
				if room == 0 {
					t.Fatal("New succeeded without a descriptor")
				}
				continue
			}
			if !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), backend) {
				t.Fatalf("room for %d: %v", room, err)
			}
		}
		if after := handles.List(); !slices.Equal(after, before) {
			t.Fatalf("open before: %q\nand after: %q", before, after)
		}
	})
}

func onEachName(t *testing.T, f func(t *testing.T, backend string)) {
	for _, name := range Backends() {
		t.Run(name, func(t *testing.T) { f(t, name) })
	}
}

// A process that has more sockets registered than its limit of descriptors, which was lowered since, loses no
// notification and no wake-up: poll(2) refuses so many entries.
func TestLoweredLimit(t *testing.T) {
	onEachName(t, func(t *testing.T, backend string) {
		p, err := New[int](WithBackend(backend))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		const pairs = 50
		var x, y [pairs]*sock.Socket
		for i := range pairs {
			x[i], y[i] = porttest.Pair(t)
			porttest.Do(t, p, porttest.EnableHandle(x[i].Handle(), i, EventIn, porttest.OneShot))
		}
		p.Process(nil, make([]Notification[int], 1), time.Millisecond) // what waiting needs is open
		var was unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
				t.Fatal(err)
			}
		}()
		for _, limit := range []uint64{pairs, 7, 1} {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: was.Max}); err != nil {
				t.Fatal(err)
			}
			for i := range pairs {
				var out [2]Notification[int]
				ended := make(chan struct{})
				if i%2 == 0 {
					porttest.Send(t, y[i])
					close(ended)
				} else {
					go func() {
						defer close(ended)
						porttest.Waiting(t, p, 1)
						porttest.Send(t, y[i])
					}()
				}
				timeout := porttest.Soon
				if i%2 == 0 {
					timeout = 0
				}
				n, err := p.Process(nil, out[:], timeout)
				if n != 1 || err != nil || out[0].Key != i || out[0].Events != EventIn {
					t.Fatalf("limit %d, socket %d: Wait = %v, %v", limit, i, out[:n], err)
				}
				<-ended
				porttest.Drain(t, x[i])
				porttest.Do(t, p, porttest.EnableHandle(x[i].Handle(), i, EventIn, porttest.OneShot))
			}
			go func() {
				porttest.Waiting(t, p, 1)
				p.Post(-1, 0)
			}()
			if nt := porttest.Next(t, p); nt.Kind() != KindPosted {
				t.Errorf("limit %d: %+v; want the post", limit, nt)
			}
			if n, err := p.Process(nil, make([]Notification[int], 1), 30*time.Millisecond); n != 0 || err != ErrTimeout {
				t.Errorf("limit %d: Wait = %d, %v; want nothing", limit, n, err)
			}
		}
	})
}
