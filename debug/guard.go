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

// refuses tells why a request gets no answer, or "".
func (g *guard) refuses(r *http.Request) string {
	// A listener on a Unix socket has no such address; the file's mode says who may connect.
	if from, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && !g.remote && !from.Addr().Unmap().IsLoopback() {
		return "only this machine may look (debug.AllowRemote)"
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

// knows tells whether a request's host is one that the page goes by. A name of somebody else's may resolve
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
