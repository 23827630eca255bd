package facts

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	sn "github.com/socknotify/socknotify"
)

// native calls ProcessSocketNotifications directly, without a backend.
type native struct {
	call uintptr
	port windows.Handle
}

// registration is SOCK_NOTIFY_REGISTRATION.
type registration struct {
	socket  uintptr
	key     uintptr
	filter  uint16
	op      uint8
	trigger uint8
	result  uint32
}

// entry is OVERLAPPED_ENTRY. In a socket's notification the length has the events.
type entry struct {
	key        uintptr
	overlapped uintptr
	internal   uintptr
	length     uint32
}

func openNative() (api, error) {
	for _, dll := range []string{"ws2_32.dll", "mswsock.dll"} {
		p := windows.NewLazySystemDLL(dll).NewProc("ProcessSocketNotifications")
		if p.Find() != nil {
			continue
		}
		port, err := windows.CreateIoCompletionPort(windows.InvalidHandle, 0, 0, 0)
		return &native{p.Addr(), port}, err
	}
	return nil, errors.ErrUnsupported
}

func (a *native) close() { windows.CloseHandle(a.port) }

func (a *native) process(regs []registration, entries []entry, milliseconds uint32) (n, code uint32) {
	r, _, _ := syscall.SyscallN(a.call, uintptr(a.port),
		uintptr(len(regs)), uintptr(unsafe.Pointer(unsafe.SliceData(regs))), uintptr(milliseconds),
		uintptr(len(entries)), uintptr(unsafe.Pointer(unsafe.SliceData(entries))), uintptr(unsafe.Pointer(&n)))
	return n, uint32(r)
}

func codeName(code uint32) string {
	if code == 0 {
		return ""
	}
	return fmt.Sprintf("error %d (%v)", code, syscall.Errno(code))
}

func (a *native) do(op sn.Op, h uintptr, key int, filter sn.Events, t sn.Trigger) string {
	r := []registration{{socket: h, key: uintptr(key), filter: uint16(filter), op: uint8(op), trigger: uint8(t)}}
	if _, code := a.process(r, nil, 0); code != 0 {
		return "call: " + codeName(code)
	}
	return codeName(r[0].result)
}

func (a *native) next(timeout time.Duration) (int, sn.Events, bool) {
	entries := make([]entry, 1)
	n, code := a.process(nil, entries, uint32(max(0, timeout.Milliseconds())))
	if code != 0 || n == 0 {
		return 0, 0, false
	}
	return int(entries[0].key), sn.Events(entries[0].length), true
}

// many also returns the cost of an entry.
func (a *native) many(handles []uintptr) string {
	regs := make([]registration, len(handles))
	for i, h := range handles {
		regs[i] = registration{socket: h, key: uintptr(i + 1), filter: uint16(sn.EventIn), op: uint8(sn.OpEnable), trigger: uint8(level | oneShot)}
	}
	pool, begin := nonPagedPool(), time.Now()
	_, code := a.process(regs, nil, 0)
	each := time.Since(begin) / time.Duration(len(regs))
	if code != 0 {
		return "call: " + codeName(code)
	}
	for i := range regs {
		if regs[i].result != 0 {
			return fmt.Sprintf("entry %d: %s", i, codeName(regs[i].result))
		}
	}
	return fmt.Sprintf("taken, %v and %d bytes of pool each", each, (nonPagedPool()-pool)/len(regs))
}

// nonPagedPool returns the bytes of non-paged pool that the process is charged for.
func nonPagedPool() int {
	var c struct {
		size, faults                                                                   uint32
		peakSet, set, peakPaged, paged, peakNonPaged, nonPaged, pagefile, peakPageFile uintptr
	}
	c.size = uint32(unsafe.Sizeof(c))
	p := windows.NewLazySystemDLL("kernel32.dll").NewProc("K32GetProcessMemoryInfo")
	syscall.SyscallN(p.Addr(), uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&c)), uintptr(c.size))
	return int(c.nonPaged)
}
