package server

import (
	"crypto/tls"
	"net"

	"github.com/socknotify/socknotify/sock"
)

func (s *server) serveTLS(c config, l net.Listener, certFile, keyFile string) error {
	config, err := c.tls(certFile, keyFile)
	if err != nil {
		if l != nil {
			l.Close()
		}
		return err
	}
	return s.serveListener(c, l, config)
}

func (s *server) serveTLSSocket(c config, socket *sock.Socket, certFile, keyFile string) error {
	config, err := c.tls(certFile, keyFile)
	if err != nil {
		if socket != nil {
			socket.Close()
		}
		return err
	}
	return s.serve(c, socket, nil, config)
}

// tls returns TLSConfig, or a copy with the certificate of the files. TLSConfig itself is used if
// it can be, so that sessions of one listener can be resumed on another.
func (c config) tls(certFile, keyFile string) (*tls.Config, error) {
	config := c.opts.TLSConfig
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
