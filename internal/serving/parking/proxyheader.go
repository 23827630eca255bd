package parking

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// Some wrappers read a header when they are first used. go-proxyproto does: its first Read, and the first call of
// RemoteAddr, wait for the PROXY header, and a read deadline that passes makes the wrapper take the header for missing.
// So Park must not read ahead from such a connection before its header was read, and must not wait for the header
// either. A worker does that: it calls RemoteAddr, reads ahead, and then either makes the call or parks the connection
// again. The connection is settled from then on.
//
// Whether the header was read before the first Park cannot be asked. So a worker settles the connection at once, unless
// Park knows that the connection is fresh from Accept; then nothing but the header can be first, and the lot waits for
// the socket before a worker is needed.
//
// A connection remains parked while it is settled. If its call is to be made for another reason than the socket before it
// is settled, pc.why records that, and the worker makes the call afterwards. A timeout, and the end of the lot, also end
// the wait for the header.

// beginSettling begins to settle pc, and returns the connection. The caller holds pc.mu and calls settle after it.
func (l *Lot) beginSettling(pc *parkedConn) net.Conn {
	pc.state, pc.unsettled = settling, false
	if pc.due != 0 { // a queued connection has no timer
		l.wheel.Set(pc, max(pc.due-l.Now(), 1))
	}
	return pc.conn
}

// endSettling records that the call of a connection that is to be settled, or is being settled, is made after that. The
// caller holds pc.mu.
func (l *Lot) endSettling(pc *parkedConn, why Cause) {
	pc.why = max(pc.why, why, woken)
	if pc.why > woken && pc.state == settling {
		l.SetReadDeadline(pc.conn, unwrap.Past)
	}
}

// settle settles pc, whose state is settling. It reports whether it has parked the connection again. If not, the call is
// to be made.
func (l *Lot) settle(pc *parkedConn, conn *Conn) (again bool) {
	returned, ready := false, true
	l.Relieve()
	defer func() {
		if !returned { // a method has called runtime.Goexit
			pc.mu.Lock()
			defer pc.mu.Unlock()
			pc.state = queued
			l.port.Post(pc, 0)
		}
	}()
	l.Guard(conn, func() {
		conn.RemoteAddr()
		if pc.hasCause() {
			return
		}
		var err error
		if ready, err = conn.readAhead(l); serving.IsPanic(err) {
			ready = true
			conn.Close()
		} else if err != nil {
			ready = true // its function reads without a deadline, as before
			l.Refuse(conn, fmt.Errorf("park: %w: %w", ErrUnparkable, err))
			conn.refused = true
		}
		conn.SetReadDeadline(time.Time{})
	})
	returned = true
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if ready || pc.why != Readable {
		return false
	}
	l.parkAgain(pc)
	return true
}

// hasCause reports whether the connection is closed, or its read deadline is set, before the call.
func (pc *parkedConn) hasCause() bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.why > woken
}

// parkAgain makes a connection that has a record in the table a parked one, after a worker has found that Read would wait.
// If that fails, the function runs: its Read returns the reason, or waits. The caller holds pc.mu.
func (l *Lot) parkAgain(pc *parkedConn) {
	pc.state = parked
	a := l.registrars.Get().(*registrar)
	a.kept = pc
	err := pc.control(a.control)
	if err == nil {
		err = a.err
	}
	a.release()
	if err != nil {
		pc.state = queued
		l.port.Post(pc, 0)
	}
}

// mustSettle reports whether a worker must settle the connection before its function runs. lazy is that of the socket, if
// the connection was not parked before; later the socket is known without looking for it.
func (c *Conn) mustSettle(lazy bool) bool {
	if c.parkedConn.Load() == nil {
		c.unsettled = lazy
	}
	return c.unsettled
}

// Guard calls f, which calls a method of conn. It reports whether f returned, and logs a panic.
// The line has the type of conn and not its address: RemoteAddr of a wrapper may wait for a header, and
// the caller may hold a lock.
func (l *Lot) Guard(conn net.Conn, f func()) (ok bool) { return l.Try(conn, f) == nil }

// Try is Guard, and returns a panic as a *PanicError.
func (l *Lot) Try(conn net.Conn, f func()) error {
	p := serving.Try(f)
	if p == nil {
		return nil
	}
	l.Log.Panic("a handler panicked", p, "type", typeOf(conn))
	return p
}

// typeOf returns the name of the type of conn, or of the connection in a Conn.
func typeOf(conn net.Conn) string {
	if c, ok := conn.(*Conn); ok {
		conn = c.Conn
	}
	return fmt.Sprintf("%T", conn)
}

// Refuse counts a connection that cannot be parked, and logs the first one of its type. It returns err.
func (l *Lot) Refuse(conn net.Conn, err error) error {
	if !errors.Is(err, ErrUnparkable) {
		return err
	}
	l.stats.unparkable.Add(1)
	if _, known := l.unfit.LoadOrStore(typeOf(conn), true); known {
		return err
	}
	var cause *unwrap.UnfitError
	remedy := "give the type a NetConn method that returns the connection below it, or set Unwrap"
	if errors.As(err, &cause) {
		remedy = "let Read return the bytes that the connection holds, and os.ErrDeadlineExceeded if the read deadline has passed"
	}
	l.Log.Log(slog.LevelWarn, "connections of this type are not parked, and keep a goroutine each",
		"type", typeOf(conn), "err", err, "remedy", remedy)
	return err
}
