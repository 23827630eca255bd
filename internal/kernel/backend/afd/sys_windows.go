package afd

import (
	"math"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	ntdll    = windows.NewLazySystemDLL("ntdll.dll")
	ioctl    = ntdll.NewProc("NtDeviceIoControlFile")
	cancelIO = ntdll.NewProc("NtCancelIoFileEx")

	kernel32   = windows.NewLazySystemDLL("kernel32.dll")
	getPackets = kernel32.NewProc("GetQueuedCompletionStatusEx")
)

// A packet is an entry of a port's queue (OVERLAPPED_ENTRY). The kernel writes into it a pointer to a block, which
// is kept reachable while the kernel owns it.
type packet struct {
	key   uintptr
	block *block
	_     uintptr
	_     uint32
}

// The keys of packets.
const (
	keyPoll = 1
	keyWake = 2
)

// pollInfo is AFD_POLL_INFO with one socket. It is both input and output.
type pollInfo struct {
	timeout   int64
	sockets   uint32
	exclusive uint32
	socket    uintptr
	events    uint32
	status    uint32
	_         uint32
}

const (
	forever   = math.MaxInt64
	infoSize  = 32 // of AFD_POLL_INFO, which C pads to 8 bytes where Go does not
	ioctlPoll = 0x00012024
)

// newPort opens a completion port without a limit of threads, because a thread that has dequeued a packet may
// continue with another goroutine.
func newPort() (windows.Handle, error) {
	port, err := windows.CreateIoCompletionPort(windows.InvalidHandle, 0, 0, math.MaxUint32)
	if err != nil {
		return 0, os.NewSyscallError("CreateIoCompletionPort", err)
	}
	return port, nil
}

// newHelper opens the driver without a socket.
func newHelper(options uint32) (windows.Handle, error) {
	name, err := windows.NewNTUnicodeString(`\Device\Afd\socknotify`)
	if err != nil {
		return 0, err
	}
	attributes := windows.OBJECT_ATTRIBUTES{ObjectName: name}
	attributes.Length = uint32(unsafe.Sizeof(attributes))
	var helper windows.Handle
	var iosb windows.IO_STATUS_BLOCK
	err = windows.NtCreateFile(&helper, windows.SYNCHRONIZE, &attributes, &iosb, nil, 0,
		windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE, windows.FILE_OPEN, options, 0, 0)
	if err != nil {
		return 0, os.NewSyscallError("NtCreateFile", err)
	}
	return helper, nil
}

// newHelperOf opens the driver so that polls complete on a port.
func newHelperOf(port windows.Handle) (windows.Handle, error) {
	helper, err := newHelper(0)
	if err != nil {
		return 0, err
	}
	if _, err = windows.CreateIoCompletionPort(helper, port, keyPoll, 0); err == nil {
		err = windows.SetFileCompletionNotificationModes(helper, windows.FILE_SKIP_SET_EVENT_ON_HANDLE)
	}
	if err != nil {
		windows.CloseHandle(helper)
		return 0, os.NewSyscallError("CreateIoCompletionPort", err)
	}
	return helper, nil
}

// poll starts a poll. Its packet has the context; without a context there is no packet.
func poll(helper windows.Handle, context uintptr, iosb *windows.IO_STATUS_BLOCK, info *pollInfo) windows.NTStatus {
	r, _, _ := syscall.SyscallN(ioctl.Addr(), uintptr(helper), 0, 0, context, uintptr(unsafe.Pointer(iosb)),
		ioctlPoll, uintptr(unsafe.Pointer(info)), infoSize, uintptr(unsafe.Pointer(info)), infoSize)
	return windows.NTStatus(r)
}

// cancel cancels a poll, or all polls of a helper. It has no effect on a poll that has completed.
func cancel(helper windows.Handle, iosb *windows.IO_STATUS_BLOCK) {
	var result windows.IO_STATUS_BLOCK
	syscall.SyscallN(cancelIO.Addr(), uintptr(helper), uintptr(unsafe.Pointer(iosb)), uintptr(unsafe.Pointer(&result)))
}

// dequeue takes packets, and waits for the first one for at most the given time.
func dequeue(port windows.Handle, packets []packet, milliseconds uint32) (int, error) {
	var n uint32
	r, _, e := syscall.SyscallN(getPackets.Addr(), uintptr(port), uintptr(unsafe.Pointer(&packets[0])),
		uintptr(len(packets)), uintptr(unsafe.Pointer(&n)), uintptr(milliseconds), 0)
	if r != 0 {
		return int(n), nil
	}
	if e == syscall.Errno(windows.WAIT_TIMEOUT) {
		return 0, nil
	}
	return 0, os.NewSyscallError("GetQueuedCompletionStatusEx", e)
}
