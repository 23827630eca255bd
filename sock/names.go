package sock

import "net/netip"

// Names holds the names of a socket in printable form: addresses with ports, or the path of a Unix socket. A name
// that the socket does not have is "".
type Names struct {
	Network       string // tcp, udp, unix or unixgram
	Local, Remote string // Remote is set for TCP and UDP only
	Listening     bool
}

// NamesOf returns the names of the socket with the given handle. The caller must ensure that the handle is not
// closed during the call; otherwise the result may describe another socket.
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
