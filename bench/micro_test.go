//go:build linux

package main

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// A waker wakes one goroutine, by a channel or by a port.
type waker struct {
	wake  func()
	wait  func() bool // blocks until wake; false after close
	close func()
}

func channelWaker() waker {
	ch := make(chan struct{}, 1)
	return waker{
		wake:  func() { ch <- struct{}{} },
		wait:  func() bool { _, ok := <-ch; return ok },
		close: func() { close(ch) },
	}
}

func portWaker(b *testing.B, backend string) waker {
	port, err := socknotify.New[int](socknotify.WithBackend(backend))
	if err != nil {
		b.Fatal(err)
	}
	out := make([]socknotify.Notification[int], 4)
	return waker{
		wake:  func() { port.Post(1, 1) },
		wait:  func() bool { _, err := port.Process(nil, out, -1); return err == nil },
		close: func() { port.Close() },
	}
}

// BenchmarkWake wakes a goroutine: by a post, and by a channel. In handoff two goroutines wake each
// other in turn; an operation is a wake and its answer. In cross a goroutine that keeps a processor
// busy wakes one that sleeps; p50-ns is the time until the other runs. Compare them with benchstat
// -col /contender.
func BenchmarkWake(b *testing.B) {
	b.Run("handoff/contender=channel", func(b *testing.B) { handoff(b, channelWaker) })
	b.Run("cross/contender=channel", func(b *testing.B) { cross(b, channelWaker) })
	for _, backend := range socknotify.Backends() {
		newWaker := func() waker { return portWaker(b, backend) }
		b.Run("handoff/contender="+backend, func(b *testing.B) { handoff(b, newWaker) })
		b.Run("cross/contender="+backend, func(b *testing.B) { cross(b, newWaker) })
	}
}

func handoff(b *testing.B, newWaker func() waker) {
	there, back := newWaker(), newWaker()
	defer back.close()
	var running sync.WaitGroup
	defer running.Wait()
	defer there.close()
	running.Go(func() {
		for there.wait() {
			back.wake()
		}
	})
	for b.Loop() {
		there.wake()
		back.wait()
	}
}

func cross(b *testing.B, newWaker func() waker) {
	const parks = 50 * time.Microsecond // long enough for the other goroutine to park
	there := newWaker()
	var running sync.WaitGroup
	defer running.Wait()
	defer there.close()
	var woken atomic.Int64
	epoch := time.Now()
	running.Go(func() {
		for there.wait() {
			woken.Store(int64(time.Since(epoch)))
		}
	})
	var all []time.Duration
	for b.Loop() {
		for begin := time.Now(); time.Since(begin) < parks; {
			continue
		}
		woken.Store(0)
		begin := time.Since(epoch)
		there.wake()
		for woken.Load() == 0 {
			continue
		}
		all = append(all, time.Duration(woken.Load())-begin)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2]), "p50-ns")
}

// BenchmarkRegister removes one of many registered sockets and registers it again: with a port,
// which delivers an EventRemove, and with two calls of epoll_ctl.
func BenchmarkRegister(b *testing.B) {
	for _, backend := range socknotify.Backends() {
		b.Run("contender="+backend, func(b *testing.B) { registerPort(b, backend) })
	}
	b.Run("contender=epoll_ctl", registerByHand)
}

// registered makes as many sockets as the benchmark registers. They are bound, because an unbound
// socket is ready on every system.
func registered(b *testing.B) []*sock.Socket {
	all := make([]*sock.Socket, 1024)
	for i := range all {
		s, err := sock.ListenUDP(sock.Loopback, sock.ListenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close() })
		all[i] = s
	}
	return all
}

// registerPort does 64 sockets in a call.
func registerPort(b *testing.B, backend string) {
	port, err := socknotify.New[int](socknotify.WithBackend(backend))
	if err != nil {
		b.Fatal(err)
	}
	defer port.Close()
	const perCall = 64
	all, out := registered(b), make([]socknotify.Notification[int], perCall)
	call := func(first int, op socknotify.Op, out []socknotify.Notification[int]) {
		var regs [perCall]socknotify.Registration[int]
		for i := range regs {
			regs[i] = socknotify.Registration[int]{
				Handle: all[first+i].Handle(), Key: first + i, Op: op, Filter: socknotify.EventIn,
				Trigger: socknotify.TriggerLevel | socknotify.TriggerOneShot,
			}
		}
		n, err := port.Process(regs[:], out, 0)
		for i := range regs {
			err = errors.Join(err, regs[i].Result)
		}
		if n != len(out) || err != nil {
			b.Fatal(n, err)
		}
	}
	for first := 0; first < len(all); first += perCall {
		call(first, socknotify.OpEnable, nil)
	}
	for done := 0; b.Loop(); done++ {
		if done%perCall == 0 {
			first := done % len(all)
			call(first, socknotify.OpRemove, out)
			call(first, socknotify.OpEnable, nil)
		}
	}
}

func registerByHand(b *testing.B) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(epoll)
	all := registered(b)
	add := func(fd int) error {
		return unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	for _, s := range all {
		if err := add(int(s.Handle())); err != nil {
			b.Fatal(err)
		}
	}
	for done := 0; b.Loop(); done++ {
		fd := int(all[done%len(all)].Handle())
		err := unix.EpollCtl(epoll, unix.EPOLL_CTL_DEL, fd, nil)
		if err = errors.Join(err, add(fd)); err != nil {
			b.Fatal(err)
		}
	}
}
