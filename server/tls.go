package server

import (
	"crypto/tls"
	"net"

	"github.com/socknotify/socknotify/sock"
)

func (s *server) serveTLS(c *config, l net.Listener, certFile, keyFile string) error {
	config, err := c.tls(certFile, keyFile)
	if err != nil {
		if l != nil {
			l.Close()
		}
		return err
	}
	return s.serveListener(c, l, config)
}

func (s *server) serveTLSSocket(c *config, socket *sock.Socket, certFile, keyFile string) error {
	config, err := c.tls(certFile, keyFile)
	if err != nil {
		if socket != nil {
			socket.Close()
		}
		return err
	}
	return s.serve(c, socket, nil, config)
}

// tls returns TLSConfig, or a copy with the certificate of the files. TLSConfig itself is used if it can be, so that
// sessions of one listener can be resumed on another.
func (c *config) tls(certFile, keyFile string) (*tls.Config, error) {
	config := c.TLSConfig
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

// TLS returns what the handshake negotiated: version, cipher suite, application protocol (ALPN), the peer's
// certificates. It is nil on a connection without TLS.
func (c *conn) TLS() *tls.ConnectionState {
	t := c.tls()
	if t == nil {
		return nil
	}
	state := t.tls.ConnectionState()
	return &state
}

// tls returns the connection's transport if that is TLS, or nil.
func (c *conn) tls() *tlsConn {
	if !c.wrapped {
		return nil
	}
	t, _ := c.extra.transport.(*tlsConn)
	return t
}
