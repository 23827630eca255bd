package park

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/socknotify/socknotify/internal/serving/tlsrecord"
)

// A TLSConn is a server's TLS connection. A *tls.Conn is one, and so is what a program receives from
// the servers of this package, which is no *tls.Conn unless their field CryptoTLS is set.
type TLSConn interface {
	net.Conn
	HandshakeContext(context.Context) error
	ConnectionState() tls.ConnectionState
	NetConn() net.Conn
	CloseWrite() error
}

// TLSServer is like tls.Server, for connections that are parked. crypto/tls makes the handshake, when
// the connection is first used. Then a smaller record layer takes it over, for AES-GCM with TLS 1.3,
// and with TLS 1.2 unless the session was resumed: an idle connection keeps some 450 bytes instead
// of 6,600. Others stay with crypto/tls. Errors, alerts and what is sent are the same, except that
// records are as large as the data from the beginning.
func TLSServer(conn net.Conn, config *tls.Config) TLSConn {
	return tlsrecord.Server(conn, config, nil)
}

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

// withCertificate returns config. If that has no certificate, or if the files are not empty, it gets
// the certificate of the files.
func withCertificate(config *tls.Config, certFile, keyFile string) (*tls.Config, error) {
	has := len(config.Certificates) > 0 || config.GetCertificate != nil || config.GetConfigForClient != nil
	if has && certFile == "" && keyFile == "" {
		return config, nil
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// server returns a server's side of a TLS connection, before its handshake.
func (s *tlsServer) server(conn net.Conn, config *tls.Config) net.Conn {
	if s.cryptoTLS {
		return tls.Server(conn, config)
	}
	return tlsrecord.Server(conn, config, &s.options)
}
