package main

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
)

// year is how long a generated certificate is valid.
const year = 365 * 24 * time.Hour

// tlsConfig returns the certificate in two files. Without files it generates one for the names of this machine and
// the address, whose key exists in memory only.
func tlsConfig(certFile, keyFile string, addr netip.AddrPort) (*tls.Config, error) {
	var cert tls.Certificate
	var err error
	if certFile != "" {
		cert, err = tls.LoadX509KeyPair(certFile, keyFile)
	} else {
		cert, _, err = selfcert.New(year, "localhost", "127.0.0.1", "::1", addr.Addr().String())
	}
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}}, nil
}
