package park

import (
	"cmp"
	"net"
	"time"

	"github.com/socknotify/socknotify/internal/serving/nowait"
	"github.com/socknotify/socknotify/internal/serving/parking"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// A client that has connected and sent nothing yet needs no goroutine either: browsers connect ahead, and attackers just
// connect. The lot has its connection until the first byte. Shutdown, and the end of the listener, hand it to net/http
// without one, so what holds for new connections holds for these.
//
// Only a connection of package net, or TLS directly above one, is parked so. Another wrapper may hold the byte already.

// A silentConn is what the lot has of a connection that has sent nothing. It learns from its methods why the lot calls the
// function.
type silentConn struct {
	parking.NoConn
	hc *httpConn
}

func (c silentConn) Close() error {
	c.hc.cut()
	return nil
}

// SetReadDeadline is called by the lot at the timeout.
func (c silentConn) SetReadDeadline(time.Time) error {
	c.hc.late = true
	return nil
}

// parkSilent parks a new connection until its first byte. It reports false, and has done nothing, if that may be here
// already, or if the connection cannot be parked.
func (hc *httpConn) parkSilent() bool {
	base := hc.conn
	t, secure := unwrap.AsTLS(hc.conn)
	if secure {
		base = t.NetConn()
	}
	if hc.raw == nil || !unwrap.Plain(base) {
		return false
	}
	if s := nowait.Of(hc.raw); !s.OK() || s.Readable() {
		return false
	}
	srv, l := hc.in.server.Server, hc.in
	limit := cmp.Or(srv.ReadHeaderTimeout, srv.ReadTimeout) // as net/http; there is none if it is 0 or negative
	if secure {
		limit = handshakeTimeout(srv)
	}
	if !l.hold(hc) {
		return false
	}
	conn := silentConn{hc: hc}
	err := l.lot.engine.ParkSocket(&parking.Request{Base: hc.base, Raw: hc.raw, Conn: conn, F: endSilence, Idle: limit})
	if err == nil && l.isDraining() {
		l.lot.engine.WakeSocket(hc.base, hc.raw, conn) // endSilences may have missed it
	}
	return err == nil
}

// endSilence is the function of the lot for all silent connections. If the time is over, a connection without TLS is
// closed, and the handshake of another fails at once, as with net/http.
func endSilence(conn net.Conn) {
	hc := conn.(silentConn).hc
	hc.run(func() bool {
		_, secure := unwrap.AsTLS(hc.conn)
		if (secure || !hc.late) && hc.begin() {
			return true
		}
		hc.in.lot.engine.Relieve() // the program's ConnState may wait
		return false
	})
}

// endSilences hands all silent connections to net/http.
func (l *listener) endSilences() {
	l.lot.engine.WakeAll(func(conn net.Conn) bool {
		_, silent := conn.(silentConn)
		return silent
	})
}
