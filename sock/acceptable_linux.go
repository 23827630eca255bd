package sock

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sysAcceptable asks poll(2). It also returns true for errors, which accept then reports.
func sysAcceptable(h uintptr) bool {
	f := unix.PollFd{Fd: int32(h), Events: unix.POLLIN}
	var now unix.Timespec
	n, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&f)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n != 0 || e != 0
}
