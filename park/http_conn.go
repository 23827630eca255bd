package park

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// An httpConn is an HTTP connection from accept to close. At any time it is owned by one goroutine: a goroutine of
// net/http, through a session, or a goroutine of the lot.
type httpConn struct {
	in      *listener
	conn    net.Conn
	base    syscall.Conn // the connection with the descriptor, or nil if there is none
	raw     syscall.RawConn
	ctx     context.Context // the result of the program's ConnContext, or nil
	onReady func(net.Conn)

	until time.Time // when the idle timeout expires, or zero; if fresh, the end of serving.FirstRequestTime
	head  [minHead - 1]byte
	n     uint8 // the length of head
	post  bool  // the latest request was a POST
	fresh bool  // the first request has not begun; changed with in.mu
	idled bool  // StateIdle was reported; used without a session
	late  bool  // nothing was sent in the time for it
}

// minHead is the number of bytes after which net/http considers a request begun and starts its timeouts. With fewer
// bytes the connection is parked again.
const minHead = 4

// peekBuffers holds buffers for the first bytes of requests, as large as those of net/http.
var peekBuffers = sync.Pool{New: func() any { return new(peekBuffer) }}

type peekBuffer [4096]byte

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
	if _, secure := conn.(connectionStater); hc.base != nil &&
		(secure || in.server.Server.Protocols == nil || !in.server.Server.Protocols.UnencryptedHTTP2()) {
		hc.onReady = hc.ready
	}
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
	return l.push(arrival{conn: hc.newSession(nil, 0), hc: hc})
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
	if !hc.until.IsZero() {
		idle = max(time.Until(hc.until), 1)
	}
	switch err := hc.in.lot.engine.ParkSocket(&parking.Request{Base: hc.base, Raw: hc.raw, Conn: hc.conn, F: hc.onReady, Idle: idle}); {
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

// ready is the function of parked connections. It reads what has arrived, and then hands the connection to net/http or
// parks it again.
func (hc *httpConn) ready(net.Conn) {
	hc.run(func() bool {
		hc.conn.SetReadDeadline(time.Now().Add(parking.ReadyWait))
		idle, handed := hc.read()
		return handed || idle && hc.park()
	})
}

// wait waits for a request in Read, for a connection that cannot be parked.
func (hc *httpConn) wait() (handed bool) {
	hc.conn.SetReadDeadline(hc.until)
	for idle := true; idle; {
		idle, handed = hc.read()
	}
	return handed
}

// read reads until a request has begun or the read deadline passes. If a request has begun, it hands the connection
// to net/http. It reports whether the connection is still idle, and whether it was handed over. If neither, the
// caller must finish it.
//
// One Read is not enough: package tls returns one record and may have read the next one already, for which the
// kernel reports nothing.
func (hc *httpConn) read() (idle, handed bool) {
	buf := peekBuffers.Get().(*peekBuffer)
	n := copy(buf[:], hc.head[:hc.n])
	var err error
	for n < minHead && err == nil {
		var m int
		m, err = hc.conn.Read(buf[n:])
		n += m
	}
	if n >= minHead {
		hc.n = 0
		return false, hc.resume(buf, n)
	}
	hc.n = uint8(copy(hc.head[:], buf[:n]))
	peekBuffers.Put(buf)
	return serving.IsTimeout(err) && (hc.until.IsZero() || time.Now().Before(hc.until)), false
}

// resume hands the connection to net/http as a new connection whose first n bytes are in buf. It reports whether the
// listener was open.
func (hc *httpConn) resume(buf *peekBuffer, n int) bool {
	from := 0
	for hc.post && from < minHead && (buf[from] == '\r' || buf[from] == '\n') {
		from++ // net/http would ignore it (see methodRecorder)
	}
	copy(buf[:], buf[from:n])
	hc.conn.SetReadDeadline(time.Time{})
	return hc.in.push(arrival{conn: hc.newSession(buf, n-from), hc: hc})
}

// evictIdle evicts every parked connection that has had a request, except for those of requests that wait.
func (l *listener) evictIdle() {
	l.lot.engine.EvictAll(func(conn net.Conn) bool {
		_, waits := conn.(suspendedConn)
		_, silent := conn.(silentConn)
		return waits || silent
	})
}
