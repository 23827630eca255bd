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

// A waker wakes one goroutine.
type waker struct {
	wake  func()
	wait  func() error // blocks until wake; an error after close
	close func()       // makes wait return
}

// The variants of the workload: two goroutines that wake each other in turn, and one that runs all the
// time, spins for a while and then wakes the other.
const (
	Handoff = "handoff"
	Cross   = "cross"
)

// parkTime is long enough for the other goroutine to park.
const parkTime = 50 * time.Microsecond

func wake(newWaker func() (waker, error)) func(param.Params, func(string)) (param.Outcome, error) {
	return func(p param.Params, _ func(string)) (param.Outcome, error) {
		there, err := newWaker()
		if err != nil {
			return param.Outcome{}, err
		}
		back, err := newWaker()
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

// handoff measures the time from a wake to the answer, halved.
func handoff(there, back waker, d time.Duration) (param.Outcome, error) {
	var running sync.WaitGroup
	running.Go(func() {
		for there.wait() == nil {
			back.wake()
		}
	})
	var all []time.Duration
	w := startWatch()
	for start := w.start; len(all) == 0 || time.Since(w.start) < d; start = time.Now() {
		there.wake()
		if err := back.wait(); err != nil {
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

// cross measures the time from a wake until the other goroutine runs.
func cross(there waker, d time.Duration) (param.Outcome, error) {
	var running sync.WaitGroup
	var heard atomic.Int64
	epoch := time.Now()
	running.Go(func() {
		for there.wait() == nil {
			heard.Store(int64(time.Since(epoch)))
		}
	})
	var all []time.Duration
	w := startWatch()
	for len(all) == 0 || time.Since(w.start) < d {
		spin(func() bool { return false }, parkTime)
		heard.Store(0)
		rang := time.Since(epoch)
		there.wake()
		if !spin(func() bool { return heard.Load() != 0 }, 5*time.Second) {
			return param.Outcome{}, errors.New("the waiter did not run within five seconds")
		}
		all = append(all, time.Duration(heard.Load())-rang)
	}
	o := w.stop(int64(len(all)))
	there.close()
	running.Wait()
	latencies(&o, all)
	return o, nil
}

// spin keeps its processor busy until done returns true. It reports false after limit.
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

func newChannelWaker() (waker, error) {
	ch := make(chan struct{}, 1)
	return waker{
		wake: func() { ch <- struct{}{} },
		wait: func() error {
			if _, ok := <-ch; !ok {
				return errOver
			}
			return nil
		},
		close: func() { close(ch) },
	}, nil
}

func newCondWaker() (waker, error) {
	var mu sync.Mutex
	cond := sync.NewCond(&mu)
	rung, over := false, false
	set := func(b *bool) {
		mu.Lock()
		*b = true
		mu.Unlock()
		cond.Signal()
	}
	return waker{
		wake: func() { set(&rung) },
		wait: func() error {
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

// newConnWaker wakes by a byte to a socket that a goroutine reads, on Go's poller.
func newConnWaker() (waker, error) {
	s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return waker{}, err
	}
	from, to := os.NewFile(uintptr(s[0]), ""), os.NewFile(uintptr(s[1]), "")
	buf := make([]byte, 1)
	return waker{
		wake: func() { to.Write(token[:]) },
		wait: func() error {
			_, err := from.Read(buf)
			return err
		},
		close: func() { to.Close() },
	}, nil
}

// newPostWaker wakes by Post.
func newPostWaker(backend string) func() (waker, error) {
	return func() (waker, error) {
		port, err := socknotify.New[int](socknotify.WithBackend(backend))
		if err != nil {
			return waker{}, err
		}
		out := make([]socknotify.Notification[int], 4)
		return waker{
			wake: func() { port.Post(1, 1) },
			wait: func() error {
				_, err := port.Process(nil, out, -1)
				return err
			},
			close: func() { port.Close() },
		}, nil
	}
}

// newSocketWaker wakes by a byte to a socket that is registered with a port.
func newSocketWaker(backend string) func() (waker, error) {
	return func() (waker, error) {
		port, err := socknotify.New[int](socknotify.WithBackend(backend))
		if err != nil {
			return waker{}, err
		}
		from, to, err := sock.UnixPair(false)
		if err != nil {
			return waker{}, err
		}
		out := make([]socknotify.Notification[int], 4)
		regs := []socknotify.Registration[int]{socknotify.Enable(from, 1, socknotify.EventIn, oneShot)}
		buf := make([]byte, 8)
		return waker{
			wake: func() { to.Send(token[:]) },
			wait: func() error {
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
