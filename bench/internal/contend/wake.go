package contend

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"

	"github.com/socknotify/socknotify/bench/internal/param"
)

// A bell wakes one goroutine.
type bell struct {
	ring  func()
	hear  func() error // sleeps until it rings; an error after close
	close func()       // lets the sleeper return
}

// The variants of the workload: two goroutines that wake each other in turn, and one that runs all the
// time, spins for a while and then wakes the other.
const (
	Handoff = "handoff"
	Cross   = "cross"
)

// sleepy is how long the one that runs lets the other fall asleep.
const sleepy = 50 * time.Microsecond

func wake(newBell func() (bell, error)) func(param.Params, func(string)) (param.Outcome, error) {
	return func(p param.Params, _ func(string)) (param.Outcome, error) {
		there, err := newBell()
		if err != nil {
			return param.Outcome{}, err
		}
		back, err := newBell()
		if err != nil {
			return param.Outcome{}, err
		}
		defer back.close()
		if p.What == Cross {
			return cross(there, p.Duration())
		}
		return handoff(there, back, p.Duration())
	}
}

// handoff takes the time from one ring to the answer, halved.
func handoff(there, back bell, d time.Duration) (param.Outcome, error) {
	var running sync.WaitGroup
	running.Go(func() {
		for there.hear() == nil {
			back.ring()
		}
	})
	var all []time.Duration
	w := startWatch()
	for start := w.start; len(all) == 0 || time.Since(w.start) < d; start = time.Now() {
		there.ring()
		if err := back.hear(); err != nil {
			return param.Outcome{}, err
		}
		all = append(all, time.Since(start)/2)
	}
	o := w.stop(2 * int64(len(all)))
	there.close()
	running.Wait()
	latencies(&o, all)
	return o, nil
}

// cross takes the time from the ring until the other runs.
func cross(there bell, d time.Duration) (param.Outcome, error) {
	var running sync.WaitGroup
	var heard atomic.Int64
	epoch := time.Now()
	running.Go(func() {
		for there.hear() == nil {
			heard.Store(int64(time.Since(epoch)))
		}
	})
	var all []time.Duration
	w := startWatch()
	for len(all) == 0 || time.Since(w.start) < d {
		spin(func() bool { return false }, sleepy)
		heard.Store(0)
		rang := time.Since(epoch)
		there.ring()
		if !spin(func() bool { return heard.Load() != 0 }, 5*time.Second) {
			return param.Outcome{}, errors.New("nobody woke up for five seconds")
		}
		all = append(all, time.Duration(heard.Load())-rang)
	}
	o := w.stop(int64(len(all)))
	there.close()
	running.Wait()
	latencies(&o, all)
	return o, nil
}

// spin keeps its processor until done, and reports whether it was in time.
func spin(done func() bool, limit time.Duration) bool {
	for start := time.Now(); ; {
		if done() {
			return true
		}
		if time.Since(start) > limit {
			return false
		}
	}
}

var errOver = errors.New("over")

func newChannelBell() (bell, error) {
	ch := make(chan struct{}, 1)
	return bell{
		ring: func() { ch <- struct{}{} },
		hear: func() error {
			if _, ok := <-ch; !ok {
				return errOver
			}
			return nil
		},
		close: func() { close(ch) },
	}, nil
}

func newCondBell() (bell, error) {
	var mu sync.Mutex
	cond := sync.NewCond(&mu)
	rung, over := false, false
	set := func(b *bool) {
		mu.Lock()
		*b = true
		mu.Unlock()
		cond.Signal()
	}
	return bell{
		ring: func() { set(&rung) },
		hear: func() error {
			mu.Lock()
			defer mu.Unlock()
			for !rung && !over {
				cond.Wait()
			}
			rung = false
			if over {
				return errOver
			}
			return nil
		},
		close: func() { set(&over) },
	}, nil
}

// newConnBell is a byte to a socket that a goroutine reads, by Go's own poller.
func newConnBell() (bell, error) {
	s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return bell{}, err
	}
	from, to := os.NewFile(uintptr(s[0]), ""), os.NewFile(uintptr(s[1]), "")
	buf := make([]byte, 1)
	return bell{
		ring: func() { to.Write(token[:]) },
		hear: func() error {
			_, err := from.Read(buf)
			return err
		},
		close: func() { to.Close() },
	}, nil
}

// newPostBell is Post to a port.
func newPostBell(backend string) func() (bell, error) {
	return func() (bell, error) {
		port, err := socknotify.New[int](socknotify.WithBackend(backend))
		if err != nil {
			return bell{}, err
		}
		out := make([]socknotify.Notification[int], 4)
		return bell{
			ring: func() { port.Post(1, 1) },
			hear: func() error {
				_, err := port.Process(nil, out, -1)
				return err
			},
			close: func() { port.Close() },
		}, nil
	}
}

// newSocketBell is a byte to a socket that is registered with a port.
func newSocketBell(backend string) func() (bell, error) {
	return func() (bell, error) {
		port, err := socknotify.New[int](socknotify.WithBackend(backend))
		if err != nil {
			return bell{}, err
		}
		from, to, err := sock.UnixPair(false)
		if err != nil {
			return bell{}, err
		}
		out := make([]socknotify.Notification[int], 4)
		regs := []socknotify.Registration[int]{socknotify.Enable(from, 1, socknotify.EventIn, oneShot)}
		buf := make([]byte, 8)
		return bell{
			ring: func() { to.Send(token[:]) },
			hear: func() error {
				if _, err := port.Process(regs, out, -1); err != nil {
					return err
				}
				_, err := from.Recv(buf)
				return errors.Join(err, regs[0].Result)
			},
			close: func() { port.Close() },
		}, nil
	}
}
