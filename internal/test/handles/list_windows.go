package handles

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/test/wine"
)

var (
	queryObject = windows.NewLazySystemDLL("ntdll.dll").NewProc("NtQueryObject")
	handleCount = windows.NewLazySystemDLL("kernel32.dll").NewProc("GetProcessHandleCount")
)

// List returns the process's handles of sockets, files and completion ports. It omits other handles, which the
// runtime opens and closes for its threads.
func List() []string {
	var open uint32
	syscall.SyscallN(handleCount.Addr(), uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&open)))
	if wine.CountsNoHandle.Here() {
		open = 1 << 16
	}
	var list []string
	const end = 512 // stop after this many closed handles in a row, in case the count is too high
	for h, closed := uintptr(4), 0; open > 0 && closed < end; h += 4 {
		kind := Type(h)
		if kind == "" {
			closed++
			continue
		}
		open--
		closed = 0
		if kind == "File" || kind == "IoCompletion" {
			list = append(list, fmt.Sprintf("%#x %s", h, kind))
		}
	}
	return list
}

// Type returns the name of the type of a handle's object, or "" if the handle is not open.
func Type(h uintptr) string {
	const objectTypeInformation = 2
	var info struct {
		name windows.NTUnicodeString
		_    [1024]byte
	}
	var n uint32
	r, _, _ := syscall.SyscallN(queryObject.Addr(), h, objectTypeInformation,
		uintptr(unsafe.Pointer(&info)), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&n)))
	if r != 0 {
		return ""
	}
	return info.name.String()
}
