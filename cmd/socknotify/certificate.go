package main

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"time"

	"github.com/socknotify/socknotify/internal/selfcert"
)

// year is how long a certificate that is made up is valid.
const year = 365 * 24 * time.Hour

// tlsConfig has the certificate of two files, or without them one that is made up for this machine's own names
// and the address. Its key is nowhere but in memory.
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
