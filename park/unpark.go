package park

import (
	"fmt"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// Unpark takes a connection back. It reports whether the connection was parked. If so, the function of that parking
// does not run, and the caller owns the connection. Otherwise the connection was not parked, or its function has
// begun or is about to begin.
//
// Unpark returns false if bytes were read ahead from a connection that was parked without [Wrap]. Those bytes are in
// the [*Conn] that only the function receives, so the function runs. Unpark of that Conn, or of a Conn that was
// parked, takes the connection back with its bytes.
//
// The lot and its port keep a record of a connection until it is closed, even while it is not parked. Unpark removes
// that record. It must be called before another lot or port can use the connection.
func (l *Lot) Unpark(conn net.Conn) bool {
	s, err := l.find(conn)
	return err == nil && l.unpark(conn, s)
}

// unpark is Unpark for a connection whose socket is known.
func (l *Lot) unpark(conn net.Conn, s unwrap.Socket) bool {
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
	return ok && net.Conn(c) != conn && c.hasBytesAhead()
}

// Wake runs the function of a parked connection now, on a goroutine of the lot, although there may be nothing to read. It
// is for a goroutine that has something for the function to do, such as to write what the goroutine has queued. Wake
// reports whether the connection was parked; if not, its function is running or about to run, or the lot does not have
// the connection. If a wrapper is still to read a header, as [Lot.Park] describes, the function runs after that.
func (l *Lot) Wake(conn net.Conn) bool {
	if c, ok := conn.(*Conn); ok && c.parkedConn.Load() == nil {
		return false // it was never parked, and the program's hook is not called
	}
	s, err := l.find(conn)
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

// await changes what a parked connection waits for. If its function is about to run, await does
// nothing.
func (l *Lot) await(conn net.Conn, a awaited) {
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

// evict closes a connection, and makes its function run, if it is parked. If there is something to read, it leaves that to
// the function: a connection that is closed with unread bytes is reset, and its peer may lose what was sent before.
func (l *Lot) evict(conn net.Conn) {
	if pc := l.findConn(conn); pc != nil {
		pc.mu.Lock()
		defer pc.mu.Unlock()
		l.evictLocked(pc)
	}
}

// evictLocked is evict for a caller that holds pc.mu.
func (l *Lot) evictLocked(pc *parkedConn) {
	why := evicted
	if raw, err := pc.base.SyscallConn(); err == nil && pc.state == parked {
		if s := nowait.Of(raw); s.OK() && s.Readable() {
			why = readable
		}
	}
	l.dispatchLocked(pc, why)
}

// CloseConn closes a connection. If the connection is parked, its function runs immediately, and Read fails there
// with net.ErrClosed. If a program calls the Close method of a parked connection instead, the lot needs up to ten
// seconds to find that out.
func (l *Lot) CloseConn(conn net.Conn) error {
	if conn == nil {
		return fmt.Errorf("park: %w: %w", socknotify.ErrInvalid, unwrap.ErrNil)
	}
	pc := l.findConn(conn)
	err := conn.Close()
	if pc != nil {
		l.dispatch(pc, readable)
	}
	return err
}

// reset closes a connection as CloseConn does, and makes the system drop what it has not sent. The
// socket is closed before the connection that wraps it, because package tls would wait for the peer.
// The record is looked for before that: it is found by the open socket, and otherwise only by
// visiting the whole table.
func (l *Lot) reset(conn net.Conn) error {
	pc := l.findConn(conn)
	err := l.cut(conn)
	if pc != nil {
		l.dispatch(pc, readable)
	}
	return err
}

// cut is reset for a connection that is not parked. It closes the connection also if the program's
// hook panics or calls runtime.Goexit.
func (l *Lot) cut(conn net.Conn) (err error) {
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
	l.try(conn, func() { unwrap.Any(from, l.config.Unwrap, reset) })
	return nil
}

// findConn returns the record of a connection, or nil. For a Conn it does not call the program's hook.
func (l *Lot) findConn(conn net.Conn) (found *parkedConn) {
	if c, ok := conn.(*Conn); ok && c.parkedConn.Load() == nil {
		return nil // it was never parked, and the program's hook is not called
	}
	s, err := l.find(conn)
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
