package winsock

import "net/netip"

// A Name is what sets a socket apart from others that are open at the same time, as far as it has any:
// where it is bound, and what it is connected to. It tells two sockets apart that had the same handle one
// after the other, where a duplicate of the first keeps that one open.
type Name struct {
	port uint16 // 0: not bound, or of no such family
	peer netip.AddrPort
}

// Stays reports whether the socket that had this name can be the one that has another now, and takes that
// one over. A socket may be bound and connected in between; it stays bound, and a stream keeps its peer,
// although the system may forget it with the connection.
func (n *Name) Stays(now Name, stream bool) bool {
	switch {
	case n.port == 0:
		*n = now
		return true
	case n.port != now.port, stream && n.peer.IsValid() && now.peer.IsValid() && n.peer != now.peer:
		return false
	case !stream || !n.peer.IsValid():
		n.peer = now.peer
	}
	return true
}
