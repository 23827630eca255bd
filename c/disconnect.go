//go:build linux && cgo && !386 && !arm && !mips && !mipsle

package main

/*
#include "sn.h"
*/
import "C"

import "golang.org/x/sys/unix"

// snGoDisconnect ends a connection. If the socket is to be used again, its descriptor becomes a new
// socket, with the port and the key of the old one. The result is that of snGoTransfer, or 0 without
// an OVERLAPPED.
//
//export snGoDisconnect
func snGoDisconnect(fd C.int, reuse C.bool, ov *C.OVERLAPPED) C.uint32_t {
	if _, err := unix.Getpeername(int(fd)); err != nil {
		return operationCode(err)
	}
	if ov == nil {
		return disconnect(int(fd), bool(reuse))
	}
	obj, err := makeObject(int(fd))
	if err != nil {
		return operationCode(err)
	}
	o, k := obj.begin(ov)
	if o == nil {
		return C.ERROR_INVALID_PARAMETER
	}
	o.completion = k.completion
	if code := disconnect(int(fd), bool(reuse)); code != C.ERROR_SUCCESS {
		o.end(0, statusOf(code))
		return code
	}
	o.ended(C.ERROR_SUCCESS)
	return C.ERROR_IO_PENDING
}

func disconnect(fd int, reuse bool) C.uint32_t {
	s := C.SOCKET(fd)
	err := unix.Shutdown(fd, unix.SHUT_RDWR) // a duplicate in another process does not keep the connection
	if err == nil && reuse {
		err = renew(fd)
	}
	if err != nil {
		return operationCode(err)
	}
	C.sn_set_ended(s, true, C.bool(!reuse))
	C.sn_set_ended(s, false, C.bool(!reuse))
	C.sn_set_reset(s, false)
	return C.ERROR_SUCCESS
}

// renew makes a descriptor a new socket of its kind, with the address that the program has bound.
func renew(fd int) error {
	var is [3]int
	for i, option := range []int{unix.SO_DOMAIN, unix.SO_TYPE, unix.SO_PROTOCOL} {
		var err error
		if is[i], err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, option); err != nil {
			return err
		}
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	cloexec, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	local, _ := unix.Getsockname(fd)
	made, err := unix.Socket(is[0], is[1]|unix.SOCK_CLOEXEC|flags&unix.O_NONBLOCK, is[2])
	if err != nil {
		return err
	}
	defer unix.Close(made)
	for i := range portsTop.Load() {
		if p := ports[i].Load(); p != nil {
			p.core.Closing(uintptr(fd))
		}
	}
	obj := objectOf(fd)
	if obj != nil && obj.socket != nil {
		obj.replaced(fd)
	}
	if err := unix.Dup3(made, fd, (cloexec&unix.FD_CLOEXEC)*unix.O_CLOEXEC); err != nil {
		return err
	}
	if local != nil { // the address of a connection that was accepted is the listener's
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		unix.Bind(fd, local)
	}
	if obj == nil {
		return nil
	}
	return obj.succeed(fd)
}

// replaced ends the operations of a socket whose descriptor is about to be another socket.
func (obj *object) replaced(fd int) {
	obj.mu.Lock()
	p := obj.port
	obj.mu.Unlock()
	if p == nil {
		p = portless()
	}
	if c, err := obj.socket.SyscallConn(); err == nil && p != nil {
		p.core.Replaced(c, uintptr(fd))
	}
}

// succeed makes the object of the new socket, with the port of the old one.
func (obj *object) succeed(fd int) error {
	objectsMu.Lock()
	defer objectsMu.Unlock()
	delete(objects, fd)
	o, err := makeObjectLocked(fd)
	if err != nil {
		return err
	}
	obj.mu.Lock()
	defer obj.mu.Unlock()
	o.port, o.completion = obj.port, obj.completion
	return nil
}
