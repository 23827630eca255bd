package park

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/socknotify/socknotify/internal/serving"
)

// A ConnectProxy answers the CONNECT method, with which a client asks a forward proxy for a
// connection to a host and a port, and joins both in a tunnel: over HTTP/1.1 the client's
// connection, and over HTTP/2, if package park/http2 serves it, the stream of the request. It is a
// handler, and nothing is allowed unless its fields allow it.
type ConnectProxy struct {
	// Tunnels has the tunnels. It must not be nil.
	Tunnels *Tunnels
	// Allow reports whether the client of a request may have a connection to an address. It is
	// called with what the host of the request was resolved to, before each attempt to connect,
	// possibly concurrently for one request. If it is nil, every request is refused.
	Allow func(r *http.Request, addr netip.AddrPort) bool
	// Ports are the ports that may be connected to. nil means 443 alone.
	Ports []int
	// Inside has the hosts, as they stand in requests, that may have addresses inside of a network:
	// loopback, link-local, private and other addresses that are not for the Internet, and those
	// of the metadata services of clouds. Allow is called for them too. Other hosts with such an
	// address are refused.
	Inside []string
	// Dialer connects. Its Timeout is 10 seconds if it is 0. Its ControlContext or Control is
	// called after Allow.
	Dialer net.Dialer
	// Other, if not nil, serves requests with other methods, which are refused otherwise.
	Other http.Handler
}

// errForbidden is the error of an address that is not allowed.
var errForbidden = errors.New("park: connect: the address is not allowed")

func (p *ConnectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodConnect && p.Other != nil:
		p.Other.ServeHTTP(w, r)
	case r.Method != http.MethodConnect:
		w.Header().Set("Allow", http.MethodConnect)
		refuse(w, http.StatusMethodNotAllowed)
	case r.ProtoMajor != 1 && !canJoin(w, r):
		refuse(w, http.StatusNotImplemented)
	case r.ProtoMajor == 1 && r.ContentLength != 0, r.ProtoMajor != 1 && r.Header["Content-Length"] != nil:
		refuse(w, http.StatusBadRequest) // there is no such body
	default:
		backend, code := p.dial(r)
		if backend == nil {
			refuse(w, code)
			return
		}
		answer := p.answer
		if r.ProtoMajor != 1 {
			answer = p.answerStream
		}
		if err := answer(w, backend); err != nil {
			backend.Close()
		}
	}
}

// canJoin reports whether a request that is not of HTTP/1 is one for a connection, and can be
// joined with it.
func canJoin(w http.ResponseWriter, r *http.Request) bool {
	_, err := muxedWriter(w)
	return err == nil && r.Header[":protocol"] == nil
}

func refuse(w http.ResponseWriter, code int) { http.Error(w, http.StatusText(code), code) }

// answer makes the tunnel. It fails with the error of the client's connection, which it closes
// then, or before it has taken that over.
func (p *ConnectProxy) answer(w http.ResponseWriter, backend net.Conn) error {
	client, early, err := takeOver(w)
	if err != nil {
		refuse(w, http.StatusInternalServerError)
		return err
	}
	if _, err = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err == nil {
		_, err = p.Tunnels.JoinWith(client, backend, TunnelOptions{FromA: early})
	}
	if err != nil {
		client.Close()
	}
	return err
}

// answerStream is answer for a stream of HTTP/2. If it fails, it has refused the request.
func (p *ConnectProxy) answerStream(w http.ResponseWriter, backend net.Conn) error {
	_, err := p.Tunnels.JoinResponse(w, backend, TunnelOptions{})
	switch {
	case errors.Is(err, ErrMaxConns), errors.Is(err, ErrServerClosed):
		refuse(w, http.StatusServiceUnavailable)
	case err != nil:
		refuse(w, http.StatusInternalServerError)
	}
	return err
}

// dial connects to the host of a request. If it fails, it returns a status code.
func (p *ConnectProxy) dial(r *http.Request) (net.Conn, int) {
	host, text, err := net.SplitHostPort(r.URL.Host)
	port, badPort := strconv.ParseUint(text, 10, 16)
	ports := p.Ports
	if ports == nil {
		ports = []int{443}
	}
	switch {
	case err != nil || host == "" || badPort != nil || port == 0:
		return nil, http.StatusBadRequest
	case p.Allow == nil || !slices.Contains(ports, int(port)):
		return nil, http.StatusForbidden
	}
	inside := slices.ContainsFunc(p.Inside, func(name string) bool {
		return strings.EqualFold(strings.TrimSuffix(name, "."), strings.TrimSuffix(host, "."))
	})
	d := p.Dialer
	d.Timeout = cmp.Or(d.Timeout, serving.DefaultTimeout)
	d.ControlContext = func(ctx context.Context, network, address string, raw syscall.RawConn) error {
		addr, err := netip.ParseAddrPort(address)
		if err != nil || !inside && isInside(addr.Addr()) || !p.Allow(r, addr) {
			return errForbidden
		}
		switch {
		case p.Dialer.ControlContext != nil:
			return p.Dialer.ControlContext(ctx, network, address, raw)
		case p.Dialer.Control != nil:
			return p.Dialer.Control(network, address, raw)
		}
		return nil
	}
	conn, err := d.DialContext(r.Context(), "tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	switch {
	case err == nil:
		return conn, 0
	case errors.Is(err, errForbidden):
		return nil, http.StatusForbidden
	case isTimeout(err):
		return nil, http.StatusGatewayTimeout
	}
	return nil, http.StatusBadGateway
}

// insideNets are networks that are not for the Internet, besides those that package netip knows.
var insideNets = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"168.63.129.16/32", // Azure's services for virtual machines
	"::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20",
	"5f00::/16", "fec0::/10",
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

var (
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
	sixToIV = netip.MustParsePrefix("2002::/16")
)

// isInside reports whether an address is inside of a network, also in the forms of IPv6 that have
// an address of IPv4.
func isInside(a netip.Addr) bool {
	if a.Zone() != "" {
		return true
	}
	a = a.Unmap()
	switch b := a.As16(); {
	case nat64.Contains(a):
		a = netip.AddrFrom4([4]byte(b[12:]))
	case sixToIV.Contains(a):
		a = netip.AddrFrom4([4]byte(b[2:6]))
	}
	return !a.IsGlobalUnicast() || a.IsPrivate() ||
		slices.ContainsFunc(insideNets, func(n netip.Prefix) bool { return n.Contains(a) })
}
