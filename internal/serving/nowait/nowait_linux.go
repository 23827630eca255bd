package nowait

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// most is the number of bytes up to which a call uses RawSyscall6, which does not notify Go's scheduler. It is short then,
// and MSG_DONTWAIT makes sure that it does not wait. A sendto is also cheaper than write(2). For an event with thousands of
// clients, that decides what a delivery costs.
const most = 16 << 10

func read(fd int, b []byte) (int, error) {
	if len(b) > most {
		return unix.Read(fd, b)
	}
	return transfer(unix.SYS_RECVFROM, fd, b, unix.MSG_DONTWAIT)
}

func write(fd int, b []byte) (int, error) {
	if len(b) > most {
		return unix.Write(fd, b)
	}
	return transfer(unix.SYS_SENDTO, fd, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

func transfer(call uintptr, fd int, b []byte, flags uintptr) (int, error) {
	n, _, e := syscall.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), flags,
		0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
