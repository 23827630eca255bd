package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/selfcert"
)

// listenFlags are the flags that all commands that serve have.
type listenFlags struct {
	addr, backend, debugAddr string
	tls                      bool
	cert, key                string
	idle                     time.Duration
}

func (f *listenFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.addr, "addr", "127.0.0.1:9000", "address to listen on; port 0 is any")
	flags.BoolVar(&f.tls, "tls", false, "serve TLS, with a certificate made for this run unless --cert and --key are given")
	flags.StringVar(&f.cert, "cert", "", "file with the certificate, for TLS")
	flags.StringVar(&f.key, "key", "", "file with its key")
	flags.DurationVar(&f.idle, "idle", 0, "close what is idle for this time; 0 is never")
	flags.StringVar(&f.backend, "backend", "", "backend to run on (default $"+socknotify.BackendEnv+", or the system's first)")
	flags.StringVar(&f.debugAddr, "debug-addr", "", "loopback address of the live page; no page without it")
}

// start checks the flags, sets f.backend to the one that is used, and listens for the live page,
// which the caller closes. config is nil without TLS.
func (f *listenFlags) start(log io.Writer) (addr netip.AddrPort, config *tls.Config, page *debugPage, err error) {
	switch {
	case (f.cert == "") != (f.key == ""):
		err = errors.New("--cert and --key go together")
	case f.idle < 0:
		err = fmt.Errorf("--idle %v: must not be negative", f.idle)
	}
	if err == nil {
		addr, err = resolveAddr(f.addr)
	}
	if err == nil {
		f.backend, err = resolve(f.backend)
	}
	if err == nil && (f.tls || f.cert != "") {
		config, err = tlsConfig(f.cert, f.key, addr)
	}
	if err == nil {
		page, err = listenDebug(f.debugAddr, log)
	}
	return addr, config, page, err
}

// resolveAddr turns host:port into one address. No host is every address of the machine.
func resolveAddr(s string) (netip.AddrPort, error) {
	a, err := net.ResolveTCPAddr("tcp", s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--addr %s: %w", s, err)
	}
	if a.IP == nil {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(a.Port)), nil
	}
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port()), nil
}

// resolve returns the backend that ports will run on, given the value of --backend.
func resolve(flag string) (string, error) {
	name, from := flag, "--backend"
	if name == "" {
		name, from = os.Getenv(socknotify.BackendEnv), socknotify.BackendEnv
	}
	backends := socknotify.Backends()
	switch {
	case len(backends) == 0:
		return "", failure{fmt.Errorf("no backend for this system yet: %w", errors.ErrUnsupported)}
	case name == "":
		return backends[0], nil
	case !slices.Contains(backends, name):
		p, err := socknotify.New[int](socknotify.WithBackend(name)) // New returns the reason
		if err != nil {
			return "", fmt.Errorf("%s: %w", from, err)
		}
		p.Close()
	}
	return name, nil
}

// year is how long a generated certificate is valid.
const year = 365 * 24 * time.Hour

// tlsConfig returns the certificate in two files. Without files it generates one for the names of
// this machine and the address, whose key exists in memory only.
func tlsConfig(certFile, keyFile string, addr netip.AddrPort) (*tls.Config, error) {
	var cert tls.Certificate
	var err error
	if certFile != "" {
		cert, err = tls.LoadX509KeyPair(certFile, keyFile)
	} else {
		cert, _, err = selfcert.New(year, "localhost", "127.0.0.1", "::1", addr.Addr().String())
	}
	if err != nil {
		return nil, failure{fmt.Errorf("certificate: %w", err)}
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}}, nil
}
