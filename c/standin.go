//go:build linux && cgo && !386 && !arm && !mips && !mipsle

package main

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
)

// A standIn is what a leader waits for on a backend without a descriptor. A goroutine blocks in the backend's Park in its
// place, and makes the eventfd fd readable when the backend may have reports. So one goroutine of a port blocks, and none of
// its threads does inside Go.
//
// No report is missed. A leader asks for a Park before it waits for fd, and only a leader drains fd, before it polls. A Park
// that began for an earlier leader serves the present one. One that returns without cause costs the leader a poll.
//
// The port's helper parks by park. A Park of an earlier leader may still run then, and that leader
// may have left a request for another. The helper ends the one and goes before the other. If it
// waited for its turn, a Wake would end a Park that is not the helper's, and a call that waits for
// the helper to end its lead would wait forever.
type standIn struct {
	fd      int
	poller  backend.Poller
	parking sync.Mutex    // held during a Park
	helps   atomic.Bool   // the helper waits for parking
	asked   chan struct{} // holds one request
	closing atomic.Bool
	ended   chan struct{}
	again   atomic.Int64 // nanoseconds until sockets are looked at that poll(2) must not watch
}

// The backend looks at such sockets, for example streams that were not started, ever more rarely within one Park.
// It is left for the leader to poll when that is due.
const (
	againFirst = time.Millisecond
	againMost  = 250 * time.Millisecond
)

func newStandIn(poller backend.Poller) (*standIn, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	s := &standIn{fd: fd, poller: poller, asked: make(chan struct{}, 1), ended: make(chan struct{})}
	s.again.Store(int64(againFirst))
	go s.run()
	return s, nil
}

func (s *standIn) run() {
	defer close(s.ended)
	for range s.asked {
		due := time.Now().Add(time.Duration(s.again.Load()))
		s.parking.Lock()
		err := s.poller.Park(time.Time{}, func() bool {
			return s.closing.Load() || s.helps.Load() || !time.Now().Before(due)
		})
		s.parking.Unlock()
		if s.closing.Load() {
			return
		}
		if err != nil {
			time.Sleep(againFirst) // and the leader polls, and asks again
		}
		if !time.Now().Before(due) {
			s.again.Store(min(2*s.again.Load(), int64(againMost)))
		}
		unix.Write(s.fd, one[:])
	}
}

// park is Park of the backend, for the port's helper.
func (s *standIn) park(until time.Time, poll func() bool) error {
	if !s.parking.TryLock() {
		s.helps.Store(true) // before Wake, so that the next Park finds it
		s.poller.Wake()
		s.parking.Lock()
		s.helps.Store(false)
	}
	defer s.parking.Unlock()
	return s.poller.Park(until, poll)
}

// ask requests a Park for a leader that is about to wait.
func (s *standIn) ask() {
	select {
	case s.asked <- struct{}{}:
	default:
	}
}

// polled is called when a leader has dequeued something.
func (s *standIn) polled() { s.again.Store(int64(againFirst)) }

func (s *standIn) drain() {
	var n [8]byte
	unix.Read(s.fd, n[:])
}

// stop ends the goroutine. The backend must still be open. fd stays open for the threads that wait for it.
func (s *standIn) stop() {
	s.closing.Store(true)
	s.ask()
	s.poller.Wake()
	<-s.ended
}
