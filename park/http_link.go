package park

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A link is what there is of an HTTP connection whether or not it is parked. It belongs to one goroutine at a
// time: that of net/http, through a session, or the lot's.
type link struct {
	in   *listener
	conn net.Conn
	base syscall.Conn // nil where it cannot be parked
	raw  syscall.RawConn
	ctx  context.Context // the program's ConnContext, or nil
	wake func(net.Conn)

	until time.Time // when its idleness ends, or zero
	head  [minHead - 1]byte
	n     uint8 // how much of head there is
	post  bool  // the latest request was a POST
}

// minHead is how much of a request net/http waits for before it counts as begun, and the time-outs of
// requests start. Less of it is no reason to leave the lot.
const minHead = 4

// moment is how long a goroutine of the lot's waits for what it was told of. It may be a part of a TLS
// record, or nothing.
const moment = 5 * time.Millisecond

// peeks are buffers for the first bytes of requests, as large as net/http's own.
var peeks = sync.Pool{New: func() any { return new(peekBuffer) }}

type peekBuffer [4096]byte

func newLink(in *listener, conn net.Conn) *link {
	l := &link{in: in, conn: conn}
	if base, _, err := descend(conn); err == nil {
		if raw, err := base.SyscallConn(); err == nil {
			l.base, l.raw = base, raw
		}
	}
	if _, secure := conn.(interface{ ConnectionState() tls.ConnectionState }); l.base != nil &&
		(secure || in.server.Server.Protocols == nil || !in.server.Server.Protocols.UnencryptedHTTP2()) {
		l.wake = l.ready
	}
	return l
}

// finish closes the connection for good.
func (l *link) finish() {
	l.conn.Close()
	l.in.server.announce(l.conn, http.StateClosed)
}

// tend runs f on a goroutine of ours, for a connection that net/http does not have. f reports whether it has
// handed the connection over, to net/http, to the lot or to another goroutine. Otherwise the connection is
// finished, also if f panics or ends its goroutine: f calls what belongs to the program, such as the callbacks of
// a tls.Config. net/http loses one connection by that, and no more.
func (l *link) tend(f func() (handed bool)) {
	handed := false
	defer func() {
		if !handed {
			l.in.grown(l)
			l.finish()
		}
	}()
	defer l.recovered()
	handed = f()
}

// recovered is deferred, and logs a panic as net/http does.
func (l *link) recovered() {
	err := recover()
	if err == nil || err == http.ErrAbortHandler {
		return
	}
	remote := ""
	if a := l.conn.RemoteAddr(); a != nil {
		remote = a.String()
	}
	buf := make([]byte, 64<<10)
	buf = buf[:runtime.Stack(buf, false)]
	logf(l.in.server.Server, "http: panic serving %v: %v\n%s", remote, err, buf)
}

// park gives up the connection's goroutine. It reports whether the connection was handed over; otherwise it is to
// be finished.
func (l *link) park() (handed bool) {
	s := l.in.server
	if !s.alive.Load() {
		return false
	}
	idle := time.Duration(-1)
	if !l.until.IsZero() {
		idle = max(time.Until(l.until), 1)
	}
	switch err := l.in.lot.park(&parking{l.base, l.raw, l.conn, l.wake, idle, false}); {
	case err == nil:
		if !s.alive.Load() {
			l.in.lot.evict() // SetKeepAlivesEnabled may have missed it
		}
		return true
	case errors.Is(err, net.ErrClosed):
		return false
	default: // the system refuses
		return l.in.rear(l, l.wait)
	}
}

// ready reads what came for a parked connection, and gives it to net/http or parks it again.
func (l *link) ready(net.Conn) {
	l.tend(func() bool {
		l.conn.SetReadDeadline(time.Now().Add(moment))
		idle, handed := l.read()
		return handed || idle && l.park()
	})
}

// wait is what parking replaces.
func (l *link) wait() (handed bool) {
	l.conn.SetReadDeadline(l.until)
	for idle := true; idle; {
		idle, handed = l.read()
	}
	return handed
}

// read reads until a request has begun, and gives the connection to net/http then, or until the deadline passes.
// One Read is not enough: package tls returns one record, and may hold the next, of which the kernel reports
// nothing. read reports whether the connection is still idle, and whether net/http has it. With neither it is to be
// finished.
func (l *link) read() (idle, handed bool) {
	buf := peeks.Get().(*peekBuffer)
	n := copy(buf[:], l.head[:l.n])
	var err error
	for n < minHead && err == nil {
		var m int
		m, err = l.conn.Read(buf[n:])
		n += m
	}
	if n >= minHead {
		l.n = 0
		return false, l.resume(buf, n)
	}
	l.n = uint8(copy(l.head[:], buf[:n]))
	peeks.Put(buf)
	return isTimeout(err) && (l.until.IsZero() || time.Now().Before(l.until)), false
}

// resume gives the connection to net/http, as one that is new to it. It reports whether net/http takes it.
func (l *link) resume(buf *peekBuffer, n int) bool {
	from := 0
	for l.post && from < minHead && (buf[from] == '\r' || buf[from] == '\n') {
		from++ // which net/http would forgive
	}
	copy(buf[:], buf[from:n])
	l.conn.SetReadDeadline(time.Time{})
	return l.in.push(arrival{conn: l.newSession(buf, n-from), link: l})
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// evict closes what is parked.
func (l *Lot) evict() { l.spots.all(func(s *spot) { l.dispatch(s, evicted) }) }
