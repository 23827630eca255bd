package winsock

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// A Receive is the memory of one overlapped receive at a time (WSARecv). From a Start that returned true until its packet
// was dequeued it belongs to the kernel, as does the buffer. Both must stay reachable, and must not be on a stack.
type Receive struct {
	overlapped windows.Overlapped // first: a packet has a pointer to it
	vec        windows.WSABuf
	flags      uint32
}

// Address returns what the packet has as a pointer.
func (r *Receive) Address() uintptr { return uintptr(unsafe.Pointer(r)) }

// Start starts a receive. True means that a packet will come, also if the receive has succeeded at once. Without an error,
// false means that the system cannot receive now. An error is the receive's outcome, which the system may show only once.
func (r *Receive) Start(handle uintptr, buf []byte) (bool, error) {
	r.overlapped, r.flags = windows.Overlapped{}, 0
	r.vec = windows.WSABuf{Len: uint32(len(buf)), Buf: unsafe.SliceData(buf)}
	switch err := windows.WSARecv(windows.Handle(handle), &r.vec, 1, nil, &r.flags, &r.overlapped, nil); err {
	case nil, windows.ERROR_IO_PENDING:
		return true, nil
	case windows.WSAEWOULDBLOCK, windows.WSAENOBUFS:
		r.vec = windows.WSABuf{}
		return false, nil
	default:
		r.vec = windows.WSABuf{}
		return false, err
	}
}

// Cancel cancels a receive. It has no effect on one that has ended.
func (r *Receive) Cancel(handle uintptr) { windows.CancelIoEx(windows.Handle(handle), &r.overlapped) }

// Result returns the outcome of a receive whose packet was dequeued. void means that it was canceled.
func (r *Receive) Result(handle uintptr) (n int, void bool, err error) {
	r.vec = windows.WSABuf{}
	switch windows.NTStatus(r.overlapped.Internal) {
	case 0:
		return int(r.overlapped.InternalHigh), false, nil
	case windows.STATUS_CANCELLED:
		return 0, true, nil
	}
	var got uint32
	switch err := windows.WSAGetOverlappedResult(windows.Handle(handle), &r.overlapped, &got, false, &r.flags); err {
	case nil, windows.WSAESHUTDOWN, windows.WSAEDISCON: // the end
		return int(got), false, nil
	default:
		return 0, false, err
	}
}

// Associate makes the overlapped calls on a socket complete on a port, with a key.
func Associate(handle, port, key uintptr) error {
	_, err := windows.CreateIoCompletionPort(windows.Handle(handle), windows.Handle(port), key, 0)
	return err
}

// Dissociate takes a socket off its completion port, so that it is free for others.
func Dissociate(handle uintptr) error {
	var status windows.IO_STATUS_BLOCK
	var none struct{ port, key uintptr }
	return windows.NtSetInformationFile(windows.Handle(handle), &status, (*byte)(unsafe.Pointer(&none)),
		uint32(unsafe.Sizeof(none)), windows.FileReplaceCompletionInformation)
}
