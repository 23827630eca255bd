package sock

import "net/netip"

// Names are what the system calls a socket, for people to read: addresses with ports, or the path of a Unix
// socket, and "" for what it does not have.
type Names struct {
	Network       string // tcp, udp, unix or unixgram
	Local, Remote string // Remote is of TCP and UDP alone
	Listening     bool
}

// NamesOf asks the system about a handle. It is the caller's to see that the handle is not closed, and its
// number used again, meanwhile.
func NamesOf(handle uintptr) (Names, error) {
	kind, err := sysDescribe(handle)
	if err != nil {
		return Names{}, &Error{"names", handle, err}
	}
	n := Names{Listening: kind.listening}
	local := sysLocalAddr(handle)
	switch {
	case local == netip.AddrPort{}:
		n.Network, n.Local = "unixgram", sysLocalPath(handle)
		if kind.stream {
			n.Network = "unix"
		}
		return n, nil
	case kind.stream:
		n.Network = "tcp"
	default:
		n.Network = "udp"
	}
	n.Local = local.String()
	if remote := sysRemoteAddr(handle); remote.IsValid() {
		n.Remote = remote.String()
	}
	return n, nil
}
