package winsock

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

const (
	sioBaseHandle      = 0x48000022
	sioBSPHandleSelect = 0x4800001c
	sioBSPHandlePoll   = 0x4800001d
	sioBSPHandle       = 0x4800001b
)

// Base returns the handle that the system's own provider knows a socket by. Layered providers (virus
// scanners, VPNs) may hand out handles of their own, which the kernel does not know. Some of them do not
// let SIO_BASE_HANDLE through; then those that select and WSAPoll use lead one layer down.
func Base(handle uintptr) (uintptr, error) {
	const layers = 8
	base, err := ask(handle, sioBaseHandle)
	for range layers {
		if err == nil || err == windows.WSAENOTSOCK {
			break
		}
		below := handle
		for _, code := range [...]uint32{sioBSPHandleSelect, sioBSPHandlePoll, sioBSPHandle} {
			if h, e := ask(handle, code); e == nil && h != handle {
				below = h
				break
			}
		}
		if below == handle {
			break
		}
		handle = below
		base, err = ask(handle, sioBaseHandle)
	}
	return base, err
}

func ask(handle uintptr, code uint32) (answer uintptr, err error) {
	var n uint32
	err = windows.WSAIoctl(windows.Handle(handle), code, nil, 0,
		(*byte)(unsafe.Pointer(&answer)), uint32(unsafe.Sizeof(answer)), &n, nil, 0)
	return answer, err
}
