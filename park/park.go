package park

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/socknotify/socknotify"
)

// ErrParked says that a connection is parked already.
var ErrParked = errors.New("already parked")

// Options are for one parking.
type Options struct {
	// IdleTimeout goes before the lot's: 0 is the lot's, a negative one is none.
	IdleTimeout time.Duration
	// Reader is what the function will read the connection through. If it has bytes buffered the function
	// runs at once.
	Reader *bufio.Reader
}

// Park gives up the goroutine of an idle connection: f runs, once, on one of the lot's, when a Read of the
// connection would not block. That is when it has bytes, the peer has closed it, it has failed, its idle
// time-out has passed (Read then fails with os.ErrDeadlineExceeded), or it was closed, by [Lot.CloseConn] or
// by the lot (net.ErrClosed). In rare cases there is nothing, and Read blocks.
//
// The caller must not use the connection after Park, because f may be running already; if Park fails it is
// the caller's still, and f never runs. A read deadline is cleared, a write deadline stays.
//
// conn is a connection with a SyscallConn method, such as those of package net, or one around such a
// connection that has a NetConn method, such as a *tls.Conn. One of package net is what f is given. Any
// other may hold bytes that it has read already, and f is given a [*Conn] around it, which must be used from
// then on, because it may hold the next of them; wrap the connection by [Wrap] before, and f is given what
// was parked. If there are such bytes f runs at once. For the same reason a bufio.Reader must be given to
// [Lot.ParkWith].
//
// A function that parks its connection should return soon. If the connection is a [*Conn] that holds bytes, or whose
// bytes have come one soon after the other, the worker that runs f makes the next call itself after f has returned. If f
// goes on for more than 5 milliseconds another worker makes the call, some 10 milliseconds after Park at most.
//
// A panic in f ends the process, as in any goroutine; runtime.Goexit ends f alone.
//
// Errors are ErrClosed, ErrParked, socknotify.ErrInvalid for a connection without a descriptor, and what the
// port or the system says, such as net.ErrClosed.
func (l *Lot) Park(conn net.Conn, f func(net.Conn)) error {
	return l.ParkWith(conn, Options{}, f)
}

// ParkWith is Park with options.
func (l *Lot) ParkWith(conn net.Conn, o Options, f func(net.Conn)) error {
	if f == nil {
		return fmt.Errorf("park: %w: a nil function", socknotify.ErrInvalid)
	}
	idle := o.IdleTimeout
	if idle == 0 {
		idle = l.config.IdleTimeout
	}
	atOnce := o.Reader != nil && o.Reader.Buffered() > 0
	looked := false
	if c, ok := conn.(*Conn); ok {
		var done bool
		if done, looked, atOnce = l.keep(c, f, idle, atOnce); done {
			return nil
		}
	}
	base, plain, err := descend(conn)
	if err != nil {
		return err
	}
	raw, err := base.SyscallConn()
	if err != nil {
		return fmt.Errorf("park: %w", err)
	}
	if !l.enter() { // before bytes are read that would be lost
		return ErrClosed
	}
	armed := false
	defer func() {
		if !armed { // a method of the connection has failed, or panics
			l.leave()
		}
	}()
	if !plain {
		c, wrapped := conn.(*Conn)
		if !wrapped {
			if s := l.find(conn); s != nil && s.isOccupied() {
				return fmt.Errorf("park: %w", ErrParked) // bytes in a second Conn would be lost
			}
			c = Wrap(conn)
		}
		conn = c
		atOnce = atOnce || !looked && c.lookAhead()
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("park: %w", err)
	}
	armed = true
	return l.entered(l.arm(&parking{base, raw, conn, f, idle, atOnce}))
}

// park is for connections that hold nothing.
func (l *Lot) park(p *parking) error {
	if !l.enter() {
		return ErrClosed
	}
	return l.entered(l.arm(p))
}

// entered ends what enter began, if it came to nothing.
func (l *Lot) entered(err error) error {
	if err == nil {
		return nil
	}
	l.leave()
	return fmt.Errorf("park: %w", err)
}

// A parking is what is asked of a lot.
type parking struct {
	base   syscall.Conn
	raw    syscall.RawConn
	conn   net.Conn
	f      func(net.Conn)
	idle   time.Duration // 0 and less: none
	atOnce bool
}

// An armer acts on a descriptor inside Control, so that nobody closes it meanwhile.
type armer struct {
	lot     *Lot
	parking parking
	spot    *spot // to be watched, of a parking that was kept, or nil
	regs    [1]socknotify.Registration[*spot]
	err     error
	control func(uintptr)
}

func newArmer(l *Lot) *armer {
	a := &armer{lot: l}
	a.control = func(number uintptr) {
		if a.spot != nil {
			a.err = a.enable(a.spot, number)
			return
		}
		a.err = a.place(number)
	}
	return a
}

// dismiss gives an armer back.
func (a *armer) dismiss() {
	a.parking, a.spot, a.regs[0], a.err = parking{}, nil, socknotify.Registration[*spot]{}, nil
	a.lot.armers.Put(a)
}

// arm parks.
func (l *Lot) arm(p *parking) error {
	a := l.armers.Get().(*armer)
	a.parking, a.err = *p, nil
	err := p.raw.Control(a.control)
	if err == nil {
		err = a.err
	}
	a.dismiss()
	return err
}

// enable has the port tell when the descriptor is ready.
func (a *armer) enable(s *spot, number uintptr) error {
	a.regs[0] = socknotify.Registration[*spot]{
		Handle: number, Key: s, Op: socknotify.OpEnable,
		Filter:  socknotify.EventIn | socknotify.EventHangup,
		Trigger: socknotify.TriggerLevel | socknotify.TriggerOneShot,
	}
	_, err := a.lot.port.Process(a.regs[:], nil, 0)
	if err == nil {
		err = a.regs[0].Result
	}
	return err
}

// place parks in the connection's spot, or makes it one. The lot is left by the caller if it fails.
func (a *armer) place(number uintptr) error {
	place := a.lot.spots.at(number)
	s, err := a.reuse(place, number)
	if s == nil {
		return a.settle(place, number)
	}
	a.unwatch(place, s, number)
	return err
}

// unwatch ends what watch began for a spot that Unpark had taken before, unless another has replaced it.
func (a *armer) unwatch(place *atomic.Pointer[spot], s *spot, number uintptr) {
	if !s.isGone() {
		return
	}
	a.lot.spots.mu.Lock()
	defer a.lot.spots.mu.Unlock()
	if place.Load() == nil {
		a.lot.port.Deregister(socknotify.Registration[*spot]{Handle: number})
	}
}

// reuse parks in the spot that the connection has from earlier, or returns nil.
func (a *armer) reuse(place *atomic.Pointer[spot], number uintptr) (*spot, error) {
	for {
		s := place.Load()
		if s == nil || s.base != a.parking.base {
			return nil, nil
		}
		switch a.occupy(s) {
		case vacant:
			return s, a.watch(s, number)
		case parked:
			return s, ErrParked
		}
		// Gone: Unpark has taken it from the table.
	}
}

// settle makes a new spot. The number's last one, if any, is of a connection that is closed, or of another
// value for the same socket.
func (a *armer) settle(place *atomic.Pointer[spot], number uintptr) error {
	l := a.lot
	l.spots.mu.Lock()
	defer l.spots.mu.Unlock()
	if s, err := a.reuse(place, number); s != nil {
		return err
	}
	old := place.Load()
	s := &spot{base: a.parking.base, raw: a.parking.raw}
	a.occupy(s)
	err := a.watch(s, number)
	if errors.Is(err, socknotify.ErrKeyMismatch) {
		if old != nil && old.isOccupied() {
			return ErrParked
		}
		// The socket has been parked by another value that stands for it.
		a.regs[0] = socknotify.Registration[*spot]{Handle: number, Op: socknotify.OpRemove}
		l.port.Process(a.regs[:], nil, 0)
		a.occupy(s)
		err = a.watch(s, number)
	}
	if err != nil {
		return err
	}
	for !l.spots.put(place, old, s) {
		old = place.Load() // which the sweeper has given up
	}
	if old != nil {
		l.dispatch(old, readable)
	}
	if l.closing.Load() {
		l.dispatch(s, evicted) // Close may have missed it
	}
	l.sweep.begin(l)
	return nil
}

// occupy makes a spot parked, or queued, before its descriptor is watched. It returns how it found it: vacant,
// as it must be, parked, or gone.
func (a *armer) occupy(s *spot) state {
	l, p := a.lot, &a.parking
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case vacant:
	case gone:
		return gone
	default:
		return parked
	}
	s.state, s.conn, s.fn, s.parkedAt = parked, p.conn, p.f, l.instant()
	l.stats.parked.Add(1)
	l.stats.parks.Add(1)
	if p.atOnce {
		s.state = queued
		l.stats.atOnce.Add(1)
		l.port.Post(s, 0)
		return vacant
	}
	if p.idle > 0 {
		s.due = time.Since(l.start) + p.idle
		l.wheel.Set(s, p.idle)
	}
	return vacant
}

func (s *spot) isGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == gone
}

func (s *spot) isOccupied() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.occupied()
}

// occupied reports whether something is asked for, under the lock.
func (s *spot) occupied() bool { return s.state == parked || s.state == queued || s.state == kept }

// watch has the port tell when the descriptor of a parked spot is ready.
func (a *armer) watch(s *spot, number uintptr) error {
	if a.parking.atOnce {
		return nil
	}
	if err := a.enable(s, number); err != nil {
		if a.lot.withdraw(s) {
			return err
		}
		// Its time-out or Close came first, and its function runs.
	}
	if a.lot.closing.Load() {
		a.lot.dispatch(s, evicted)
	}
	return nil
}

// withdraw makes a spot vacant whose function has not begun. It reports whether it was not.
func (l *Lot) withdraw(s *spot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.occupied() {
		return false
	}
	l.vacate(s)
	return true
}
