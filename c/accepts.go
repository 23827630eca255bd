//go:build linux && cgo && !386 && !arm && !mips && !mipsle

package main

/*
#include "sn.h"
*/
import "C"

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// accepting are the calls of AcceptEx in flight, by the sockets that will be connections. A call is
// removed when its socket is the connection and receives the first data. closesocket first ends the
// call that has its socket, so that a connection does not take the place of what has the number
// next.
var (
	acceptingMu sync.Mutex
	accepting   = map[int]acceptance{}
)

// An acceptance is a call of AcceptEx with what it has from its start. When the operation receives,
// another thread may dequeue and recycle it.
type acceptance struct {
	o     *operation
	port  *completionPort
	first *firstReceive // nil if no data was asked for
}

// A firstReceive is the part of an AcceptEx that asks for first data. The connection is accepted by
// an operation of its own, so that the other can receive. The program knows only of the other. The
// first is dequeued as the other if it has failed.
type firstReceive struct {
	accept   operation
	accepted atomic.Bool

	mu                sync.Mutex // is not taken with a lock of the port held
	started, canceled bool       // the other operation was started; it must not be
}

// A spare is a descriptor of a port that is given up while a connection is accepted, if the process has
// used up all others: the accept needs one more than on Windows, where the connection's socket exists
// already. Another thread may take the number while it is free; then the accept fails.
type spare struct {
	mu     sync.Mutex // is taken with locks of the port held
	fd     int
	kept   atomic.Bool // fd is the descriptor
	closed bool
}

// keep opens the descriptor unless there is one.
func (s *spare) keep() {
	if s.kept.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open()
}

func (s *spare) open() {
	if s.closed || s.kept.Load() {
		return
	}
	if fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC); err == nil {
		s.fd = fd
		s.kept.Store(true)
	}
}

// release closes the descriptor if there is one.
func (s *spare) release() {
	if s.kept.Swap(false) {
		unix.Close(s.fd)
	}
}

// close is called when the port is closed.
func (s *spare) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.release()
}

// accept makes an accept again for which there was no descriptor. The program's socket becomes the
// connection here, so that the descriptor is free again.
func (s *spare) accept(of unsafe.Pointer, again func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.open()
	s.release()
	err := again()
	if err == nil {
		o := (*operation)(of)
		err = o.program().become(&o.connection)
	}
	return err
}

// program returns the operation that the program knows of.
func (o *operation) program() *operation {
	if o.of != nil {
		return o.of
	}
	return o
}

// await notes the socket that an AcceptEx will make a connection. It returns false if another call
// waits with the socket.
func (o *operation) await(connection int, buffer []byte) bool {
	acceptingMu.Lock()
	first := accepting[connection].first
	acceptingMu.Unlock()
	if first != nil {
		first.wait() // the program may have dequeued its completion already
	}
	acceptingMu.Lock()
	defer acceptingMu.Unlock()
	if accepting[connection].o != nil {
		return false
	}
	o.connectionFD, o.buffer = connection, buffer
	accepting[connection] = acceptance{o, o.port, o.first}
	return true
}

// forget removes an AcceptEx from accepting.
func (o *operation) forget() {
	acceptingMu.Lock()
	defer acceptingMu.Unlock()
	if accepting[o.connectionFD].o == o {
		delete(accepting, o.connectionFD)
	}
}

// abort ends the AcceptEx that would make a socket a connection, because the socket is being
// closed.
func abort(connection int) {
	acceptingMu.Lock()
	a := accepting[connection]
	if a.o == nil {
		acceptingMu.Unlock()
		return
	}
	a.o.pinned.Store(true) // without first data, it is recycled only after forget
	acceptingMu.Unlock()
	// If the operation has completed by now, the socket is the connection. If the receive has
	// started, closing the socket ends it.
	if a.first != nil {
		a.first.cancel(a.port)
	} else {
		overlapped.Cancel(a.port.Port, &a.o.op)
	}
}

//export snGoAccept
func snGoAccept(listener, connection C.int, buffer unsafe.Pointer, data, local, peer C.uint32_t,
	ov *C.OVERLAPPED) C.uint32_t {
	obj, _ := makeObject(int(listener))
	if obj == nil || obj.socket == nil {
		return C.ERROR_INVALID_PARAMETER
	}
	if _, err := unix.GetsockoptInt(int(connection), unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		return C.WSAENOTSOCK
	}
	if !obj.listens.Load() {
		v, err := unix.GetsockoptInt(int(listener), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if err != nil || v == 0 {
			return C.WSAEINVAL
		}
		obj.listens.Store(true)
	}
	o, k := obj.begin(ov)
	if o == nil {
		return C.ERROR_INVALID_PARAMETER
	}
	o.accepts, o.completion = true, k.completion
	o.data, o.localSize, o.peerSize = int(data), int(local), int(peer)
	into := o
	if data > 0 {
		first := new(firstReceive)
		into = &first.accept
		into.accepts, into.of = true, o
		into.pinned.Store(true) // it is not for the pool
		o.pinned.Store(true)    // receiveFirst uses it after the start of the receive
		inFlightMu.Lock()       // for pin
		o.first = first
		inFlightMu.Unlock()
	}
	if !o.await(int(connection), bytesOf(buffer, int(data+local+peer))) {
		o.end(0, statusOf(C.WSAEINVAL))
		return C.WSAEINVAL
	}
	o.port.spare.keep()
	err := overlapped.Accept(o.port.Port, obj.socket, k, &into.connection, &into.op)
	if err != nil {
		o.forget()
	}
	return o.started(err)
}

// accepted is completed for an operation that has accepted a connection, or failed to.
func (o *operation) accepted(err error) {
	program := o.program()
	if err == nil && o.connection.Handle() != port.NoSocket {
		err = program.become(&o.connection)
	}
	if err == nil && o.of != nil {
		o.of = nil
		program.first.accepted.Store(true)
		go program.receiveFirst()
		return
	}
	program.forget()
	code := C.uint32_t(C.ERROR_SUCCESS)
	if err != nil {
		code = operationCode(err)
	}
	program.settle(0, statusOf(code))
}

// become makes the program's socket the connection.
func (o *operation) become(s *sock.Socket) error {
	defer s.Close()
	fd := o.connectionFD
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	cloexec, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err := unix.Dup3(int(s.Handle()), fd, (cloexec&unix.FD_CLOEXEC)*unix.O_CLOEXEC); err != nil {
		return err
	}
	C.sn_set_connected(C.SOCKET(fd))
	if flags&unix.O_NONBLOCK == 0 && objectOf(fd) == nil {
		if err := unix.SetNonblock(fd, false); err != nil {
			return err
		}
	}
	o.putAddresses(fd)
	return nil
}

// receiveFirst receives the first data of a connection. It is a goroutine of its own, because the
// connection is accepted with a lock of the port held.
func (o *operation) receiveFirst() {
	f := o.first
	f.mu.Lock()
	defer f.mu.Unlock()
	defer o.forget()
	code := C.uint32_t(C.ERROR_OPERATION_ABORTED)
	if !f.canceled {
		c, err := makeObject(o.connectionFD)
		if err == nil {
			k := key{o.completion, uintptr(unsafe.Pointer(o.overlapped))}
			err = overlapped.Recv(o.port.Port, c.socket, k, o.buffer[:o.data], &o.op)
		}
		if err == nil {
			f.started = true
			return
		}
		code = operationCode(err)
	}
	o.forget() // before the program can use the number of the socket again
	o.ended(code)
}

// wait returns when receiveFirst, if it is at work, has removed the AcceptEx from accepting.
func (f *firstReceive) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
}

// cancel cancels the accept, or the start of the receive. It returns false if the receive has
// started.
func (f *firstReceive) cancel(p *completionPort) bool {
	if err := overlapped.Cancel(p.Port, &f.accept.op); !f.accepted.Load() {
		return err == nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.started || f.canceled
	f.canceled = true
	return !was
}

// ownPost marks the number of a post of the library itself, for the end of an AcceptEx. The error
// is above the 32 bits for bytes. A program's posts have only those.
const ownPost = 1 << 63

// ended ends an AcceptEx that has no operation in flight, and posts its completion unless hEvent
// says that it is not queued.
func (o *operation) ended(code C.uint32_t) {
	p, k := o.port, key{o.completion, uintptr(unsafe.Pointer(o.overlapped))}
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
