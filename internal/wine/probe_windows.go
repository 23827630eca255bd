package wine

import (
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Version returns the version of Wine, or "" on Windows.
var Version = sync.OnceValue(func() string {
	get := windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version")
	if get.Find() != nil {
		return ""
	}
	version, _, _ := syscall.SyscallN(get.Addr())
	return windows.BytePtrToString(*(**byte)(unsafe.Pointer(&version)))
})
