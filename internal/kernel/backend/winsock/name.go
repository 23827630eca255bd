package winsock

import "net/netip"

// A Name is the local port and the peer address of a socket, if it has any. It distinguishes sockets that are
// open at the same time: two that had the same handle one after the other, if a duplicate of the first keeps
// that one open.
type Name struct {
	port uint16 // 0: not bound, or not an Internet socket
	peer netip.AddrPort
}

// Stays reports whether the socket that had the name n can have the name now, and updates n if so. A socket may be
// bound and connected in between. It then remains bound, and a stream keeps its peer, although the system may
// forget the peer when the connection ends.
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
