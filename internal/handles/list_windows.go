package handles

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/wine"
)

var (
	queryObject = windows.NewLazySystemDLL("ntdll.dll").NewProc("NtQueryObject")
	handleCount = windows.NewLazySystemDLL("kernel32.dll").NewProc("GetProcessHandleCount")
)

// List names the process's handles of sockets, other files and completion ports. The runtime has others,
// for its threads, which come and go.
func List() []string {
	var open uint32
	syscall.SyscallN(handleCount.Addr(), uintptr(windows.CurrentProcess()), uintptr(unsafe.Pointer(&open)))
	if wine.CountsNoHandle.Here() {
		open = 1 << 16
	}
	var list []string
	const end = 512 // closed ones in a row, where there are not as many as were counted
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

// Type names the type of a handle's object; it is empty for a handle that is not open.
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
