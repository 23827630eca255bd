package parking

import (
	"errors"
	"net"
	"time"

	"github.com/socknotify/socknotify/internal/serving/durations"
)

// An Unbound is what the lot parks for something that has no descriptor.
type Unbound struct {
	parking parkedConn
	woken   bool // the function must look again before it is parked; protected by parking.mu
}

// ParkUnbound parks u, as conn, for at most the time idle unless that is negative. It reports whether
// the function must look again instead.
func (l *Lot) ParkUnbound(u *Unbound, conn net.Conn, f func(net.Conn),
	idle time.Duration) (again bool, err error) {
	if !l.enter() {
		return false, ErrClosed
	}
	pc := &u.parking
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if u.woken {
		u.woken = false
		l.leave()
		return true, nil
	}
	pc.state, pc.conn, pc.fn, pc.parkedAt = parked, conn, f, l.instant()
	l.stats.parked.Add(1)
	l.stats.parks.Add(1)
	if idle > 0 {
		pc.due = durations.Add(l.Now(), idle)
		l.wheel.Set(pc, idle)
	}
	return false, nil
}

// WakeUnbound makes the function look at what has changed.
func (l *Lot) WakeUnbound(u *Unbound) {
	pc := &u.parking
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.state == unparked {
		u.woken = true
	} else {
		l.dispatchLocked(pc, woken)
	}
}

// A NoConn has the methods of a connection that none calls, or that have nothing to do.
type NoConn struct{}

func (NoConn) Read([]byte) (int, error)         { return 0, errors.ErrUnsupported }
func (NoConn) Write([]byte) (int, error)        { return 0, errors.ErrUnsupported }
func (NoConn) Close() error                     { return nil }
func (NoConn) LocalAddr() net.Addr              { return nil }
func (NoConn) RemoteAddr() net.Addr             { return nil }
func (NoConn) SetDeadline(time.Time) error      { return nil }
func (NoConn) SetReadDeadline(time.Time) error  { return nil }
func (NoConn) SetWriteDeadline(time.Time) error { return nil }
