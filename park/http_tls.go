package park

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
	"github.com/socknotify/socknotify/internal/serving/unwrap"
)

// tlsConfig does what http.Server's ServeTLS does before it listens.
func (s *HTTPServer) tlsConfig(certFile, keyFile string) (*tls.Config, error) {
	srv := s.Server
	if srv.TLSConfig == nil {
		srv.TLSConfig = &tls.Config{}
	}
	if _, own := srv.TLSNextProto["h2"]; (srv.Protocols == nil && srv.TLSNextProto == nil ||
		srv.Protocols != nil && srv.Protocols.HTTP2()) && !own &&
		!slices.Contains(srv.TLSConfig.NextProtos, "h2") {
		// Without it http.Server.Serve does not set up HTTP/2.
		srv.TLSConfig.NextProtos = append(slices.Clone(srv.TLSConfig.NextProtos), "h2")
	}
	return withCertificate(srv.TLSConfig.Clone(), certFile, keyFile)
}

// offer sets the ALPN protocols. They are known only after net/http has initialized srv.
func offer(config *tls.Config, srv *http.Server) {
	protos := slices.Clone(config.NextProtos)
	want := func(name string, wanted bool) {
		switch has := slices.Contains(protos, name); {
		case has && !wanted:
			protos = slices.DeleteFunc(protos, func(p string) bool { return p == name })
		case !has && wanted:
			protos = append(protos, name)
		}
	}
	want("h2", srv.TLSNextProto["h2"] != nil)
	want("http/1.1", srv.Protocols == nil || srv.Protocols.HTTP1())
	config.NextProtos = protos
}

// handshake performs the TLS handshake and then hands the connection to net/http. net/http cannot do it, because a
// session is not a *tls.Conn. handshake reports whether the connection was handed over.
func (hc *httpConn) handshake(conn unwrap.TLSConn) bool {
	in := hc.in
	srv := in.server.Server
	limit := handshakeTimeout(srv)
	switch {
	case hc.late:
		conn.SetDeadline(unwrap.Past)
	case limit > 0:
		conn.SetDeadline(time.Now().Add(limit))
	}
	ctx := context.WithValue(cmp.Or(hc.ctx, in.ctx), http.LocalAddrContextKey, conn.LocalAddr())
	if err := conn.HandshakeContext(ctx); err != nil {
		reason := err.Error()
		if e, ok := err.(tls.RecordHeaderError); ok && e.Conn != nil && looksLikeHTTP(e.RecordHeader) {
			io.WriteString(e.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
			e.Conn.Close()
			reason = "client sent an HTTP request to an HTTPS server"
		}
		logf(srv, "http: TLS handshake error from %s: %v", conn.RemoteAddr(), reason)
		return false
	}
	if limit > 0 {
		conn.SetDeadline(time.Time{})
	}
	switch conn.ConnectionState().NegotiatedProtocol {
	case "", "http/1.1", "http/1.0":
		return in.push(arrival{conn: hc.newSession(), hc: hc})
	case "h2":
		if in.server.HTTP2 != nil {
			return hc.serveHTTP2(nil)
		}
		if in.server.stock2.Add(1) == 1 { // nothing else would show it; it is no error for ErrorLog
			slog.Warn("park: net/http serves HTTP/2 and does not park its connections: set HTTPServer.HTTP2 to a server of package park/http2")
		}
	}
	stock, ok := conn.(*tls.Conn) // of another listener
	if !ok {
		stock = conn.(*tlsrecord.Conn).Stock()
	}
	hc.unpark()
	in.server.unwrapped.Store(stock, hc)
	handed := in.push(arrival{conn: stock, hc: hc})
	if !handed {
		in.server.unwrapped.Delete(stock)
	}
	return handed
}

// handshakeTimeout returns the shortest of the server's timeouts that are set, as net/http does.
func handshakeTimeout(srv *http.Server) (least time.Duration) {
	for _, d := range []time.Duration{srv.ReadHeaderTimeout, srv.ReadTimeout, srv.WriteTimeout} {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

func looksLikeHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		return true
	}
	return false
}

func logf(srv *http.Server, format string, args ...any) {
	if srv.ErrorLog != nil {
		srv.ErrorLog.Printf(format, args...)
	} else {
		log.Printf(format, args...)
	}
}
