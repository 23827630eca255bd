package server

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What follows is a receive and a send that are made in the frame of whoever calls them: package sock's, small enough
// to be inlined.
//
// A send goes deep into the system, delivers to the peer perhaps, and spoils the processor's memory of who called
// whom: each return after it is mispredicted. And what the system ran meanwhile has taken the place of the program's
// code in the nearest cache. So each frame around such a call has its price. They are here because package sock's own
// would not be inlined: Conn is generic, and what another package has stays a call in its methods. What is sent or
// received, and what follows from the outcome, is package sock's all the same (sock.Held's Ahead, Took and Made).

// direct tells whether this system has them.
const direct = true

func directRecv(h uintptr, b []byte) (n uintptr, e syscall.Errno) {
	n, _, e = syscall.RawSyscall6(unix.SYS_RECVFROM, h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return
}

func directSend(h uintptr, b []byte) (n uintptr, e syscall.Errno) {
	n, _, e = syscall.RawSyscall6(unix.SYS_SENDTO, h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	return
}
