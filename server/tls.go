package server

import (
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/socknotify/socknotify/sock"
)

// ErrHandshake is why a connection ended whose TLS handshake was not over in time. It is
// os.ErrDeadlineExceeded to errors.Is.
var ErrHandshake error = &timeoutError{"server: TLS handshake took too long"}

var errNoCertificate = errors.New("server: no certificate: neither files nor TLSConfig have one")

const (
	defaultHandshake  = 10 * time.Second
	defaultHandshakes = 1024
)

// ListenAndServeTLS is ListenAndServe with TLS, as ServeTLS serves.
func (s *Server[S]) ListenAndServeTLS(network, address, certFile, keyFile string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	return s.ServeTLS(l, certFile, keyFile)
}

// ServeTLS is Serve with TLS (crypto/tls) on each connection. The certificate is that of the files (PEM), or
// of TLSConfig where they are "". The listener is one of TCP or Unix sockets, without TLS.
//
// The handler knows nothing of TLS: a connection is its own when the handshake is over, so Open can ask
// [Conn.TLS] what was agreed upon. What ends before that ends without Open and Close, and is logged and
// counted. Data comes for plaintext, and sometimes for none: where what came is a part of a record, Read is
// sock.ErrWouldBlock. The peer's close_notify is the end of its stream, and CloseWrite and Close send one.
//
// A connection that is idle, or has not sent its first record, costs no goroutine. A handshake has one, of
// which there are Server.MaxHandshakes at most. The functions of the configuration may block. One that panics, or calls
// runtime.Goexit, ends its connection, and is logged and counted in Stats.Panics.
func (s *Server[S]) ServeTLS(l net.Listener, certFile, keyFile string) error {
	config, err := s.tlsConfig(certFile, keyFile)
	if err != nil {
		if l != nil {
			l.Close()
		}
		return err
	}
	return s.serveListener(l, config)
}

// ServeTLSSocket is ServeTLS for a listening socket of package sock.
func (s *Server[S]) ServeTLSSocket(socket *sock.Socket, certFile, keyFile string) error {
	config, err := s.tlsConfig(certFile, keyFile)
	if err != nil {
		if socket != nil {
			socket.Close()
		}
		return err
	}
	return s.serve(socket, nil, config)
}

// tlsConfig is TLSConfig, or one with the certificate of files. TLSConfig is not copied without need, so that
// sessions of one listener can be resumed on another.
func (s *Server[S]) tlsConfig(certFile, keyFile string) (*tls.Config, error) {
	config := s.TLSConfig
	if certFile == "" && keyFile == "" {
		if config == nil || len(config.Certificates) == 0 && config.GetCertificate == nil && config.GetConfigForClient == nil {
			return nil, errNoCertificate
		}
		return config, nil
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	config = config.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	config.Certificates = []tls.Certificate{cert}
	return config, nil
}

// TLS is what the handshake agreed upon: version, cipher suite, application protocol (ALPN), the peer's
// certificates. It is nil on a connection without TLS.
func (c *Conn[S]) TLS() *tls.ConnectionState {
	t := c.tls()
	if t == nil {
		return nil
	}
	state := t.tls.ConnectionState()
	return &state
}

// tls is the connection's transport where that is TLS, or nil.
func (c *Conn[S]) tls() *tlsConn[S] {
	if !c.wrapped {
		return nil
	}
	t, _ := c.extra.transport.(*tlsConn[S])
	return t
}

func (s *Server[S]) handshakeTimeout() time.Duration {
	if s.HandshakeTimeout > 0 {
		return s.HandshakeTimeout
	}
	return defaultHandshake
}

func (s *Server[S]) maxHandshakes() int {
	if s.MaxHandshakes > 0 {
		return s.MaxHandshakes
	}
	return defaultHandshakes
}
