// Package proxyproto reads headers of the PROXY protocol, versions 1 and 2, for package server:
//
//	s := &server.Server[state]{
//		Handler:  handler,
//		Preamble: proxyproto.Config{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}.Preamble,
//	}
//
// The header comes before the protocol, and before TLS. The handler, the logs, and the limits per
// address then see the address of the proxy's peer. The package is a module of its own, so that
// only programs that use it depend on [proxy], which parses the headers.
package proxyproto

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"

	proxy "github.com/pires/go-proxyproto"

	"github.com/socknotify/socknotify/server"
	"github.com/socknotify/socknotify/sock"
)

var (
	// ErrNoHeader is the error of a connection that does not begin with a header.
	ErrNoHeader = errors.New("proxyproto: connection does not begin with a PROXY header")
	// ErrUntrusted is the error of a connection from an address that is not in Config.Trusted.
	ErrUntrusted = errors.New("proxyproto: connection from an address that is not trusted")
)

// A Config says which connections begin with a header. The zero Config requires one of each
// connection. Then only proxies must be able to connect, because any peer can name any address.
type Config struct {
	// Trusted has the networks of the proxies. A connection from them must begin with a header.
	// Connections on Unix sockets are trusted. Without networks, all connections are.
	Trusted []netip.Prefix
	// Direct serves connections from other addresses as they are, without a header. By default they
	// are refused.
	Direct bool
}

// Preamble is a value for the field Preamble of [server.Server]. The addresses of the result are
// those in the header. They are nil, so that the socket's own are used, if the header has none: in
// version 1 for UNKNOWN, in version 2 for LOCAL, which proxies send with their own requests. The
// Value is a *[proxy.Header], which has the TLVs of version 2.
func (c Config) Preamble(remote, local net.Addr, b []byte) (server.Preamble, error) {
	if !c.trusts(remote) {
		if c.Direct {
			return server.Preamble{}, nil
		}
		return server.Preamble{}, ErrUntrusted
	}
	n, err := length(b)
	if err != nil {
		return server.Preamble{}, err
	}
	h, err := proxy.Read(bufio.NewReader(bytes.NewReader(b[:n])))
	if err != nil {
		return server.Preamble{}, err
	}
	p := server.Preamble{N: n, Value: h}
	if h.Command.IsProxy() && !h.TransportProtocol.IsUnspec() {
		p.Remote, p.Local = h.SourceAddr, h.DestinationAddr
	}
	return p, nil
}

func (c Config) trusts(remote net.Addr) bool {
	if len(c.Trusted) == 0 {
		return true
	}
	switch a := remote.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		addr := a.AddrPort().Addr().Unmap().WithZone("")
		return slices.ContainsFunc(c.Trusted, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	return false // or the peer is gone, and its address unknown
}

const (
	longestV1 = 107
	headV2    = 16 // signature, version and command, family, length
)

// length returns the length of the header at the begin of b, sock.ErrWouldBlock if it is not
// complete, or another error if there is none.
func length(b []byte) (int, error) {
	switch {
	case begins(b, string(proxy.SIGV2)):
		switch {
		case len(b) > 12 && b[12]>>4 != 2:
			return 0, proxy.ErrUnsupportedProtocolVersionAndCommand
		case len(b) < headV2:
			return 0, sock.ErrWouldBlock
		}
		n := headV2 + int(b[14])<<8 + int(b[15])
		if len(b) < n {
			return 0, sock.ErrWouldBlock
		}
		return n, nil
	case begins(b, "PROXY "):
		if i := bytes.IndexByte(b[:min(len(b), longestV1)], '\n'); i >= 0 {
			return i + 1, nil
		}
		if len(b) >= longestV1 {
			return 0, proxy.ErrVersion1HeaderTooLong
		}
		return 0, sock.ErrWouldBlock
	}
	return 0, ErrNoHeader
}

// begins reports whether b begins with a text, as far as it has arrived.
func begins(b []byte, text string) bool {
	n := min(len(b), len(text))
	return string(b[:n]) == text[:n]
}
