//go:build unix || windows

package sock

import (
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"
)

// A control is the memory for the control messages of a datagram: the packet info, and others that a program may have
// asked for. It is aligned as their heads are.
type control [16]uint64

func (c *control) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(c)), unsafe.Sizeof(*c))
}

// The packet info of IPv6 is the address and the index of the interface.
const sizePacketInfo6 = 16 + 4

// local returns the address that a datagram came to, from n bytes of control messages. from is its sender.
func (c *control) local(n int, from netip.Addr) netip.Addr {
	for rest := c.bytes()[:n]; len(rest) >= cmsgLen(0); {
		head := (*cmsghdr)(unsafe.Pointer(unsafe.SliceData(rest)))
		if int(head.Len) < cmsgLen(0) || int(head.Len) > len(rest) {
			break
		}
		data := rest[cmsgLen(0):head.Len]
		switch {
		case head.Level == syscall.IPPROTO_IP && head.Type == packetInfo4 && len(data) >= sizePacketInfo4:
			// The one to answer from is missing on some systems, and on Linux where a datagram came before it was asked for.
			a := netip.AddrFrom4([4]byte(data[source4:]))
			if a.IsUnspecified() {
				a = netip.AddrFrom4([4]byte(data[destination4:]))
			}
			if from.Is4In6() {
				a = netip.AddrFrom16(a.As16())
			}
			return answering(a)
		case head.Level == syscall.IPPROTO_IPV6 && head.Type == packetInfo6 && len(data) >= sizePacketInfo6:
			a := netip.AddrFrom16([16]byte(data))
			if a.IsLinkLocalUnicast() && !a.Is4In6() {
				a = a.WithZone(strconv.FormatUint(uint64(*(*uint32)(unsafe.Pointer(&data[16]))), 10))
			}
			return answering(a)
		}
		rest = rest[min(cmsgSpace(len(data)), len(rest)):]
	}
	return netip.Addr{}
}

// answering returns an address, or the zero Addr if no datagram can leave from it.
func answering(a netip.Addr) netip.Addr {
	if u := a.Unmap(); u.IsUnspecified() || u.IsMulticast() || u == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return netip.Addr{}
	}
	return a
}

// put makes the control message for a datagram that leaves from an address, and returns its size.
func (c *control) put(local netip.Addr) (int, error) {
	level, kind, size := int32(syscall.IPPROTO_IPV6), int32(packetInfo6), sizePacketInfo6
	four := local.Is4() || mapped4 && local.Is4In6()
	if four {
		level, kind, size = syscall.IPPROTO_IP, packetInfo4, sizePacketInfo4
	}
	b := c.bytes()[:cmsgSpace(size)]
	clear(b)
	head := (*cmsghdr)(unsafe.Pointer(c))
	head.Level, head.Type = level, kind
	setLen(head, cmsgLen(size))
	data := b[cmsgLen(0):]
	if four {
		a := local.Unmap().As4()
		copy(data[source4:], a[:])
		return len(b), nil
	}
	zone, err := zoneID(local.Zone())
	if err != nil {
		return 0, err
	}
	a := local.As16()
	copy(data, a[:])
	*(*uint32)(unsafe.Pointer(&data[16])) = zone
	return len(b), nil
}
