//go:build linux || windows

package sock

import (
	"net/netip"
	"strconv"
	"unsafe"
)

// encode writes the system's representation of a to sa and returns its length.
func encode(a netip.AddrPort, sa *rawAny) (uintptr, error) {
	if a.Addr().Is4() {
		in := (*rawInet4)(unsafe.Pointer(sa))
		*in = rawInet4{Family: afInet4, Addr: a.Addr().As4()}
		setPort(&in.Port, a.Port())
		return unsafe.Sizeof(*in), nil
	}
	if !a.IsValid() {
		return 0, errNoAddr
	}
	zone, err := zoneID(a.Addr().Zone())
	if err != nil {
		return 0, err
	}
	in := rawInet6{Family: afInet6, Addr: a.Addr().As16(), Scope_id: zone}
	setPort(&in.Port, a.Port())
	*inet6Bytes(sa) = *(*[sizeInet6]byte)(unsafe.Pointer(&in))
	return sizeInet6, nil
}

const sizeInet6 = unsafe.Sizeof(rawInet6{})

// inet6Bytes returns the bytes of a rawInet6. They are copied, because a rawAny need not be aligned as a rawInet6 must be on
// processors such as mips.
func inet6Bytes(sa *rawAny) *[sizeInet6]byte { return (*[sizeInet6]byte)(unsafe.Pointer(sa)) }

// decode reads an address that was written by the system. It returns the zero AddrPort if the address belongs to
// another family.
func decode(sa *rawAny) netip.AddrPort {
	switch sa.Addr.Family {
	case afInet4:
		in := (*rawInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), port(&in.Port))
	case afInet6:
		var in rawInet6
		*(*[sizeInet6]byte)(unsafe.Pointer(&in)) = *inet6Bytes(sa)
		a := netip.AddrFrom16(in.Addr)
		if in.Scope_id != 0 {
			a = a.WithZone(strconv.FormatUint(uint64(in.Scope_id), 10))
		}
		return netip.AddrPortFrom(a, port(&in.Port))
	}
	return netip.AddrPort{}
}

// setPort and port convert to and from network byte order.
func setPort(p *uint16, v uint16) {
	b := (*[2]byte)(unsafe.Pointer(p))
	b[0], b[1] = byte(v>>8), byte(v)
}

func port(p *uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(p))
	return uint16(b[0])<<8 | uint16(b[1])
}
