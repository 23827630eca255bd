package debug

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/socknotify/socknotify/internal/serving"
)

// A guard decides which requests are served.
type guard struct {
	remote bool
	hosts  []string
}

// refuses returns the reason to refuse a request, or "".
func (g *guard) refuses(r *http.Request) string {
	if !g.remote && !isLocal(r) {
		return "only requests from this machine are served (debug.AllowRemote)"
	}
	if !g.remote && isForwarded(r.Header) {
		return "only requests from this machine are served, not through a proxy (debug.AllowRemote)"
	}
	if !serving.KnownHost(r.Host, g.hosts) {
		return "unknown host name (debug.AllowHosts)"
	}
	// Browsers send the origin of a request. Other sites may link to the page, but not load it otherwise.
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return ""
	}
	if r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return ""
	}
	return "request from another site"
}

// isLocal reports whether a request comes from a loopback address or through a Unix socket. Middleware may replace
// RemoteAddr, often by an address without a port. An address that cannot be parsed is not local.
//
// A request through a Unix socket is local; the mode of the socket's file restricts access to it.
func isLocal(r *http.Request) bool {
	if to, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && to.Network() == "unix" {
		switch from := r.RemoteAddr; {
		case from == "", from[0] == '@', from[0] == '/': // package net's names of an unnamed peer, an abstract name, and a path
			return true
		}
	}
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		return from.Addr().Unmap().IsLoopback()
	}
	from, err := netip.ParseAddr(r.RemoteAddr)
	return err == nil && from.Unmap().IsLoopback()
}

// isForwarded reports whether a request has a header that proxies add.
func isForwarded(h http.Header) bool {
	for name := range h {
		switch {
		case name == "Forwarded", name == "Via", name == "X-Real-Ip", strings.HasPrefix(name, "X-Forwarded-"):
			return true
		}
	}
	return false
}
