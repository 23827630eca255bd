package park

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"time"
)

// preface begins a connection of HTTP/2 without TLS (RFC 9113, 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// findPreface reads the beginning of a new connection. If that is the preface of HTTP/2, it hands the connection to HTTP2,
// and otherwise to net/http, with what was read. An error is not handled here: net/http gets it again when it reads.
func (hc *httpConn) findPreface() (handed bool) {
	srv := hc.in.server.Server
	limit := cmp.Or(srv.ReadHeaderTimeout, srv.ReadTimeout)
	if limit > 0 {
		hc.conn.SetReadDeadline(time.Now().Add(limit))
	}
	buf := make([]byte, 4096)
	n := 0
	for found := false; !found; {
		m, err := hc.conn.Read(buf[n:])
		n += m
		found = n >= len(preface)
		if l := min(n, len(preface)); err != nil || string(buf[:l]) != preface[:l] {
			if !srv.Protocols.HTTP1() { // Go 1.27 would serve it, because install has left no protocol
				return false
			}
			hc.conn.SetReadDeadline(time.Time{})
			conn := hc.newSession()
			conn.(inSession).self().next = string(buf[:n])
			return hc.in.push(arrival{conn: conn, hc: hc})
		}
	}
	if limit > 0 {
		hc.conn.SetReadDeadline(time.Time{})
	}
	return hc.serveHTTP2(bytes.Clone(buf[:n]))
}

// serveHTTP2 hands a new connection to HTTP2. received was read from it.
func (hc *httpConn) serveHTTP2(received []byte) (handed bool) {
	in := hc.in
	s := in.server
	in.release(hc)      // Close would close it without GOAWAY
	defer in.forget(hc) // HTTP2 waits for the first request
	hc.unpark()
	s.unwrapped.Store(hc.conn, hc)
	defer s.unwrapped.Delete(hc.conn)
	err := s.HTTP2.ServeReceived(in.ctx, hc.conn, received)
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		logf(s.Server, "http2: %v: %v", hc.conn.RemoteAddr(), err)
	}
	return err == nil
}
