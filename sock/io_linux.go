package sock

import (
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls here go around Go's scheduler (RawSyscall): the descriptors are non-blocking and the sizes
// bounded, so they are short, and handing the processor over and back costs as much as a small receive.

// blockedOr turns an error number into an error, or into ErrWouldBlock.
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

// recvOnce and sendOnce are small enough to be inlined (see Socket.send).
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

type (
	ioCount = uintptr
	ioError = unix.Errno
)

// ioErrorOf is the error of a call that was made elsewhere.
func ioErrorOf(err error) ioError {
	e, _ := err.(unix.Errno)
	return e
}

func ioFailed(e ioError) bool { return e != 0 }

// recvAgain and sendAgain are for those that failed.
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

// maxVec is how many buffers one SendV takes.
const maxVec = 64

func sysSendV(h uintptr, bufs [][]byte, stream bool) (int, error) {
	var vec [maxVec]unix.Iovec
	n, room := 0, maxIO
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if stream && (n == maxVec || room == 0) {
			break
		}
		if n == maxVec {
			return 0, unix.EMSGSIZE // part of a message would be another message
		}
		if stream {
			b = b[:min(len(b), room)]
			room -= len(b)
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
	msg.SetIovlen(max(n, 1)) // an empty datagram is one of an empty buffer: not everything takes a message without any
	for {
		sent, _, e := unix.RawSyscall(unix.SYS_SENDMSG, h, uintptr(unsafe.Pointer(&msg)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		if e != unix.EINTR {
			return int(sent), blockedOr(e)
		}
	}
}

// sysSendFile goes through the scheduler: the file may have to be read from a disk.
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
		return 0, os.ErrClosed // it can be nothing else, but is an error that errors.Is does not know
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
