package conformance

import (
	"errors"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify"
)

// notifyRegistration is SOCK_NOTIFY_REGISTRATION.
type notifyRegistration struct {
	socket  uintptr
	key     uintptr
	filter  uint16
	op      uint8
	trigger uint8
	result  uint32
}

// An overlappedEntry is OVERLAPPED_ENTRY. In a socket's notification the length has the events.
type overlappedEntry struct {
	key        uintptr
	overlapped uintptr
	internal   uintptr
	length     uint32
}

// watchNative calls ProcessSocketNotifications directly, without a backend. Its numbers are this
// library's.
func watchNative(e *env, h uintptr) (*watcher, error) {
	call := windows.NewLazySystemDLL("ws2_32.dll").NewProc("ProcessSocketNotifications")
	if call.Find() != nil {
		return nil, errors.ErrUnsupported
	}
	port, err := windows.CreateIoCompletionPort(windows.InvalidHandle, 0, 0, 0)
	if err != nil {
		return nil, err
	}
	e.Cleanup(func() { windows.CloseHandle(port) })
	process := func(regs []notifyRegistration, entries []overlappedEntry, timeout time.Duration) (n uint32, err error) {
		code, _, _ := syscall.SyscallN(call.Addr(), uintptr(port),
			uintptr(len(regs)), uintptr(unsafe.Pointer(unsafe.SliceData(regs))), uintptr(timeout.Milliseconds()),
			uintptr(len(entries)), uintptr(unsafe.Pointer(unsafe.SliceData(entries))), uintptr(unsafe.Pointer(&n)))
		if code != 0 {
			err = syscall.Errno(code)
		}
		return n, err
	}
	return watchEvents(func(t socknotify.Trigger) error {
		regs := []notifyRegistration{{
			socket: h, key: 1, filter: uint16(socknotify.EventsAll), op: uint8(socknotify.OpEnable),
			trigger: uint8(t),
		}}
		if _, err := process(regs, nil, 0); err != nil {
			return err
		}
		if regs[0].result != 0 {
			return syscall.Errno(regs[0].result)
		}
		return nil
	}, func(timeout time.Duration) (events, bool) {
		entries := make([]overlappedEntry, 1)
		n, err := process(nil, entries, timeout)
		return events(entries[0].length), err == nil && n == 1
	}), nil
}
