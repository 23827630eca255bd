//go:build unix && !linux

package sock

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

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
