package debug

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A guard decides who may look.
type guard struct {
	remote bool
	hosts  []string
}

// refuses returns why a request gets no answer, or "".
func (g *guard) refuses(r *http.Request) string {
	if !g.remote && !isLocal(r) {
		return "only this machine may look (debug.AllowRemote)"
	}
	if !g.remote && isForwarded(r.Header) {
		return "only this machine may look, not by way of a proxy (debug.AllowRemote)"
	}
	if !g.knows(r.Host) {
		return "unknown host name (debug.AllowHosts)"
	}
	// Browsers say where a request comes from. Another site may link to the page, and no more.
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return ""
	}
	if r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return ""
	}
	return "asked for by another site"
}

// isLocal reports whether a request comes from a loopback address. Middlewares replace the address by one of their own,
// often without a port, so an address that cannot be parsed is no local one.
//
// A Unix socket has no such address; the mode of its file says who may connect.
func isLocal(r *http.Request) bool {
	if to, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && to.Network() == "unix" {
		switch from := r.RemoteAddr; {
		case from == "", from[0] == '@', from[0] == '/': // as package net names a peer of no name, of an abstract one, or a path
			return true
		}
	}
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return from.Addr().Unmap().IsLoopback()
	}
	from, err := netip.ParseAddr(r.RemoteAddr)
	return err == nil && from.Unmap().IsLoopback()
}

// isForwarded reports whether a proxy says that it has passed a request on, so that its address is the proxy's.
func isForwarded(h http.Header) bool {
	for name := range h {
		switch {
		case name == "Forwarded", name == "Via", name == "X-Real-Ip", strings.HasPrefix(name, "X-Forwarded-"):
			return true
		}
	}
	return false
}

// knows reports whether a request's host is one that the page goes by. A name that belongs to others may resolve
// to this machine, an address cannot.
func (g *guard) knows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return slices.ContainsFunc(g.hosts, func(name string) bool { return strings.EqualFold(name, host) })
}
