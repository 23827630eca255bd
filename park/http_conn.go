package park

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// An httpConn is an HTTP connection from accept to close. At any time it is owned by one goroutine: a goroutine of
// net/http, through a session, or a goroutine of the lot.
type httpConn struct {
	in   *listener
	conn net.Conn
	base syscall.Conn // the connection with the descriptor, or nil if there is none
	raw  syscall.RawConn
	ctx  context.Context // the result of the program's ConnContext, or nil

	until    time.Duration // when the idle timeout expires, since the lot's start, or 0; if fresh, the end of serving.FirstRequestTime
	idleFrom millis        // when the connection became idle; used while it is parked
	head     [minHead - 1]byte
	n        uint8 // the length of head
	post     bool  // the latest request was a POST
	fresh    bool  // the first request has not begun; changed with in.mu
	idled    bool  // StateIdle was reported; used without a session
	late     bool  // the lot has closed the connection, or its time is over
	lasting  bool  // the connection keeps a goroutine, because it cannot be parked
}

// millis is a time since the lot's start, in milliseconds. It wraps around after 49 days.
type millis uint32

func (l *listener) millis() millis { return millis(l.lot.engine.Now() / time.Millisecond) }

// since returns the time since m.
func (l *listener) since(m millis) time.Duration {
	return time.Duration(l.millis()-m) * time.Millisecond
}

// minHead is the number of bytes after which net/http considers a request begun and starts its timeouts. With fewer
// bytes the connection is parked again.
const minHead = 4

// newHTTPConn returns nil if the program's Unwrap has panicked.
func newHTTPConn(in *listener, conn net.Conn) *httpConn {
	hc := &httpConn{in: in, conn: conn}
	if s, err := in.lot.engine.Find(conn); err == nil {
		hc.base, hc.raw = s.Conn, s.Raw
	} else if serving.IsPanic(err) {
		return nil
	} else {
		in.lot.engine.Refuse(conn, err)
	}
	_, secure := conn.(connectionStater)
	protocols := in.server.Server.Protocols
	hc.lasting = hc.base == nil || !secure && protocols != nil && protocols.UnencryptedHTTP2()
	return hc
}

// begin hands a new connection to net/http, with TLS after the handshake. It reports whether the listener was open.
func (hc *httpConn) begin() (handed bool) {
	l := hc.in
	_, secure := hc.conn.(connectionStater)
	if t, ok := unwrap.AsTLS(hc.conn); ok {
		return l.start(hc, func() bool { return hc.handshake(t) })
	} else if l.server.prior && !secure {
		return l.start(hc, hc.findPreface)
	}
	return l.push(arrival{conn: hc.newSession(), hc: hc})
}

// begun is called when a request has begun, or when the connection has ended or was hijacked. Shutdown waits no longer for
// the first request.
func (hc *httpConn) begun() {
	if hc.fresh {
		hc.in.forget(hc)
	}
}

// cut closes a connection that waits, without waiting for a TLS handshake.
func (hc *httpConn) cut() {
	conn := hc.conn
	if t, ok := unwrap.AsTLS(conn); ok {
		conn = t.NetConn()
	}
	conn.Close()
}

// finish closes the connection and reports StateClosed. A panic of the program's hook is logged: the
// goroutine may be the lot's.
func (hc *httpConn) finish() {
	hc.begun()
	hc.try(func() { hc.conn.Close() })
	hc.try(func() { hc.in.server.announce(hc.conn, http.StateClosed) })
}

// run runs f for a connection that net/http is not serving. f reports whether it has handed the connection over, to
// net/http, to the lot or to another goroutine. If not, run finishes the connection, also if f panics or calls
// runtime.Goexit. f may do both, because it calls code of the program, such as the callbacks of a tls.Config. With
// net/http such a panic costs one connection, and so it does here.
func (hc *httpConn) run(f func() (handed bool)) {
	handed := false
	defer func() {
		if !handed {
			hc.in.forget(hc)
			hc.finish()
		}
	}()
	hc.try(func() { handed = f() })
}

// try calls f. It recovers from a panic, and logs it as net/http does.
func (hc *httpConn) try(f func()) {
	if p := serving.Try(f); p != nil && p.Value != http.ErrAbortHandler {
		s := hc.in.server
		s.panics.Add(1)
		logf(s.Server, "http: panic serving %v: %v\n%s", serving.Remote(hc.conn), p.Value, p.Stack)
	}
}

// park parks the connection. It reports whether the connection was handed over; if not, the caller must finish it.
func (hc *httpConn) park() (handed bool) {
	s := hc.in.server
	if !s.alive.Load() {
		return false
	}
	idle := time.Duration(-1)
	if hc.until != 0 {
		idle = max(hc.until-hc.in.lot.engine.Now(), 1)
	}
	switch err := hc.in.lot.engine.ParkSocket(&parking.Request{Base: hc.base, Raw: hc.raw, Conn: idleConn{hc: hc}, F: endIdle, Idle: idle}); {
	case err == nil:
		if !s.alive.Load() {
			hc.in.evictIdle() // SetKeepAlivesEnabled may have missed this connection
		}
		return true
	case errors.Is(err, net.ErrClosed):
		return false
	default: // the connection cannot be registered: wait in Read instead
		return hc.in.start(hc, hc.wait)
	}
}

// unpark removes the connection from the lot, for another one. It does not call the program's hook again, because net/http
// would leave the connection open after a panic of it.
func (hc *httpConn) unpark() {
	if hc.raw != nil {
		hc.in.lot.engine.UnparkSocket(hc.conn, unwrap.Socket{Conn: hc.base, Raw: hc.raw})
	}
}

// An idleConn is what the lot has of a connection that waits for its next request. It learns from its methods why the lot
// calls the function.
type idleConn struct {
	parking.NoConn
	hc *httpConn
}

func (c idleConn) RemoteAddr() net.Addr { return c.hc.conn.RemoteAddr() }

func (c idleConn) Close() error {
	c.hc.late = true
	c.hc.in.lot.engine.Relieve() // package tls may wait for the peer
	return c.hc.conn.Close()
}

func (c idleConn) SetReadDeadline(time.Time) error {
	c.hc.late = true
	return nil
}

// endIdle is the function of the lot for all idle connections. It hands the connection to net/http, whose first Read is
// session.wake.
func endIdle(conn net.Conn) {
	hc := conn.(idleConn).hc
	hc.run(func() bool {
		if !hc.late {
			conn := hc.newSession()
			s := conn.(inSession).self()
			s.stage, s.post = reported, hc.post
			s.lingers = hc.in.since(hc.idleFrom) < hc.in.lingerTime()
			if hc.in.push(arrival{conn: conn, hc: hc}) {
				return true
			}
		}
		hc.in.lot.engine.Relieve() // the program's ConnState may wait
		return false
	})
}

// wait waits for a request in Read, for a connection that cannot be parked.
func (hc *httpConn) wait() (handed bool) {
	buf := make([]byte, 4096)
	n := copy(buf, hc.head[:hc.n])
	hc.conn.SetReadDeadline(hc.deadline())
	for n < minHead {
		m, err := hc.conn.Read(buf[n:])
		if n += m; err != nil {
			return false
		}
	}
	hc.n = 0
	conn := hc.newSession()
	conn.(inSession).self().next = string(hc.withoutBreaks(buf[:n]))
	hc.conn.SetReadDeadline(time.Time{})
	return hc.in.push(arrival{conn: conn, hc: hc})
}

// setDeadline sets when the idle timeout expires, which is never if t is zero.
func (hc *httpConn) setDeadline(t time.Time) {
	hc.until = 0
	if !t.IsZero() {
		hc.until = max(hc.in.lot.engine.Since(t), 1)
	}
}

// deadline returns when the idle timeout expires.
func (hc *httpConn) deadline() time.Time {
	if hc.until == 0 {
		return time.Time{}
	}
	return hc.in.lot.engine.Time(hc.until)
}

// withoutBreaks returns the first bytes of a request without those that net/http would ignore after a POST (see
// methodRecorder).
func (hc *httpConn) withoutBreaks(p []byte) []byte {
	for i := 0; hc.post && i < minHead && len(p) > 0 && (p[0] == '\r' || p[0] == '\n'); i++ {
		p = p[1:]
	}
	return p
}

// evictIdle evicts every parked connection that has had a request, except for those of requests that wait.
func (l *listener) evictIdle() {
	l.lot.engine.EvictAll(func(conn net.Conn) bool {
		_, waits := conn.(suspendedConn)
		_, silent := conn.(silentConn)
		return waits || silent
	})
}
