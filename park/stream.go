package park

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A stream is a connection whose bytes come one after the other without a pause. To register it with the port
// before each of them would cost several system calls. Its parkings are kept instead: Park, called while the
// connection's function runs, leaves the parking to the worker that runs the function. When the function has
// returned the worker runs the next one itself, at once if bytes are held. If not, it reads ahead first, as a
// goroutine of the connection's own would, and waits for a moment.
//
// The watch bounds how long a parking is kept. It ends the Read of a worker that has waited for a moment, and hands
// over the parking of a function that has gone on for a moment after Park: to the port, or as a post. So
// the connection's next call waits for a function that has parked it for two moments at most, if a worker is free.
//
// A connection pays for this only while it is a stream: only a function that came soon after Park, several times in a
// row, is followed by a wait. A wait in vain ends the row.
//
// A lingering worker counts against MaxRunning, so one lingers only if another waits for work, and not more than
// maxLingering do.

const (
	// keepTime is the moment above.
	keepTime = 5 * time.Millisecond
	// steady is the length of the row above.
	steady = 3
	// keepPause is the number of turns in which nothing is kept for a connection whose function went on for
	// long after Park.
	keepPause = 100
	// turnsInRow is the number of turns after which a worker leaves a connection if none waits for work.
	turnsInRow = 16
	// maxLingering bounds the workers that linger, each with a buffer.
	maxLingering = 64
)

// A worker is one of the crew.
type worker struct {
	lot   *Lot
	index int                  // in the list of the crew
	spot  atomic.Pointer[spot] // whose function it runs, or ran last
}

// An instant is a time since the lot's start in units of 65,536 ns. It has two bytes for the size of a spot, and wraps
// around after 4.3 seconds. So a function that came late may be taken for one that came soon, about once in 860 times;
// a stream is taken for one only after three in a row.
type instant uint16

func instantOf(d time.Duration) instant { return instant(d >> 16) }

func (l *Lot) instant() instant { return instantOf(time.Since(l.start)) }

// since reports how long ago an instant was.
func (l *Lot) since(i instant) time.Duration { return time.Duration(l.instant()-i) << 16 }

// keep leaves a parking to the worker that runs the connection's function, if it may. held reports whether Read would
// return without the socket, as far as is known: if looked, the connection inside was asked.
func (l *Lot) keep(c *Conn, f func(net.Conn), idle time.Duration, buffered bool) (done, looked, held bool) {
	s := c.spot.Load()
	held = buffered || c.holds()
	if s == nil {
		return false, false, held
	}
	s.mu.Lock()
	may, stream := s.mayKeep(l), s.pace >= steady
	s.mu.Unlock()
	if !may {
		return false, false, held
	}
	if !held && !(stream && c.established()) {
		looked, held = true, c.lookAhead()
	}
	if looked && !held || c.SetReadDeadline(time.Time{}) != nil || !l.enter() {
		return false, looked, held
	}
	now := time.Since(l.start)
	s.mu.Lock()
	if done = s.mayKeep(l); done {
		s.state, s.conn, s.fn, s.held, s.parkedAt = kept, c, f, held, instantOf(now)
		if idle > 0 {
			s.due = now + idle // for handOver
		}
		l.stats.parked.Add(1)
		l.stats.parks.Add(1)
		if held {
			l.stats.atOnce.Add(1)
		}
	}
	s.mu.Unlock()
	if !done {
		l.leave()
		return false, looked, held
	}
	l.watch.begin(l)
	if l.closing.Load() {
		l.dispatch(s, evicted) // Close may have missed it
	}
	return true, looked, held
}

// mayKeep reports whether a parking in l may be kept. s.mu is held.
func (s *spot) mayKeep(l *Lot) bool {
	return s.state == vacant && s.runner != nil && s.runner.lot == l && s.pace >= 0
}

// paced notes how soon a function comes after Park. s.mu is held.
func (l *Lot) paced(s *spot) {
	switch {
	case s.pace < 0:
		s.pace++
	case s.state != parked:
	case l.since(s.parkedAt) >= keepTime:
		s.pace = 0
	case s.pace < steady:
		s.pace++
	}
}

// keptBy reports whether a parking is kept by w. s.mu is held.
func (s *spot) keptBy(w *worker) bool { return s.state == kept && s.runner == w }

// next returns the next call of the function that w has run, or nil if that is not for w to run.
func (l *Lot) next(w *worker, s *spot, turns int) (c call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keptBy(w) {
		ready, looked := s.held && (turns%turnsInRow != 0 || l.crew.spare()), false
		if !s.held && l.crew.beginLinger() {
			ready, looked = l.linger(w, s), true
		}
		switch {
		case !s.keptBy(w): // another has taken it while w lingered
		case ready:
			return l.vacateFor(s, w)
		default:
			l.handOver(s, looked)
		}
	}
	if s.runner == w {
		s.runner = nil
	}
	return call{}
}

// linger waits for a stream's next bytes, and reports whether a Read would return at once. s.mu is held, but not
// while it waits.
func (l *Lot) linger(w *worker, s *spot) (ready bool) {
	c := s.conn.(*Conn)
	c.mu.Lock() // which Unpark waits for
	s.lingering = true
	func() {
		s.mu.Unlock()
		defer s.mu.Lock()
		defer l.crew.endLinger()
		defer c.mu.Unlock()
		ready = c.fill()
	}()
	if s.keptBy(w) {
		if s.lingering = false; s.roused {
			s.roused = false
			c.SetReadDeadline(time.Time{}) // fails if Read does
		}
	}
	return ready
}

// rouse ends the Read of a worker that lingers. s.mu is held.
func (s *spot) rouse() {
	if s.lingering && !s.roused {
		s.roused = true
		s.conn.SetReadDeadline(longAgo) // fails if Read does
	}
}

// still has no worker linger, and none begin to, as long as s.mu is held, as it is. The connection's read deadline is
// cleared.
func (s *spot) still() {
	if !s.lingering {
		return
	}
	s.rouse()
	c := s.conn.(*Conn)
	c.mu.Lock() // until the Read has returned
	s.lingering, s.roused = false, false
	c.mu.Unlock()
	c.SetReadDeadline(time.Time{})
}

// handOver makes a kept parking what it would be without a worker to keep it. looked reports that the connection
// inside holds no bytes. s.mu is held.
func (l *Lot) handOver(s *spot, looked bool) {
	if !looked && !s.held {
		c := s.conn.(*Conn)
		s.held = c.lookAhead()
		c.SetReadDeadline(time.Time{}) // fails if Read does
	} else if looked {
		s.pace = 0
	}
	if s.held {
		s.state = queued
		l.port.Post(s, 0)
		return
	}
	s.state = parked
	if s.due != 0 {
		l.wheel.Set(s, s.due-time.Since(l.start))
	}
	a := l.armers.Get().(*armer)
	a.spot, a.err = s, nil
	err := s.raw.Control(a.control)
	if err == nil {
		err = a.err
	}
	a.dismiss()
	if err != nil {
		s.state = queued // its Read says why, or waits
		l.port.Post(s, 0)
	}
}

// abandon is for a worker that ends in a function, or in the connection's Read.
func (l *Lot) abandon(w *worker, s *spot) {
	w.spot.Store(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keptBy(w) {
		s.lingering = false
		l.handOver(s, false)
	}
	if s.runner == w {
		s.runner = nil
	}
}

// established reports whether Read reads no handshake.
func (c *Conn) established() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete = c.complete || complete(c.Conn)
	return c.complete
}

// beginLinger reports whether a worker may linger.
func (c *crew) beginLinger() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == 0 || c.lingering >= maxLingering {
		return false
	}
	c.lingering++
	return true
}

func (c *crew) endLinger() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lingering--
}

// spare reports whether a worker waits for work.
func (c *crew) spare() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting > 0
}

// A watch looks after what is kept, as long as something is.
type watch struct {
	on    atomic.Bool
	mu    sync.Mutex
	timer *time.Timer
	list  []*worker // of one look
}

func (w *watch) begin(l *Lot) {
	if w.on.Load() || w.on.Swap(true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(keepTime, l.lookAfter)
	} else {
		w.timer.Reset(keepTime)
	}
}

// lookAfter is a turn of the watch.
func (l *Lot) lookAfter() {
	w := &l.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	again := l.lookAtKept()
	if !again {
		w.on.Store(false)
		again = l.lookAtKept() && !w.on.Swap(true) // what was kept before that store
	}
	if again {
		w.timer.Reset(keepTime)
	}
}

// lookAtKept hands over, or rouses, what was kept for long enough. It reports whether anything is kept.
func (l *Lot) lookAtKept() (some bool) {
	c := &l.crew
	c.mu.Lock()
	list := append(l.watch.list[:0], c.workers...)
	c.mu.Unlock()
	for _, w := range list {
		if s := w.spot.Load(); s != nil && l.lookAtOne(w, s) {
			some = true
		}
	}
	clear(list)
	l.watch.list = list
	return some
}

func (l *Lot) lookAtOne(w *worker, s *spot) (is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.keptBy(w) {
		return false
	}
	switch {
	case l.since(s.parkedAt) < keepTime:
	case s.lingering:
		s.rouse()
	default:
		s.pace = -keepPause
		l.handOver(s, false)
	}
	return true
}
