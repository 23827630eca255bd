package contend

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A loop is an epoll descriptor that one goroutine uses by hand.
type loop struct {
	fd     int
	events []unix.EpollEvent
}

func newLoop(batch int) (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return &loop{fd, make([]unix.EpollEvent, batch)}, err
}

func (l *loop) add(fd, data int) error {
	return unix.EpollCtl(l.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(data)})
}

// wait polls without informing Go's scheduler, and blocks a thread only if nothing is ready.
func (l *loop) wait() ([]unix.EpollEvent, error) {
	events := uintptr(unsafe.Pointer(unsafe.SliceData(l.events)))
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.fd), events, uintptr(len(l.events)), 0, 0, 0)
	if errno != 0 || n == 0 {
		n, _, errno = syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.fd), events, uintptr(len(l.events)), ^uintptr(0), 0, 0)
	}
	if errno == unix.EINTR {
		return nil, nil
	}
	if errno != 0 {
		return nil, errno
	}
	return l.events[:n], nil
}

// core returns the run of an event core. The cost to be subtracted is that of one goroutine, or of
// as many as there are waiters.
func core(waiters bool, f func(p Params, t *tokens) (Outcome, error)) run {
	return func(p Params, _ func(string)) (Outcome, error) {
		t, err := newTokens(p)
		if err != nil {
			return Outcome{}, err
		}
		defer t.close()
		if p.Waiters = max(p.Waiters, 1); !waiters {
			p.Waiters = 1
		}
		base := t.base(p.Waiters, p.Batch)
		o, err := f(p, t)
		o.Base = base
		return o, err
	}
}

// loopCore is the event core on level-triggered epoll, by hand in Go.
func loopCore(p Params, t *tokens) (Outcome, error) {
	l, err := newLoop(p.Batch)
	if err != nil {
		return Outcome{}, err
	}
	if err := t.each(l.add); err != nil {
		return Outcome{}, err
	}
	t.begin()
	var buf [8]byte
	var ops int64
	w := startWatch()
	until := time.Now().Add(p.Duration())
	for turns := 1; turns%16 != 0 || time.Now().Before(until); turns++ {
		events, err := l.wait()
		if err != nil {
			return Outcome{}, err
		}
		for i := range events {
			ops += t.pass(int(events[i].Fd), &buf)
		}
	}
	return w.stop(ops), nil
}

// stdCore is the event core on Go's poller: a goroutine for each socket.
func stdCore(p Params, t *tokens) (Outcome, error) {
	var ops atomic.Int64
	var running, parking sync.WaitGroup
	var files []*os.File
	err := t.each(func(fd, k int) error {
		f := os.NewFile(uintptr(fd), "")
		files = append(files, f)
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		parking.Add(1)
		running.Go(func() {
			var buf [8]byte
			parks := sync.OnceFunc(parking.Done)
			ready := func(uintptr) bool {
				if k >= 0 && t.take(k, &buf) { // an inactive socket has nothing to read before it is closed
					return true
				}
				parks()
				return false
			}
			for {
				if raw.Read(ready) != nil {
					return
				}
				ops.Add(1)
				t.give(k ^ 1)
			}
		})
		return nil
	})
	if err != nil {
		return Outcome{}, err
	}
	parking.Wait()
	t.begin()
	w, before := startWatch(), ops.Load()
	time.Sleep(p.Duration())
	o := w.stop(ops.Load() - before)
	for _, f := range files {
		f.Close() // it owns the descriptor
	}
	running.Wait()
	t.out = nil
	return o, nil
}
