package park

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/nethttp"
	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A session is the net.Conn that net/http serves. It lasts from accept, or from when the connection leaves the lot,
// until the connection is parked or closed. To park the connection, Read returns io.EOF: net/http then closes the
// session without sending anything, and Close leaves the connection open.
type session struct {
	hc     *httpConn
	parked atomic.Bool // Close must not close the connection
	lingering

	// The other fields are used only by the goroutine that serves the session.
	phase  phase
	post   bool
	called bool // a handler was called for the latest request
	until  time.Time
	// start is the address of the buffer of net/http's reader. A Read into that address means that net/http has
	// consumed all earlier bytes. It is nil after a hijack, so that the session does not keep the buffer alive.
	start    *byte
	hijacked bool
	stage    stage
	// first is what the first Read of a resumed session has returned, in the buffer of net/http's reader, until there is
	// another Read.
	first []byte

	served    served     // the request whose handler runs
	suspended *Suspended // that request, if its handler has called Suspend
	answers   *Suspended // the session began for this request, and its then was not called
	next      string     // what Read returns before it reads from the connection
	lingers   bool       // the connection is busy: it lingers before it is parked
}

// The phase follows net/http between two requests. net/http reports StateIdle, sets the deadline of the idle timeout,
// reads if it has no bytes of the next request, and sets the next deadline.
type phase uint8

const (
	busy    phase = iota
	idle          // StateIdle was reported
	waiting       // the idle deadline was set
)

// The stage of a session that began because the lot has reported bytes, until its first request has begun.
type stage uint8

const (
	ordinary stage = iota // of other sessions, and later
	reported              // nothing was read
	resumed               // Read has returned the first bytes
)

type inSession interface{ self() *session }

func (s *session) self() *session { return s }

// newSession returns a session for net/http.
func (hc *httpConn) newSession() net.Conn {
	var s *session
	var conn net.Conn
	switch hc.conn.(type) {
	case connectionStater:
		t := new(tlsSession)
		s, conn = &t.session, t
	case io.ReaderFrom:
		t := new(tcpSession)
		s, conn = &t.session, t
	default:
		s = new(session)
		conn = s
	}
	s.hc = hc
	return conn
}

// A connectionStater is a connection with TLS, as net/http recognizes them.
type connectionStater interface{ ConnectionState() tls.ConnectionState }

// A tlsSession has a ConnectionState method, from which net/http sets Request.TLS.
type tlsSession struct{ session }

func (s *tlsSession) ConnectionState() tls.ConnectionState {
	return s.hc.conn.(connectionStater).ConnectionState()
}

// A tcpSession has a ReadFrom method, with which net/http sends files.
type tcpSession struct{ session }

func (s *tcpSession) ReadFrom(r io.Reader) (int64, error) {
	return s.hc.conn.(io.ReaderFrom).ReadFrom(r)
}

// NetConn returns the connection below the session.
func (s *session) NetConn() net.Conn { return s.hc.conn }

func (s *session) LocalAddr() net.Addr                { return s.hc.conn.LocalAddr() }
func (s *session) RemoteAddr() net.Addr               { return s.hc.conn.RemoteAddr() }
func (s *session) SetDeadline(t time.Time) error      { return s.hc.conn.SetDeadline(t) }
func (s *session) SetWriteDeadline(t time.Time) error { return s.hc.conn.SetWriteDeadline(t) }

// Write is called by net/http. An answer without a call of a handler refuses a request.
func (s *session) Write(p []byte) (int, error) {
	if !s.called {
		s.called = true
		s.hc.in.server.rejected.Add(1)
	}
	return s.hc.conn.Write(p)
}

func (s *session) CloseWrite() error { return parking.CloseWrite(s.hc.conn) }

// SetReadDeadline records the deadline of the idle timeout for await, and one before the first Read for wake. It sets any
// other deadline.
func (s *session) SetReadDeadline(t time.Time) error {
	switch {
	case s.phase == idle:
		s.phase, s.until = waiting, t
		return nil
	case s.stage == reported:
		s.until = t
		return nil
	case s.phase != busy: // no write otherwise: another goroutine's Read may be reading phase
		s.phase = busy
	}
	return s.hc.conn.SetReadDeadline(t)
}

func (s *session) Close() error {
	if s.parked.Load() {
		return nil
	}
	return s.hc.conn.Close()
}

// Read is called by net/http.
func (s *session) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return s.hc.conn.Read(p)
	}
	if s.start == nil && !s.hijacked {
		s.start = &p[0]
	}
	if s.next != "" {
		n := copy(p, s.next)
		s.next = s.next[n:]
		return n, nil
	}
	if s.stage == reported {
		return s.wake(p)
	}
	if s.phase == waiting {
		return s.await(p)
	}
	n, err := s.hc.conn.Read(p)
	if n > 0 && s.first != nil {
		s.first = nil
	}
	return n, err
}

// wake reads the first bytes of a request that the lot has reported. If there are less than minHead, it keeps them, sets
// s.parked and returns io.EOF, so that the connection is parked again.
//
// The socket has bytes, so one Read of it does not wait. Another wrapper than our TLS may have to wait for the rest of a
// record, and may hold more than one Read returns.
func (s *session) wake(p []byte) (int, error) {
	hc := s.hc
	s.stage = resumed
	n := copy(p, hc.head[:hc.n])
	hc.conn.SetReadDeadline(s.until)
	var err error
	if hc.isPlain() {
		var m int
		m, err = hc.conn.Read(p[n:])
		n += m
	} else if t := hc.records(); t != nil {
		socket := nowait.Of(hc.raw)
		for m := 1; n < minHead && m > 0 && err == nil; n += m {
			m, err = t.TryRead(p[n:], socket)
		}
	} else {
		n, err = s.wakeWrapped(p, n)
	}
	if n < minHead {
		if err != nil {
			return 0, err
		}
		hc.n = uint8(copy(hc.head[:], p[:n]))
		s.until = hc.deadline()
		s.parked.Store(true)
		return 0, io.EOF
	}
	hc.n = 0
	n = copy(p, hc.withoutBreaks(p[:n]))
	if n == 0 {
		return hc.conn.Read(p)
	}
	if hc.in.server.connState != nil {
		s.first = p[:n]
	}
	return n, nil
}

// wakeWrapped reads for wake until there are minHead bytes in p, which has n already, or parking.ReadyWait has passed.
func (s *session) wakeWrapped(p []byte, n int) (int, error) {
	conn := s.hc.conn
	conn.SetReadDeadline(time.Now().Add(parking.ReadyWait))
	defer conn.SetReadDeadline(s.until)
	for n < minHead {
		m, err := conn.Read(p[n:])
		n += m
		if serving.IsTimeout(err) {
			break
		} else if err != nil {
			return n, err
		}
	}
	return n, nil
}

// isPlain reports whether there is nothing above the socket.
func (hc *httpConn) isPlain() bool { return any(hc.conn) == any(hc.base) }

// records returns the connection if its TLS can be read without waiting: it is ours, and directly above the socket.
// Otherwise it returns nil.
func (hc *httpConn) records() *tlsrecord.Conn {
	t, ok := hc.conn.(*tlsrecord.Conn)
	if !ok || !t.Taken() || any(t.NetConn()) != any(hc.base) || !nowait.Of(hc.raw).OK() {
		return nil
	}
	return t
}

// await reads the first bytes of a request. If none arrive while the session lingers, and net/http has consumed all
// earlier bytes, await sets s.parked and returns io.EOF.
func (s *session) await(p []byte) (int, error) {
	hc := s.hc
	if hc.lasting || &p[0] != s.start {
		hc.conn.SetReadDeadline(s.until)
		return hc.conn.Read(p)
	}
	if !s.lingers {
		if t := hc.records(); hc.isPlain() || t != nil && !t.Arrived() {
			return s.park(0) // the lot reports what the socket has
		}
		n, err := unwrap.ReadAhead(hc.conn, p)
		switch {
		case n == 0 && err == nil:
			return s.park(0)
		case n == 0 && unwrap.IsUnfit(err):
			return s.readUnfit(p, err)
		}
		s.lingers = hc.in.linger != nil
		return n, err
	}
	hc.conn.SetReadDeadline(s.until)
	s.startWaiting()
	n, err := hc.conn.Read(p)
	if s.stopWaiting() {
		switch {
		case n > 0 || err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return s.park(hc.in.lingerTime())
		default:
			// If err is not the end of the connection, the same Read under the deadline that has passed says so.
			if n, err = unwrap.ReadPast(hc.conn, p); n == 0 && unwrap.IsUnfit(err) {
				return s.readUnfit(p, err)
			}
		}
		hc.conn.SetReadDeadline(s.until)
	}
	return n, err
}

// park has net/http close the session, and the connection parked. It has been idle for so long.
func (s *session) park(idle time.Duration) (int, error) {
	s.hc.idleFrom = s.hc.in.millis() - millis(idle/time.Millisecond)
	s.parked.Store(true)
	return 0, io.EOF
}

// readUnfit waits in Read, for a connection that turns out to be one that cannot be parked.
func (s *session) readUnfit(p []byte, why error) (int, error) {
	hc := s.hc
	hc.lasting = true
	hc.in.lot.engine.Refuse(hc.conn, fmt.Errorf("park: %w: %w", parking.ErrUnparkable, why))
	hc.conn.SetReadDeadline(s.until)
	return hc.conn.Read(p)
}

// stateChanged receives the states of the session from net/http, and reports the states of the connection to the
// program.
func (s *session) stateChanged(state http.ConnState) {
	hc := s.hc
	switch state {
	case http.StateNew:
		return // reported when the connection was accepted
	case http.StateActive:
		s.phase, s.post, s.called = busy, false, false
		begun := s.begun()
		s.stage, s.first = ordinary, nil
		if !begun || s.answers != nil { // it is active since its request came
			return
		}
	case http.StateIdle:
		hc.begun() // without a call of the handler
		s.phase = idle
	case http.StateHijacked:
		hc.begun()
		s.stopLingering()
		s.start, s.hijacked = nil, true
		if s.suspended != nil {
			return // it is active until the answer
		}
		hc.unpark() // the program may use another lot or port
	case http.StateClosed:
		hc.begun()
		s.stopLingering()
		if s.parked.Load() {
			hc.setDeadline(s.until)
			hc.post = s.post
			if !hc.park() {
				hc.finish()
			}
			return
		}
		if q := s.answers; q != nil { // net/http is shut down, and has served no request
			s.answers = nil
			defer hc.abandon(q)
		}
	}
	if state == http.StateClosed { // net/http calls the hook where it recovers from no panic
		hc.try(func() { hc.in.server.announce(hc.conn, state) })
		return
	}
	hc.in.server.announce(hc.conn, state)
}

// begun reports whether net/http would report StateActive for the connection if it had never been parked. For a request
// that it cannot parse, net/http does so only if it had to read again after the first bytes.
func (s *session) begun() bool {
	if s.first == nil {
		return true
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(s.first)))
	return err == nil && (r.ProtoMajor == 1 || r.ProtoMajor == 2 && r.ProtoMinor == 0 &&
		r.Method == "PRI" && r.RequestURI == "*")
}

// Detach returns the connection below a session that was hijacked, and the bytes that the session has read and not
// returned. The session must not be used after it.
func (s *session) Detach() (conn net.Conn, unread []byte) {
	return s.hc.conn, []byte(s.next)
}

var _ nethttp.Session = (*session)(nil)
