//go:build linux && cgo

package main

/*
#include "sn.h"
*/
import "C"

func dropOperations(*completionPort) {}

func (p *completionPort) complete(nt *notification) (uintptr, bool) { return 0, true }

//export snGoAssociate
func snGoAssociate(handle C.uintptr_t, fd C.int, completion C.uintptr_t, made *C.uintptr_t) C.uint32_t {
	return C.ERROR_INVALID_PARAMETER
}

// snGoBlocked re-arms the edges of a socket on backends without edges: a call on it would have blocked.
//
//export snGoBlocked
func snGoBlocked(fd C.int, recv C.bool) {
	for i := range portsTop.Load() {
		if p := ports[i].Load(); p != nil {
			p.core.Blocked(uintptr(fd), bool(recv))
		}
	}
}

// snGoClosing ends the registration of a socket that is about to be closed. It reports whether it has closed the socket.
//
//export snGoClosing
func snGoClosing(fd C.int) C.bool {
	for i := range portsTop.Load() {
		if p := ports[i].Load(); p != nil {
			p.core.Closing(uintptr(fd))
		}
	}
	return false
}

//export snGoOperates
func snGoOperates(fd C.int) C.bool { return false }
