package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/socknotify/socknotify"
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
		if config, err = tlsConfig(f.cert, f.key, addr); err != nil {
			err = failure{err}
		}
	}
	if err == nil {
		page, err = listenDebug(f.debugAddr, log)
	}
	return addr, config, page, err
}
