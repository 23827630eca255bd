//go:build unix && !linux

package sock

import (
	"net/netip"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// controls is a pool of control messages.
var controls = sync.Pool{New: func() any { return new(control) }}

// A sockaddr is the memory for the address argument of a call.
type sockaddr struct {
	four unix.SockaddrInet4
	six  unix.SockaddrInet6
}

var sockaddrs = sync.Pool{New: func() any { return new(sockaddr) }}

// withAddr calls f with x/sys's representation of a.
func withAddr(a netip.AddrPort, f func(unix.Sockaddr) error) error {
	if !a.IsValid() {
		return unix.EDESTADDRREQ
	}
	zone, err := zoneID(a.Addr().Zone())
	if err != nil {
		return err
	}
	sa := sockaddrs.Get().(*sockaddr)
	defer sockaddrs.Put(sa)
	if a.Addr().Is4() {
		sa.four.Port, sa.four.Addr = int(a.Port()), a.Addr().As4()
		return f(&sa.four)
	}
	sa.six.Port, sa.six.Addr, sa.six.ZoneId = int(a.Port()), a.Addr().As16(), zone
	return f(&sa.six)
}

// decode returns the address. It returns the zero AddrPort if the address belongs to another family.
func decode(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		a := netip.AddrFrom16(sa.Addr)
		if sa.ZoneId != 0 {
			a = a.WithZone(strconv.FormatUint(uint64(sa.ZoneId), 10))
		}
		return netip.AddrPortFrom(a, uint16(sa.Port))
	}
	return netip.AddrPort{}
}

func sysBind(h uintptr, a netip.AddrPort) error {
	return withAddr(a, func(sa unix.Sockaddr) error { return unix.Bind(int(h), sa) })
}

func sysConnect(h uintptr, a netip.AddrPort) error {
	return withAddr(a, func(sa unix.Sockaddr) error {
		err := unix.Connect(int(h), sa)
		if err == unix.EINTR {
			return ErrWouldBlock // the connection attempt continues
		}
		return blocked(err)
	})
}

func sysLocalAddr(h uintptr) netip.AddrPort {
	sa, _ := unix.Getsockname(int(h))
	return decode(sa)
}

func sysRemoteAddr(h uintptr) netip.AddrPort {
	sa, _ := unix.Getpeername(int(h))
	return decode(sa)
}

// isTCP reads an option that only TCP sockets have, because few of these systems report a socket's protocol.
func isTCP(fd int) bool {
	_, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY)
	return err == nil
}

// The calls in this file use x/sys, because most of these systems support system calls only through their C library.

func sysRecv(h uintptr, b []byte) (int, error) {
	for {
		n, err := unix.Read(int(h), b)
		if err != unix.EINTR {
			return n, blocked(err)
		}
	}
}

func sysSend(h uintptr, b []byte) (int, error) { return send(h, b, nil) }

func send(h uintptr, b []byte, to unix.Sockaddr) (int, error) {
	kernelReads(b)
	for {
		n, err := unix.SendmsgN(int(h), b, nil, to, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return n, blocked(sendErr(err))
		}
	}
}

func sysSendV(h uintptr, bufs [][]byte, stream bool) (int, error) {
	var few [maxVec][]byte
	n, ok := gather(&few, bufs, stream)
	if !ok {
		return 0, unix.EMSGSIZE
	}
	if n == 0 && stream {
		return 0, nil
	}
	if n == 0 {
		return send(h, nil, nil) // send an empty datagram with one empty buffer
	}
	for {
		sent, err := unix.SendmsgBuffers(int(h), few[:n], nil, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return sent, blocked(sendErr(err))
		}
	}
}

func sysRecvFrom(h uintptr, b []byte) (int, netip.AddrPort, error) {
	kernelWrites(b)
	for {
		n, from, err := unix.Recvfrom(int(h), b, 0)
		switch {
		case n >= 0: // x/sys may have received the datagram and failed to decode the sender's address
			return n, decode(from), nil
		case err != unix.EINTR:
			return 0, netip.AddrPort{}, blocked(err)
		}
	}
}

func sysRecvInfo(h uintptr, b []byte) (int, netip.AddrPort, netip.Addr, error) {
	c := controls.Get().(*control)
	defer controls.Put(c)
	kernelWrites(b)
	for {
		n, controls, _, sender, err := unix.Recvmsg(int(h), b, c.bytes(), 0)
		switch {
		case n >= 0: // as in sysRecvFrom
			from := decode(sender)
			return n, from, c.local(controls, from.Addr()), nil
		case err != unix.EINTR:
			return 0, netip.AddrPort{}, netip.Addr{}, blocked(err)
		}
	}
}

func sysSendInfo(h uintptr, b []byte, to netip.AddrPort, local netip.Addr) error {
	c := controls.Get().(*control)
	defer controls.Put(c)
	size, err := c.put(local)
	if err != nil {
		return err
	}
	kernelReads(b)
	send := func(sa unix.Sockaddr) error {
		for {
			_, err := unix.SendmsgN(int(h), b, c.bytes()[:size], sa, unix.MSG_NOSIGNAL)
			if err != unix.EINTR {
				return blocked(sendErr(err))
			}
		}
	}
	if to == (netip.AddrPort{}) {
		return send(nil)
	}
	return withAddr(to, send)
}

func sysSendTo(h uintptr, b []byte, to netip.AddrPort) error {
	return withAddr(to, func(sa unix.Sockaddr) error {
		_, err := send(h, b, sa)
		return err
	})
}

func sysAccept(h uintptr) (uintptr, error) {
	for {
		fd, err := acceptSocket(int(h))
		switch err {
		case unix.EINTR:
		case unix.ECONNABORTED, unix.EPROTO: // the error of this connection: accept the next one
		default:
			return uintptr(fd), blocked(err)
		}
	}
}

// sendErr converts EPROTOTYPE, which Darwin sometimes returns while the peer is closing the stream.
func sendErr(err error) error {
	if (runtime.GOOS == "darwin" || runtime.GOOS == "ios") && err == unix.EPROTOTYPE {
		return unix.ECONNRESET
	}
	return err
}
