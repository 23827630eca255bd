package parking

import (
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// Unpark takes a connection back, as park.Lot.Unpark describes.
func (l *Lot) Unpark(conn net.Conn) bool {
	s, err := l.Find(conn)
	return err == nil && l.UnparkSocket(conn, s)
}

// UnparkSocket is Unpark for a connection whose socket is known.
func (l *Lot) UnparkSocket(conn net.Conn, s unwrap.Socket) bool {
	var was, here bool
	err := s.Raw.Control(func(number uintptr) {
		entry := l.conns.at(number)
		if pc := l.conns.of(entry, s.Conn); pc != nil {
			was = l.removeConn(pc, conn, entry, number)
		}
		here = true
	})
	if err != nil && !here { // the connection is closed
		if pc := l.findClosed(s.Conn); pc != nil {
			was = l.cancel(pc, conn)
		}
	}
	if was {
		l.leave()
	}
	return was
}

// removeConn removes pc from the table and the port, for an Unpark of conn. It is called inside Control. It reports
// whether the connection was parked.
func (l *Lot) removeConn(pc *parkedConn, conn net.Conn, entry *atomic.Pointer[parkedConn], number uintptr) bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.state == removed {
		return false // the table may have another record for the number
	}
	if pc.state == settling {
		l.endSettling(pc, woken) // a worker uses the connection, so its function must run
		return false
	}
	l.stopLingering(pc)
	if pc.hidesBytes(conn) {
		return false // its function must run
	}
	was := pc.pending()
	if was {
		l.endParking(pc)
	}
	// The state changes first: a concurrent Park of pc would register it again.
	pc.state = removed
	l.port.Deregister(registration(number, socknotify.OpRemove))
	l.conns.put(entry, pc, nil)
	return was
}

// hidesBytes reports whether pc holds bytes that were read ahead and that a caller with conn alone
// could not read. The caller holds pc.mu.
func (pc *parkedConn) hidesBytes(conn net.Conn) bool {
	c, ok := pc.conn.(*Conn)
	return ok && net.Conn(c) != conn && HasBytesAhead(c)
}

// Wake runs the function of a parked connection now, as park.Lot.Wake describes.
func (l *Lot) Wake(conn net.Conn) bool {
	if c, ok := conn.(*Conn); ok && c.parkedConn.Load() == nil {
		return false // it was never parked, and the program's hook is not called
	}
	s, err := l.Find(conn)
	if err != nil {
		return false
	}
	var pc *parkedConn
	s.Raw.Control(func(number uintptr) { pc = l.conns.of(l.conns.at(number), s.Conn) })
	if pc == nil {
		return false
	}
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.state == kept {
		l.stopLingering(pc) // the function's Read would wait for that of the worker
	}
	return l.dispatchLocked(pc, woken)
}

// Await changes what a parked connection waits for. If its function is about to run, await does
// nothing.
func (l *Lot) Await(conn net.Conn, a Awaited) {
	pc := l.findConn(conn)
	if pc == nil {
		return
	}
	pc.mu.Lock()
	defer pc.mu.Unlock()
	switch pc.state {
	case parked:
		pc.await = a
		l.parkAgain(pc)
	case settling, kept:
		pc.await = a // for parkAgain
	}
}

// Evict closes a connection, and makes its function run, if it is parked. If there is something to read, it leaves that to
// the function: a connection that is closed with unread bytes is reset, and its peer may lose what was sent before.
func (l *Lot) Evict(conn net.Conn) {
	if pc := l.findConn(conn); pc != nil {
		pc.mu.Lock()
		defer pc.mu.Unlock()
		l.evictLocked(pc)
	}
}

// evictLocked is evict for a caller that holds pc.mu.
func (l *Lot) evictLocked(pc *parkedConn) {
	why := Evicted
	if raw, err := pc.base.SyscallConn(); err == nil && pc.state == parked {
		if s := nowait.Of(raw); s.OK() && s.Readable() {
			why = Readable
		}
	}
	l.dispatchLocked(pc, why)
}

// EvictAll evicts every parked connection, except for those that stay.
func (l *Lot) EvictAll(stays func(net.Conn) bool) {
	l.conns.all(func(pc *parkedConn) {
		pc.mu.Lock()
		defer pc.mu.Unlock()
		if !stays(pc.conn) {
			l.evictLocked(pc)
		}
	})
}

// WakeAll is Wake for every parked connection that it is for.
func (l *Lot) WakeAll(is func(net.Conn) bool) {
	l.conns.all(func(pc *parkedConn) {
		pc.mu.Lock()
		defer pc.mu.Unlock()
		if is(pc.conn) {
			l.dispatchLocked(pc, woken)
		}
	})
}

// WakeSocket is Wake for a socket that is parked as conn.
func (l *Lot) WakeSocket(base syscall.Conn, raw syscall.RawConn, conn net.Conn) {
	var pc *parkedConn
	raw.Control(func(number uintptr) { pc = l.conns.of(l.conns.at(number), base) })
	if pc == nil {
		return
	}
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.conn == conn {
		l.dispatchLocked(pc, woken)
	}
}

// CloseConn closes a connection, as park.Lot.CloseConn describes.
func (l *Lot) CloseConn(conn net.Conn) error {
	if conn == nil {
		return fmt.Errorf("park: %w: %w", socknotify.ErrInvalid, unwrap.ErrNil)
	}
	pc := l.findConn(conn)
	err := conn.Close()
	if pc != nil {
		l.dispatch(pc, Readable)
	}
	return err
}

// Reset closes a connection as CloseConn does, and makes the system drop what it has not sent. The
// socket is closed before the connection that wraps it, because package tls would wait for the peer.
// The record is looked for before that: it is found by the open socket, and otherwise only by
// visiting the whole table.
func (l *Lot) Reset(conn net.Conn) error {
	pc := l.findConn(conn)
	err := l.Cut(conn)
	if pc != nil {
		l.dispatch(pc, Readable)
	}
	return err
}

// Cut is reset for a connection that is not parked. It closes the connection also if the program's
// hook panics or calls runtime.Goexit.
func (l *Lot) Cut(conn net.Conn) (err error) {
	defer func() { err = conn.Close() }()
	reset := func(c net.Conn) bool {
		t, ok := c.(*net.TCPConn)
		if ok {
			t.SetLinger(0) // the system must not keep what the peer does not read
			if conn != c {
				t.Close()
			}
		}
		return ok
	}
	from := conn
	if c, ok := conn.(*Conn); ok {
		if pc := c.parkedConn.Load(); pc != nil {
			if base, ok := pc.base.(net.Conn); ok { // found already; it may wrap a *net.TCPConn itself
				from = base
			}
		}
	}
	l.Try(conn, func() { unwrap.Any(from, l.config.Unwrap, reset) })
	return nil
}

// Adopt notes in c the record of a connection that is parked as another one, for Wake and CloseConn.
func (l *Lot) Adopt(c *Conn, base net.Conn) {
	if c.parkedConn.Load() == nil {
		c.parkedConn.Store(l.findConn(base))
	}
}

// Due returns when the idle timeout of a parked connection expires, since the lot's start, or 0 if it has none.
func (l *Lot) Due(conn net.Conn) (due time.Duration, isParked bool) {
	pc := l.findConn(conn)
	if pc == nil {
		return 0, false
	}
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.due, pc.state == parked
}

// findConn returns the record of a connection, or nil. For a Conn it does not call the program's hook.
func (l *Lot) findConn(conn net.Conn) (found *parkedConn) {
	if c, ok := conn.(*Conn); ok && c.parkedConn.Load() == nil {
		return nil // it was never parked, and the program's hook is not called
	}
	s, err := l.Find(conn)
	if err != nil {
		return nil
	}
	if err := s.Raw.Control(func(number uintptr) { found = l.conns.of(l.conns.at(number), s.Conn) }); err == nil {
		return found
	}
	return l.findClosed(s.Conn)
}

// findClosed returns the record of a closed connection, or nil. The connection has no descriptor any more, so
// findClosed visits the whole table.
func (l *Lot) findClosed(base syscall.Conn) (found *parkedConn) {
	l.conns.all(func(pc *parkedConn) {
		if pc.base == base {
			found = pc
		}
	})
	return found
}
