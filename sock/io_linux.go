package sock

import (
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls in this file use RawSyscall, which does not notify Go's scheduler. That is safe because the descriptors
// are non-blocking and the sizes are bounded, so the calls are short. It is worthwhile because notifying the
// scheduler costs as much as a small receive.

// blockedOr converts an error number to an error: ErrWouldBlock if the call would block, nil for 0.
func blockedOr(e unix.Errno) error {
	switch e {
	case 0:
		return nil
	case unix.EAGAIN, unix.EINPROGRESS:
		return ErrWouldBlock
	}
	return e
}

func sysRecv(h uintptr, b []byte) (int, error) {
	n, e := recvOnce(h, b)
	if e != 0 {
		return recvAgain(h, b, e)
	}
	return int(n), nil
}

func sysSend(h uintptr, b []byte) (int, error) {
	n, e := sendOnce(h, b)
	if e != 0 {
		return sendAgain(h, b, e)
	}
	return int(n), nil
}

// recvOnce and sendOnce must be small enough to be inlined (see Socket.send).
func recvOnce(h uintptr, b []byte) (n uintptr, e ioError) {
	kernelWrites(b)
	n, _, e = syscall.RawSyscall6(unix.SYS_RECVFROM, h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return
}

func sendOnce(h uintptr, b []byte) (n uintptr, e ioError) {
	kernelReads(b)
	n, _, e = syscall.RawSyscall6(unix.SYS_SENDTO, h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	return
}

type ioError = unix.Errno

func ioFailed(e ioError) bool { return e != 0 }

// recvAgain and sendAgain handle the error of a failed call: they repeat an interrupted call.
func recvAgain(h uintptr, b []byte, e ioError) (int, error) {
	if e == unix.EINTR {
		return sysRecv(h, b)
	}
	return 0, blockedOr(e)
}

func sendAgain(h uintptr, b []byte, e ioError) (int, error) {
	if e == unix.EINTR {
		return sysSend(h, b)
	}
	return 0, blockedOr(e)
}

// maxVec is the maximum number of buffers of one SendV.
const maxVec = 64

func sysSendV(h uintptr, bufs [][]byte, stream bool) (int, error) {
	var vec [maxVec]unix.Iovec
	n, left := 0, maxIO
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if stream && (n == maxVec || left == 0) {
			break
		}
		if n == maxVec {
			return 0, unix.EMSGSIZE // a part of a message would be a different message
		}
		if stream {
			b = b[:min(len(b), left)]
			left -= len(b)
		}
		kernelReads(b)
		vec[n].Base = unsafe.SliceData(b)
		vec[n].SetLen(len(b))
		n++
	}
	if n == 0 && stream {
		return 0, nil
	}
	msg := unix.Msghdr{Iov: &vec[0]}
	msg.SetIovlen(max(n, 1)) // send an empty datagram with one empty buffer: some sockets refuse a message without buffers
	for {
		sent, _, e := unix.RawSyscall(unix.SYS_SENDMSG, h, uintptr(unsafe.Pointer(&msg)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		if e != unix.EINTR {
			return int(sent), blockedOr(e)
		}
	}
}

// sysSendFile uses the scheduler, because reading the file may block.
func sysSendFile(h uintptr, f *os.File, offset int64, n int) (sent int, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := rc.Control(func(file uintptr) {
		for {
			at := offset
			sent, err = unix.Sendfile(int(h), int(file), &at, n)
			if err != unix.EINTR {
				return
			}
		}
	})
	if cerr != nil {
		return 0, os.ErrClosed // cerr means that f is closed, but does not wrap os.ErrClosed
	}
	if e, ok := err.(unix.Errno); ok {
		return 0, blockedOr(e)
	}
	return sent, err
}

func sysRecvFrom(h uintptr, b []byte) (int, netip.AddrPort, error) {
	var sa unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	kernelWrites(b)
	for {
		n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT,
			uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
		switch e {
		case unix.EINTR:
		case 0:
			return int(n), decode(&sa), nil
		default:
			return 0, netip.AddrPort{}, blockedOr(e)
		}
	}
}

func sysSendTo(h uintptr, b []byte, to netip.AddrPort) error {
	var sa unix.RawSockaddrAny
	size, err := encode(to, &sa)
	if err != nil {
		return err
	}
	kernelReads(b)
	for {
		_, _, e := unix.RawSyscall6(unix.SYS_SENDTO, h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT,
			uintptr(unsafe.Pointer(&sa)), size)
		if e != unix.EINTR {
			return blockedOr(e)
		}
	}
}
