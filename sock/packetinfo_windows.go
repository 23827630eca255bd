package sock

import (
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// controls is a pool of control messages.
var controls = sync.Pool{New: func() any { return new(control) }}

type cmsghdr = windows.WSACMSGHDR

const word = unsafe.Sizeof(uintptr(0))

func align(n uintptr) uintptr { return (n + word - 1) &^ (word - 1) }

func cmsgLen(size int) int   { return int(align(unsafe.Sizeof(cmsghdr{}))) + size }
func cmsgSpace(size int) int { return int(align(unsafe.Sizeof(cmsghdr{}) + align(uintptr(size)))) }

func setLen(head *cmsghdr, n int) { head.Len = uintptr(n) }

// The packet info of IPv4 is the address and the index of the interface.
const (
	packetInfo4     = windows.IP_PKTINFO
	sizePacketInfo4 = 4 + 4
	source4         = 0
	destination4    = 0
	packetInfo6     = windows.IPV6_PKTINFO
	// Of a socket for both, IPv4-mapped addresses have the packet info of IPv4.
	mapped4 = true
)

// sysPacketInfo asks for the packet info of both, of which an IPv4 socket has one.
func sysPacketInfo(h uintptr, on bool) error {
	err4 := setFlag(h, windows.IPPROTO_IP, windows.IP_PKTINFO, on)
	err6 := setFlag(h, windows.IPPROTO_IPV6, windows.IPV6_PKTINFO, on)
	if err4 != nil && err6 != nil {
		if errors.Is(err4, errNoOption) {
			return errors.ErrUnsupported
		}
		return err4
	}
	return nil
}

// A message is the memory for the arguments of a call.
type message struct {
	msg  windows.WSAMsg
	addr rawAny
	buf  windows.WSABuf
	n    uint32
}

func (m *message) set(b []byte, c *control, controls int) {
	m.buf = windows.WSABuf{Len: uint32(len(b)), Buf: unsafe.SliceData(b)}
	m.msg = windows.WSAMsg{
		Buffers: &m.buf, BufferCount: 1,
		Control: windows.WSABuf{Len: uint32(controls), Buf: unsafe.SliceData(c.bytes())},
	}
}

func sysRecvInfo(h uintptr, b []byte) (int, netip.AddrPort, netip.Addr, error) {
	c := controls.Get().(*control)
	defer controls.Put(c)
	var m message
	m.set(b, c, len(c.bytes()))
	m.msg.Name = (*syscall.RawSockaddrAny)(unsafe.Pointer(&m.addr))
	m.msg.Namelen = int32(unsafe.Sizeof(m.addr))
	kernelWrites(b)
	err := windows.WSARecvMsg(windows.Handle(h), &m.msg, &m.n, nil, nil)
	n := int(m.n)
	if err != nil {
		var e windows.Errno
		if !errors.As(err, &e) {
			return 0, netip.AddrPort{}, netip.Addr{}, err
		}
		if n, err = recvError(b, e); err != nil {
			return 0, netip.AddrPort{}, netip.Addr{}, err
		}
	}
	from := decode(&m.addr)
	return n, from, c.local(min(int(m.msg.Control.Len), len(c.bytes())), from.Addr()), nil
}

func sysSendInfo(h uintptr, b []byte, to netip.AddrPort, local netip.Addr) error {
	c := controls.Get().(*control)
	defer controls.Put(c)
	size, err := c.put(local)
	if err != nil {
		return err
	}
	var m message
	m.set(b, c, size)
	if to != (netip.AddrPort{}) {
		size, err := encode(to, &m.addr)
		if err != nil {
			return err
		}
		m.msg.Name = (*syscall.RawSockaddrAny)(unsafe.Pointer(&m.addr))
		m.msg.Namelen = int32(size)
	}
	kernelReads(b)
	return blocked(windows.WSASendMsg(windows.Handle(h), &m.msg, 0, &m.n, nil, nil))
}
