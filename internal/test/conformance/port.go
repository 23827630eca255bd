package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
)

// P1 to P3: one port, many sockets, many waiters, and who gets what.
var portCases = map[string]func(*env){
	"P1/WaitersTakeNoThreads": waitersTakeNoThreads,
	"P2/SocketsOnceEach":      socketsOnceEach,
}

// workers dequeues in so many goroutines until stop, which closes the port.
func (e *env) workers(p *port, count, entries int, handle func(note)) (stop func()) {
	var wg sync.WaitGroup
	errs := make(chan error, count)
	for range count {
		wg.Go(func() {
			buf := make([]note, entries)
			for {
				n, err := p.Process(nil, buf, -1)
				if err != nil {
					if !errors.Is(err, socknotify.ErrClosed) {
						errs <- err
					}
					return
				}
				for _, got := range buf[:n] {
					handle(got)
				}
			}
		})
	}
	return func() {
		e.Helper()
		if err := p.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
		e.end(async(func() error { wg.Wait(); return nil }), "closing the port under its waiters")
		close(errs)
		for err := range errs {
			e.Errorf("Wait: %v", err)
		}
	}
}

// threads counts the threads that the runtime has made.
func threads() int {
	n, _ := runtime.ThreadCreateProfile(nil)
	return n
}

// waitersTakeNoThreads applies to kernels that Go's own poller can wait for.
func waitersTakeNoThreads(e *env) {
	const waiters = 64
	p := e.port()
	before := threads()
	var all []<-chan result
	for range waiters {
		all = append(all, e.wait(p, 1, -1))
	}
	e.parked(p, waiters)
	time.Sleep(pause())
	// The runtime starts threads for reasons of its own; a thread each would be 64.
	if now := threads(); now > before+waiters/4 {
		e.Errorf("%d threads before, %d with %d waiters", before, now, waiters)
	}
	p.Close()
	for _, ch := range all {
		e.wantErr(e.get(ch).err, socknotify.ErrClosed)
	}
}

// socketsOnceEach enables one-shot registrations again and again: as many notifications as enables.
func socketsOnceEach(e *env) {
	const sockets, rounds = 8, 100
	p := e.port()
	type connection struct {
		s     *socket
		count int // owned by the holder of the notification
	}
	var finished atomic.Int32
	var failed atomic.Pointer[string]
	stop := e.workers(p, 6, 2, func(n note) {
		c := n.Key.(*connection)
		if c.count++; c.count == rounds {
			finished.Add(1)
			return
		}
		regs := []reg{enable(c.s, c, out, level|oneShot)}
		if _, err := p.Process(regs, nil, 0); err != nil || regs[0].Result != nil {
			s := fmt.Sprint(err, regs[0].Result)
			failed.Store(&s)
		}
	})
	all := make([]*connection, sockets)
	for i := range all {
		s, _ := e.unix()
		all[i] = &connection{s: s}
		e.do(p, enable(s, all[i], out, level|oneShot))
	}
	e.until("every round of every socket", func() bool {
		return failed.Load() != nil || finished.Load() == sockets
	})
	time.Sleep(pause())
	stop()
	if s := failed.Load(); s != nil {
		e.Fatalf("enabling again: %s", *s)
	}
	for i, c := range all {
		if c.count != rounds {
			e.Errorf("socket %d: %d notifications for %d enables", i, c.count, rounds)
		}
	}
}
