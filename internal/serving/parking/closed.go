package parking

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving/clock"
)

// A sweeper finds connections whose Close method was called while they were parked. The kernel drops a closed
// descriptor from the port without a notification, so the sweeper checks the connections itself: one of sweepParts
// parts each sweepInterval. A closed connection is found after at most sweepParts intervals.
type sweeper struct {
	mu      sync.Mutex
	timer   clock.Timer
	on      bool
	stopped bool
	part    int // the next part to check
}

const (
	sweepParts    = 8
	sweepInterval = time.Second
)

// begin starts the timer if it is not running.
func (w *sweeper) begin(l *Lot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on || w.stopped {
		return
	}
	w.on = true
	if w.timer == nil {
		w.timer = l.clock.AfterFunc(sweepInterval, l.sweepPart)
	} else {
		w.timer.Reset(sweepInterval)
	}
}

func (w *sweeper) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// sweepPart checks one part. It stops the timer when the lot knows no connection.
func (l *Lot) sweepPart() {
	w := &l.sweep
	w.mu.Lock()
	part := w.part
	w.part = (part + 1) % sweepParts
	w.mu.Unlock()
	l.conns.some(part, sweepParts, l.sweepConn)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on = l.conns.used.Load() > 0; w.on && !w.stopped {
		w.timer.Reset(sweepInterval)
	}
}

// sweepConn removes pc from the table and from the port if its connection is closed. If the connection was parked, its
// function runs.
func (l *Lot) sweepConn(entry *atomic.Pointer[parkedConn], number uintptr, pc *parkedConn) {
	if err := pc.control(func(uintptr) {}); err == nil {
		return
	}
	l.dispatch(pc, Readable)
	l.conns.mu.Lock() // parkNew may be registering another connection with the number
	defer l.conns.mu.Unlock()
	if l.conns.put(entry, pc, nil) {
		l.port.Deregister(registration(number, socknotify.OpRemove)) // the port would keep pc until the number is used again
	}
}
