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
	"sync/atomic"
	"time"
)

// A session is the connection that net/http serves, from when it is accepted or leaves the lot until it is
// parked or closed. To be parked it pretends that the peer has closed: net/http then lets go of it without a
// word on the wire.
type session struct {
	link   *link
	parked atomic.Bool // from that on, net/http's Close closes nothing
	lingering

	// Of the goroutine that serves it.
	phase phase
	post  bool
	until time.Time
	// start is where net/http's reader has its buffer. It reads to there when it has consumed everything. A
	// session that was hijacked has none, or it would keep the buffer.
	start    *byte
	hijacked bool
	// peek holds what was read before net/http had the connection: n bytes, of which the first taken were
	// read. It is kept until the first request is known to have begun.
	peek     *peekBuffer
	n, taken int
	resumed  bool // and its first request has not begun
	more     bool // bytes were read besides
}

// A phase is where net/http is between two requests: it says StateIdle, sets the deadline of idleness, waits
// for the first bytes if it has none, and sets the next deadline.
type phase uint8

const (
	busy phase = iota
	idle
	waiting
)

type inSession interface{ self() *session }

func (s *session) self() *session { return s }

// newSession makes the connection that net/http is given. The first n bytes of buf are read from it first.
func (l *link) newSession(buf *peekBuffer, n int) net.Conn {
	var s *session
	var conn net.Conn
	switch l.conn.(type) {
	case interface{ ConnectionState() tls.ConnectionState }:
		t := new(tlsSession)
		s, conn = &t.session, t
	case io.ReaderFrom:
		t := new(tcpSession)
		s, conn = &t.session, t
	default:
		s = new(session)
		conn = s
	}
	s.link, s.peek, s.n, s.resumed = l, buf, n, buf != nil
	return conn
}

// A tlsSession tells net/http the Request.TLS.
type tlsSession struct{ session }

func (s *tlsSession) ConnectionState() tls.ConnectionState {
	return s.link.conn.(interface{ ConnectionState() tls.ConnectionState }).ConnectionState()
}

// A tcpSession lets net/http send files.
type tcpSession struct{ session }

func (s *tcpSession) ReadFrom(r io.Reader) (int64, error) {
	return s.link.conn.(io.ReaderFrom).ReadFrom(r)
}

// NetConn returns the connection inside.
func (s *session) NetConn() net.Conn { return s.link.conn }

func (s *session) Write(p []byte) (int, error)        { return s.link.conn.Write(p) }
func (s *session) LocalAddr() net.Addr                { return s.link.conn.LocalAddr() }
func (s *session) RemoteAddr() net.Addr               { return s.link.conn.RemoteAddr() }
func (s *session) SetDeadline(t time.Time) error      { return s.link.conn.SetDeadline(t) }
func (s *session) SetWriteDeadline(t time.Time) error { return s.link.conn.SetWriteDeadline(t) }

func (s *session) CloseWrite() error {
	if w, ok := s.link.conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return fmt.Errorf("park: CloseWrite: %w", errors.ErrUnsupported)
}

// SetReadDeadline leaves the deadline of idleness to the Read that waits, if one does.
func (s *session) SetReadDeadline(t time.Time) error {
	if s.phase == idle {
		s.phase, s.until = waiting, t
		return nil
	}
	if s.phase != busy { // a Read may be under way
		s.phase = busy
	}
	return s.link.conn.SetReadDeadline(t)
}

func (s *session) Close() error {
	if s.parked.Load() {
		return nil
	}
	return s.link.conn.Close()
}

// Read reads for net/http.
func (s *session) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return s.link.conn.Read(p)
	}
	if s.start == nil && !s.hijacked {
		s.start = &p[0]
	}
	if s.taken < s.n {
		n := copy(p, s.peek[s.taken:s.n])
		s.taken += n
		return n, nil
	}
	if s.phase == waiting {
		return s.await(p)
	}
	n, err := s.link.conn.Read(p)
	s.more = s.more || n > 0
	return n, err
}

// await reads the first bytes of a request. If none come for a while, and net/http has none, the connection
// is to be parked.
func (s *session) await(p []byte) (int, error) {
	k := s.link
	if k.wake == nil || &p[0] != s.start {
		k.conn.SetReadDeadline(s.until)
		return k.conn.Read(p)
	}
	if k.in.linger == nil {
		k.conn.SetReadDeadline(longAgo)
		n, err := k.conn.Read(p)
		s.parked.Store(n == 0 && isTimeout(err))
		if s.parked.Load() {
			err = io.EOF
		}
		return n, err
	}
	k.conn.SetReadDeadline(s.until)
	s.settle()
	n, err := k.conn.Read(p)
	if s.stir() {
		if n == 0 && isTimeout(err) {
			s.parked.Store(true)
			return 0, io.EOF
		}
		k.conn.SetReadDeadline(s.until)
	}
	return n, err
}

// changed is told the states that net/http gives the session, and tells the program those of the connection.
func (s *session) changed(state http.ConnState) {
	k := s.link
	switch state {
	case http.StateNew:
		return // which the connection was when it was accepted
	case http.StateActive:
		s.phase, s.post = busy, false
		begun := s.begun()
		s.resumed = false
		if s.taken == s.n {
			s.drop()
		}
		if !begun {
			return
		}
	case http.StateIdle:
		s.phase = idle
	case http.StateHijacked:
		s.leave()
		s.start, s.hijacked = nil, true
		if k.wake != nil {
			k.in.lot.Unpark(k.conn) // another lot, or port, may want it
		}
	case http.StateClosed:
		s.leave()
		s.drop()
		if s.parked.Load() {
			k.until, k.post = s.until, s.post
			if !k.park() { // net/http is done with the session
				k.finish()
			}
			return
		}
	}
	k.in.server.announce(k.conn, state)
}

// begun reports whether net/http would call a connection active that it had kept all the time. Of a request
// that it cannot parse it does so only if it had to read on, after the bytes with which it woke.
func (s *session) begun() bool {
	if !s.resumed || s.more || s.link.in.server.connState == nil {
		return true
	}
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(s.peek[:s.n])))
	return err == nil && (r.ProtoMajor == 1 || r.ProtoMajor == 2 && r.ProtoMinor == 0 &&
		r.Method == "PRI" && r.RequestURI == "*")
}

// drop lets go of the buffer.
func (s *session) drop() {
	if s.peek != nil {
		peeks.Put(s.peek)
		s.peek, s.n, s.taken = nil, 0, 0
	}
}
