package tunnel

import (
	"net/netip"
	"slices"
)

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

// IsInside reports whether an address is inside of a network and not one of the Internet: loopback,
// link-local, private, reserved, multicast, of documentation, of a cloud's own services, or with a
// zone. It counts an address of IPv4 also in the forms that IPv6 has for it. A [ConnectProxy] does
// not connect to such addresses, and a server whose users give it addresses should not: it decides
// in [net.Dialer.Control], about the address that a name stands for.
func IsInside(a netip.Addr) bool {
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
