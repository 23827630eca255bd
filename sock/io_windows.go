package sock

import (
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

func sysRecv(h uintptr, b []byte) (int, error) {
	kernelWrites(b)
	r, _, e := syscall.SyscallN(procRecv.Addr(), h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
	if wantError(r) {
		return recvError(b, e)
	}
	return int(int32(r)), nil
}

// recvError converts a failed receive to the result that other systems return.
func recvError(b []byte, e syscall.Errno) (int, error) {
	switch e {
	case windows.WSAEMSGSIZE: // the datagram was truncated
		return len(b), nil
	case windows.WSAESHUTDOWN: // receiving was shut down by Shutdown
		return 0, nil
	}
	return 0, blockedOr(e)
}

func sysSend(h uintptr, b []byte) (int, error) {
	kernelReads(b)
	r, _, e := syscall.SyscallN(procSend.Addr(), h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
	if wantError(r) {
		return 0, blockedOr(e)
	}
	return int(int32(r)), nil
}

func sysSendV(h uintptr, bufs [][]byte, stream bool) (int, error) {
	var few [maxVec][]byte
	n, ok := gather(&few, bufs, stream)
	if !ok {
		return 0, windows.WSAEMSGSIZE
	}
	if n == 0 && stream {
		return 0, nil
	}
	var vec [maxVec]windows.WSABuf
	for i, b := range few[:n] {
		vec[i] = windows.WSABuf{Len: uint32(len(b)), Buf: unsafe.SliceData(b)}
	}
	var sent uint32
	err := windows.WSASend(windows.Handle(h), &vec[0], uint32(max(n, 1)), &sent, 0, nil, nil)
	return int(sent), blocked(err)
}

func sysRecvFrom(h uintptr, b []byte) (int, netip.AddrPort, error) {
	var sa rawAny
	size := int32(unsafe.Sizeof(sa))
	kernelWrites(b)
	r, _, e := syscall.SyscallN(procRecvfrom.Addr(), h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
	n, err := int(int32(r)), error(nil)
	if wantError(r) {
		n, err = recvError(b, e)
	}
	return n, decode(&sa), err
}

func sysSendTo(h uintptr, b []byte, to netip.AddrPort) error {
	var sa rawAny
	size, err := encode(to, &sa)
	if err != nil {
		return err
	}
	kernelReads(b)
	r, _, e := syscall.SyscallN(procSendto.Addr(), h, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(&sa)), size)
	if wantError(r) {
		return blockedOr(e)
	}
	return nil
}
