package parking

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/internal/serving/durations"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A steady connection is one whose bytes arrive without pauses. Registering it with the port before each Read would
// cost several system calls per Read. So it is kept by its worker instead: if Park is called while the connection's
// function runs, the worker that runs the function makes the next call itself, after the function has returned. If
// Read would return without the socket, it makes the call immediately. Otherwise it lingers first: it reads ahead from
// the connection and waits for the next bytes for up to keepTime.
//
// The keepMonitor limits the time that a connection is kept. It interrupts the Read of a worker that has lingered for
// keepTime. If a function has not returned keepTime after its Park, the monitor hands the connection over to the port.
// So the connection's next call is delayed by at most two keepTimes, if a worker is free.
//
// Only steady connections pay for this. A worker lingers only if the function began soon after Park for steadyPace
// times in a row,
// and lingering without receiving bytes resets that count.
//
// A lingering worker counts against MaxRunning. So a worker lingers only if another function could run, and at most
// maxLingering workers linger.

const (
	// keepTime is the maximum time to linger, and the time after which a kept connection is handed over.
	keepTime = 5 * time.Millisecond
	// steadyPace is the number of consecutive calls soon after Park that make a connection a steady one.
	steadyPace = 3
	// keepPauseCalls is the number of calls during which a connection is not kept, after its function took too
	// long to return.
	keepPauseCalls = 100
	// MaxCallsInRow is the number of calls after which a worker hands the connection over, unless another worker
	// waits for work.
	MaxCallsInRow = 16
	// maxLingering is the maximum number of workers that linger. Each of them holds a buffer.
	maxLingering = 64
)

// A worker is a goroutine that runs functions.
type worker struct {
	lot     *Lot
	index   int                        // in workers.list
	current atomic.Pointer[parkedConn] // the connection whose function it runs, or nil
	batch   []socknotify.Notification[*parkedConn]
	ready   []ready // scratch space of dequeue
}

// An instant is a time since the lot's start in units of 65,536 ns. It has two bytes, to keep a parkedConn small, and
// wraps around after 4.3 seconds. Because of that, about one late call in 860 is mistaken for one soon after Park. That
// does no harm, since steadyPace such calls in a row are needed.
type instant uint16

func instantOf(d time.Duration) instant { return instant(d >> 16) }

func (l *Lot) instant() instant { return instantOf(l.Now()) }

// since returns the time since i, modulo 4.3 seconds.
func (l *Lot) since(i instant) time.Duration { return time.Duration(l.instant()-i) << 16 }

// keeping says what is known of a kept connection, and what its worker does.
type keeping uint8

const (
	keepEmpty       keeping = iota // Read may wait for the socket
	keepBytes                      // Read would return without the socket
	keepLingering                  // the worker reads ahead, and waits for the next bytes
	keepInterrupted                // the same, and its Read was interrupted
)

// keep parks c by keeping it for the worker that runs its function, if that is possible; done reports whether it was.
// held reports whether Read would return without the socket. checked reports whether that is certain, because keep has
// read ahead. err is a *PanicError of the program's hook.
func (l *Lot) keep(c *Conn, f func(net.Conn), idle time.Duration, buffered bool) (done, checked, held bool, err error) {
	pc := c.parkedConn.Load()
	held = buffered || HasBytesAhead(c)
	if pc == nil {
		return false, false, held, nil
	}
	pc.mu.Lock()
	may, steady := pc.mayKeep(l), pc.pace >= steadyPace
	pc.mu.Unlock()
	if !may {
		return false, false, held, nil
	}
	if !held {
		t, err := l.UnfinishedTLS(c)
		if err == nil && !(steady && t == nil) {
			held, err = c.readAhead(l)
			checked = true
		}
		switch {
		case serving.IsPanic(err):
			return false, false, false, err
		case err != nil:
			return false, false, false, nil // ParkWith finds it again
		}
	}
	if checked && !held || c.SetReadDeadline(time.Time{}) != nil || !l.enter() {
		return false, checked, held, nil
	}
	now := l.Now()
	pc.mu.Lock()
	if done = pc.mayKeep(l); done {
		pc.state, pc.conn, pc.fn, pc.parkedAt = kept, c, f, instantOf(now)
		if held {
			pc.keeping = keepBytes
		}
		if idle > 0 {
			pc.due = durations.Add(now, idle) // handOver starts the timer
		}
		l.stats.parked.Add(1)
		l.stats.parks.Add(1)
		if held {
			l.stats.atOnce.Add(1)
		}
	}
	pc.mu.Unlock()
	if !done {
		l.leave()
		return false, checked, held, nil
	}
	l.monitor.begin(l)
	if l.closing.Load() {
		l.dispatch(pc, Evicted) // Close may have visited pc before it was kept
	}
	return true, checked, held, nil
}

// mayKeep reports whether a worker of l runs the function of pc and may keep pc. The caller holds pc.mu.
func (pc *parkedConn) mayKeep(l *Lot) bool {
	return pc.state == unparked && pc.runner != nil && pc.runner.lot == l && pc.pace >= 0
}

// updatePace records how soon after Park the function begins. The caller holds pc.mu.
func (l *Lot) updatePace(pc *parkedConn) {
	switch {
	case pc.pace < 0:
		pc.pace++
	case pc.state != parked:
	case l.since(pc.parkedAt) >= keepTime:
		pc.pace = 0
	case pc.pace < steadyPace:
		pc.pace++
	}
}

// keptBy reports whether pc is kept for w. The caller holds pc.mu.
func (pc *parkedConn) keptBy(w *worker) bool { return pc.state == kept && pc.runner == w }

// next returns the call for w to make after it has made calls calls of pc in a row. It returns the zero call if none is
// kept for w; w then stops running pc.
func (l *Lot) next(w *worker, pc *parkedConn, calls int) (c call) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.keptBy(w) {
		ready, checked := pc.keeping == keepBytes && (calls%MaxCallsInRow != 0 || l.workers.spare()), false
		if pc.keeping == keepEmpty && l.workers.beginLinger() {
			ready, checked = l.linger(w, pc), true
		}
		switch {
		case !pc.keptBy(w): // the parking ended while w lingered
		case ready:
			return l.endParkingFor(pc, w)
		default:
			l.handOver(pc, checked)
		}
	}
	if pc.runner == w {
		pc.runner = nil
	}
	return call{}
}

// linger waits for the next bytes of a steady connection. It reports whether Read would return without the socket. The caller
// holds pc.mu, which linger releases while it waits.
func (l *Lot) linger(w *worker, pc *parkedConn) (ready bool) {
	c := pc.conn.(*Conn)
	c.mu.Lock() // stopLingering waits for it
	pc.keeping = keepLingering
	func() {
		pc.mu.Unlock()
		defer pc.mu.Lock()
		defer l.workers.endLinger()
		defer c.mu.Unlock()
		ready = l.readNext(c)
	}()
	if pc.keptBy(w) {
		if pc.keeping == keepInterrupted {
			l.SetReadDeadline(pc.conn, time.Time{})
		}
		pc.keeping = keepEmpty
	}
	return ready
}

// readNext reads the next bytes of a steady connection. It reports whether Read would return without the socket. The caller holds
// c.mu. After a panic the function's Read finds the reason itself.
func (l *Lot) readNext(c *Conn) (ready bool) {
	ready = true
	l.Guard(c, func() {
		var err error
		if ready, err = c.fill(unwrap.ReadPast); err == nil {
			return
		}
		// The error of a Read without a deadline is for the function.
		a := readAheadBuffers.Get().(*readAheadBuffer)
		a.err = errors.Unwrap(err)
		c.ahead, ready = a, true
	})
	return ready
}

// interrupt interrupts the Read of a lingering worker. The caller holds pc.mu.
func (l *Lot) interrupt(pc *parkedConn) {
	if pc.keeping == keepLingering {
		pc.keeping = keepInterrupted
		l.SetReadDeadline(pc.conn, unwrap.Past)
	}
}

// SetReadDeadline sets the read deadline of a connection that a worker may be reading. If it fails,
// Read fails too.
func (l *Lot) SetReadDeadline(conn net.Conn, t time.Time) {
	if !l.Guard(conn, func() { conn.SetReadDeadline(t) }) {
		l.Guard(conn, func() { conn.Close() })
	}
}

// stopLingering interrupts a lingering worker, waits until its Read has returned, and clears the read deadline. The
// caller holds pc.mu; as long as it does, no worker starts to linger for pc.
func (l *Lot) stopLingering(pc *parkedConn) {
	l.interrupt(pc)
	if pc.keeping != keepInterrupted {
		return
	}
	c := pc.conn.(*Conn)
	c.mu.Lock() // wait until Read has returned
	pc.keeping = keepEmpty
	c.mu.Unlock()
	l.SetReadDeadline(c, time.Time{})
}

// handOver makes a kept connection a queued or a parked one, as if it had not been kept. checked reports that the
// worker has lingered and received no bytes. The caller holds pc.mu.
func (l *Lot) handOver(pc *parkedConn, checked bool) {
	switch {
	case checked:
		pc.pace = 0
	case pc.keeping == keepEmpty:
		c := pc.conn.(*Conn)
		ready := true // after a panic, and for a wrapper that is not fit: the function's Read finds the reason
		l.Guard(c, func() {
			var err error
			ready, err = c.readAhead(l)
			ready = ready || err != nil
		})
		if ready {
			pc.keeping = keepBytes
		}
		l.SetReadDeadline(c, time.Time{})
	}
	if pc.keeping == keepBytes {
		pc.state = queued
		l.port.Post(pc, 0)
		return
	}
	if pc.due != 0 {
		l.wheel.Set(pc, pc.due-l.Now())
	}
	l.parkAgain(pc)
}

// abandon is called when w exits because a function, or the connection's Read, panicked or called runtime.Goexit. It
// hands over a connection that is kept for w.
func (l *Lot) abandon(w *worker, pc *parkedConn) {
	w.current.Store(nil)
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.keptBy(w) {
		if pc.keeping != keepBytes {
			pc.keeping = keepEmpty // w no longer lingers
		}
		l.handOver(pc, false)
	}
	if pc.runner == w {
		pc.runner = nil
	}
}

// beginLinger reports whether a worker may linger, and counts it if so. endLinger must follow.
func (c *workers) beginLinger() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == 0 || c.full() || len(c.backlog) > 0 || c.lingering >= maxLingering {
		return false
	}
	c.lingering++
	return true
}

func (c *workers) endLinger() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lingering--
}

// spare reports whether any worker waits for work and may run it.
func (c *workers) spare() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting > 0 && !c.full()
}

// A keepMonitor hands kept connections over after keepTime. Its timer runs only while a connection is kept.
type keepMonitor struct {
	on      atomic.Bool
	mu      sync.Mutex
	timer   clock.Timer
	workers []*worker // scratch space of checkKept
}

// begin starts the timer if it is not running.
func (w *keepMonitor) begin(l *Lot) {
	if w.on.Load() || w.on.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = l.clock.AfterFunc(keepTime, l.monitorKept)
	} else {
		w.timer.Reset(keepTime)
	}
}

// monitorKept is called by the timer.
func (l *Lot) monitorKept() {
	w := &l.monitor
	w.mu.Lock()
	defer w.mu.Unlock()
	again := l.checkKept()
	if !again {
		w.on.Store(false)
		// A connection kept before the store has found on set, and has not started the timer.
		again = l.checkKept() && !w.on.Swap(true)
	}
	if again {
		w.timer.Reset(keepTime)
	}
}

// checkKept handles every connection that has been kept for keepTime: it interrupts the worker if it lingers, and hands
// the connection over otherwise. It reports whether any connection is kept.
func (l *Lot) checkKept() (some bool) {
	c := &l.workers
	c.mu.Lock()
	list := append(l.monitor.workers[:0], c.list...)
	c.mu.Unlock()
	for _, w := range list {
		if pc := w.current.Load(); pc != nil && l.checkWorker(w, pc) {
			some = true
		}
	}
	clear(list)
	l.monitor.workers = list
	return some
}

// checkWorker is checkKept for one worker.
func (l *Lot) checkWorker(w *worker, pc *parkedConn) (kept bool) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if !pc.keptBy(w) {
		return false
	}
	switch {
	case l.since(pc.parkedAt) < keepTime:
	case pc.keeping == keepLingering, pc.keeping == keepInterrupted:
		l.interrupt(pc)
	default:
		pc.pace = -keepPauseCalls
		l.handOver(pc, false)
	}
	return true
}
