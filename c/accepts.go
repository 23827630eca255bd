//go:build linux && cgo && !386 && !arm && !mips && !mipsle

package main

/*
#include "sn.h"
*/
import "C"

import (
	"encoding/binary"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// accepting are the sockets that will be connections, for the calls of AcceptEx in their listeners'
// accepts. closesocket removes its socket, so that a connection does not take the place of what has
// the number next. The mutex is held while a socket becomes a connection.
var (
	acceptingMu sync.Mutex
	accepting   = map[int]acceptance{}
)

// An acceptance is a call of AcceptEx, and its listener.
type acceptance struct {
	o        *operation
	listener *object
}

// await notes the socket that an AcceptEx will make a connection. It returns false if another call
// waits with the socket.
func (o *operation) await(connection int, buffer []byte) bool {
	acceptingMu.Lock()
	defer acceptingMu.Unlock()
	if accepting[connection].o != nil {
		return false
	}
	o.connectionFD, o.buffer = connection, buffer
	accepting[connection] = acceptance{o, o.target}
	return true
}

// abort ends the AcceptEx that would make a socket a connection, because the socket is being
// closed.
func abort(connection int) {
	acceptingMu.Lock()
	a := accepting[connection]
	delete(accepting, connection)
	acceptingMu.Unlock()
	if a.o == nil {
		return
	}
	obj := a.listener
	obj.mu.Lock()
	defer obj.mu.Unlock()
	at := slices.Index(obj.accepts, a.o)
	if at < 0 || a.o.connectionFD != connection {
		return // it has ended already
	}
	obj.accepts = slices.Delete(obj.accepts, at, at+1)
	a.o.ended(obj.completion, C.ERROR_OPERATION_ABORTED)
	obj.listen()
}

// forget removes an AcceptEx from accepting. It returns true.
func (o *operation) forget() bool {
	acceptingMu.Lock()
	defer acceptingMu.Unlock()
	if accepting[o.connectionFD].o == o {
		delete(accepting, o.connectionFD)
	}
	return true
}

//export snGoAccept
func snGoAccept(listener, connection C.int, buffer unsafe.Pointer, data, local, peer C.uint32_t,
	ov *C.OVERLAPPED) C.uint32_t {
	obj := objectOf(int(listener))
	if obj == nil {
		obj, _ = makeObject(int(listener))
	}
	if obj == nil || obj.socket == nil {
		return C.ERROR_INVALID_PARAMETER
	}
	if _, err := unix.GetsockoptInt(int(connection), unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		return C.WSAENOTSOCK
	}
	obj.mu.Lock()
	defer obj.mu.Unlock()
	p := obj.port
	if p == nil {
		p = portless()
	}
	if p == nil {
		return C.ERROR_NO_SYSTEM_RESOURCES
	}
	if !obj.listens {
		v, err := unix.GetsockoptInt(int(listener), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if obj.listens = err == nil && v != 0; !obj.listens {
			return C.WSAEINVAL
		}
	}
	o := newOperation(p, obj, ov)
	if o == nil {
		return C.ERROR_INVALID_PARAMETER
	}
	obj.acceptsOn = p
	o.data, o.localSize, o.peerSize = int(data), int(local), int(peer)
	if !o.await(int(connection), bytesOf(buffer, int(data+local+peer))) {
		o.end(0, statusOf(C.WSAEINVAL))
		return C.WSAEINVAL
	}
	obj.accepts = append(obj.accepts, o)
	if len(obj.spare) > 0 {
		s := obj.spare[0]
		obj.spare = obj.spare[1:]
		obj.give(s)
		return C.ERROR_IO_PENDING
	}
	if err := obj.listen(); err != nil {
		obj.accepts = obj.accepts[:len(obj.accepts)-1]
		o.forget()
		return o.started(err)
	}
	return C.ERROR_IO_PENDING
}

// listen makes the port accept as many connections as there are calls of AcceptEx. The object is
// locked.
func (obj *object) listen() error {
	p := obj.acceptsOn
	if len(obj.accepts) > 0 {
		return p.Accept(obj.socket, key{obj.completion, obj.id}, len(obj.accepts))
	}
	p.Process([]registration{{Conn: obj.socket, Op: socknotify.OpDisable}}, nil, 0)
	return nil
}

// accepted gives a connection to the oldest AcceptEx.
func (p *completionPort) accepted(nt *notification) {
	s, err := nt.Accepted()
	obj := objectOf(int(uint32(nt.Key.overlapped)))
	if obj == nil || obj.id != nt.Key.overlapped {
		// The listener was closed after this was dequeued.
		if s != nil {
			s.Close()
		}
		return
	}
	obj.mu.Lock()
	defer obj.mu.Unlock()
	switch {
	case s != nil && obj.closed:
		s.Close()
		return
	case s != nil:
		obj.give(s)
	case len(obj.accepts) > 0:
		obj.accepts[0].ended(obj.completion, operationCode(err))
		obj.accepts = obj.accepts[1:]
	}
	obj.listen()
}

// give gives a connection to the oldest AcceptEx whose socket is open, or keeps it for the next
// call. The listener is locked.
func (obj *object) give(s *sock.Socket) {
	for len(obj.accepts) > 0 {
		o := obj.accepts[0]
		obj.accepts = obj.accepts[1:]
		if o.take(s, obj.completion) {
			return
		}
		o.ended(obj.completion, C.ERROR_OPERATION_ABORTED)
	}
	obj.spare = append(obj.spare, s)
}

// take makes the program's socket the connection, and receives the first data if the program has
// asked for it. It returns false if the program has closed its socket. The listener is locked.
func (o *operation) take(s *sock.Socket, completion uintptr) bool {
	var c *object
	acceptingMu.Lock()
	open := accepting[o.connectionFD].o == o
	var err error
	if open {
		delete(accepting, o.connectionFD)
		c, err = o.become(s)
	}
	acceptingMu.Unlock()
	if !open {
		return false
	}
	if err == nil && c != nil {
		k := key{completion, uintptr(unsafe.Pointer(o.overlapped))}
		if err = overlapped.Recv(o.port.Port, c.socket, k, o.buffer[:o.data], &o.op); err == nil {
			return true
		}
	}
	code := C.uint32_t(C.ERROR_SUCCESS)
	if err != nil {
		code = operationCode(err)
	}
	o.ended(completion, code)
	return true
}

// become makes the program's socket the connection. It returns the object of the socket if there is
// data to be received.
func (o *operation) become(s *sock.Socket) (*object, error) {
	defer s.Close()
	fd := o.connectionFD
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, err
	}
	cloexec, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err := unix.Dup3(int(s.Handle()), fd, (cloexec&unix.FD_CLOEXEC)*unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	if flags&unix.O_NONBLOCK == 0 && objectOf(fd) == nil {
		if err := unix.SetNonblock(fd, false); err != nil {
			return nil, err
		}
	}
	o.putAddresses(fd)
	if o.data == 0 {
		return nil, nil
	}
	return makeObject(fd)
}

// ownPost marks the number of a post of the library itself, for the end of an AcceptEx. The error
// is above the 32 bits for bytes. A program's posts have only those.
const ownPost = 1 << 63

// ended ends an AcceptEx that was removed from its listener's accepts, and posts its completion
// unless hEvent says that it is not queued.
func (o *operation) ended(completion uintptr, code C.uint32_t) {
	o.forget()
	p, k := o.port, key{completion, uintptr(unsafe.Pointer(o.overlapped))}
	queued := o.event&1 == 0
	o.end(0, statusOf(code))
	if queued {
		p.Post(k, ownPost|uintptr(code)<<32)
	}
}

// posted returns the status of an AcceptEx whose end was posted.
func posted(nt *notification) uintptr {
	code := C.uint32_t(nt.Data &^ ownPost >> 32)
	nt.Data = 0
	return statusOf(code)
}

// putAddresses writes the addresses of a connection behind the data. The last 4 bytes of each are
// its length.
func (o *operation) putAddresses(fd int) {
	at := o.data
	for i, size := range []int{o.localSize, o.peerSize} {
		b := o.buffer[at : at+size]
		at += size
		length := uint32(size - 4)
		call := uintptr(unix.SYS_GETSOCKNAME)
		if i == 1 {
			call = unix.SYS_GETPEERNAME
		}
		_, _, e := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&b[0])),
			uintptr(unsafe.Pointer(&length)))
		if e != 0 {
			length = 0
		}
		binary.NativeEndian.PutUint32(b[size-4:], min(length, uint32(size-4)))
	}
}
