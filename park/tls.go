package park

import (
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/tlsrecord"
)

// A tlsServer makes the TLS connections of a server.
type tlsServer struct {
	cryptoTLS bool // crypto/tls keeps all of them
	options   tlsrecord.Options
	kept      atomic.Uint64 // by crypto/tls, although they may be taken from it
}

// set sets the options. keep, which may be nil, returns true for a connection that must be a
// *tls.Conn.
func (s *tlsServer) set(cryptoTLS bool, keep func(tls.ConnectionState) bool) {
	s.cryptoTLS = cryptoTLS
	s.options = tlsrecord.Options{Keep: keep, Kept: func(error) { s.kept.Add(1) }}
}

// server returns a server's side of a TLS connection, before its handshake.
func (s *tlsServer) server(conn net.Conn, config *tls.Config) net.Conn {
	if s.cryptoTLS {
		return tls.Server(conn, config)
	}
	return tlsrecord.Server(conn, config, &s.options)
}
