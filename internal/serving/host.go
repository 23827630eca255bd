package serving

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// KnownHost reports whether the host of a request, which may have a port, is one of names, or a name
// of this machine that no other site can have: an address, or localhost. A page of another site can
// reach a server on this machine by a name of its own that stands for the address; its requests have
// that name.
func KnownHost(host string, names []string) bool {
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
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
}
