package park

import (
	"net"
	"net/http"
	"time"

	"github.com/socknotify/socknotify/internal/serving/durations"
	"github.com/socknotify/socknotify/internal/serving/muxed"
)

// A muxedConn is a stream of HTTP/2 as a connection. It has no descriptor, so the lot has it in no
// table: it is parked for its timeouts, and until it is woken.
type muxedConn struct {
	unbound
	noConn
	stream muxed.Stream
}

// CloseWrite ends the response.
func (c *muxedConn) CloseWrite() error {
	c.stream.CloseWrite()
	return nil
}

// Close ends the stream of HTTP/2.
func (c *muxedConn) Close() error {
	c.stream.Close()
	return nil
}

func (c *muxedConn) LocalAddr() net.Addr  { return c.stream.NetConn().LocalAddr() }
func (c *muxedConn) RemoteAddr() net.Addr { return c.stream.NetConn().RemoteAddr() }

// muxedWriter returns the response of a stream that can be taken over, which may be below others.
func muxedWriter(w http.ResponseWriter) (muxed.Writer, error) {
	if below, ok := innermost(w).(muxed.Writer); ok {
		return below, nil
	}
	return nil, http.ErrNotSupported
}

// A responseConn is a stream of HTTP/2 as the connection of a Stream. It is woken by the stream of
// HTTP/2, or by a goroutine that has something for the Stream's function.
type responseConn struct {
	muxedConn
	owner *Stream
	more  bool // there may be more to read; used by the function
}

// An unbound is what the lot parks for something that has no descriptor.
type unbound struct {
	parking parkedConn
	woken   bool // the function must look again before it is parked; protected by parking.mu
}

// response returns the connection of a Stream that is a stream of HTTP/2, or nil.
func (s *Stream) response() *responseConn {
	c, _ := s.conn.(*responseConn)
	return c
}

// parkUnbound parks u, as conn, for at most the time idle unless that is negative. It reports whether
// the function must look again instead.
func (l *Lot) parkUnbound(u *unbound, conn net.Conn, f func(net.Conn),
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
		pc.due = durations.Add(l.now(), idle)
		l.wheel.Set(pc, idle)
	}
	return false, nil
}

func runResponse(conn net.Conn) { conn.(*responseConn).owner.run() }

// wake makes the function look at what has changed.
func (u *unbound) wake(l *Lot) {
	pc := &u.parking
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if pc.state == unparked {
		u.woken = true
	} else {
		l.dispatchLocked(pc, woken)
	}
}

// Wake makes the function of the Stream look at what has changed. It may be called while the stream
// of HTTP/2, or the Stream, is locked.
func (c *responseConn) Wake() { c.wake(c.owner.in.lot) }

func (c *responseConn) Read(b []byte) (int, error) { return c.stream.Read(b) }

// reset ends the response as one that is not whole.
func (c *responseConn) reset() {
	c.stream.Reset()
	c.Wake()
}
