//go:build linux && cgo && !386 && !arm && !mips && !mipsle

package main

/*
#include <netinet/in.h>
#include "sn.h"
*/
import "C"

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/overlapped"
	"github.com/socknotify/socknotify/sock"
)

// An object is what the library knows of a descriptor with overlapped operations: a socket or a
// file. It lasts until sn_closesocket or sn_CloseHandle.
type object struct {
	id     uintptr      // the descriptor, and above 32 bits a number of the object's own: descriptors are used again
	socket *sock.Socket // nil for a file
	file   *os.File
	family int
	// datagrams is set if it receives datagrams, not a stream.
	datagrams bool

	mu sync.Mutex
	// The port that CreateIoCompletionPort has associated, or nil, and the completion key.
	port       *completionPort
	completion uintptr
	listens    atomic.Bool // it was found to be a listener
}

var (
	objectsMu   sync.RWMutex
	objects     = map[int]*object{}
	objectsEver uintptr // how many objects were made; guarded by objectsMu
)

func objectOf(fd int) *object {
	objectsMu.RLock()
	defer objectsMu.RUnlock()
	return objects[fd]
}

// makeObject returns the object of a descriptor, which is made if it is new.
func makeObject(fd int) (*object, error) {
	if o := objectOf(fd); o != nil {
		return o, nil
	}
	objectsMu.Lock()
	defer objectsMu.Unlock()
	return makeObjectLocked(fd)
}

func makeObjectLocked(fd int) (*object, error) {
	if o := objects[fd]; o != nil {
		return o, nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	objectsEver++
	o := &object{id: objectsEver<<32 | uintptr(fd)}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		o.file = os.NewFile(uintptr(fd), "")
	} else {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return nil, err
		}
		if o.family, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil {
			return nil, err
		}
		kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil {
			return nil, err
		}
		o.datagrams = kind != unix.SOCK_STREAM
		if o.socket, err = sock.Adopt(uintptr(fd), sock.MakeNonblocking); err != nil {
			return nil, err
		}
		if flags&unix.O_NONBLOCK == 0 {
			C.sn_set_blocking(C.SOCKET(fd), true)
		}
	}
	objects[fd] = o
	return o, nil
}

// portless returns the port of operations whose socket or file has none. They complete by their
// status and by events, and a goroutine dequeues what the port has. It returns nil if there can be
// no port.
var portless = sync.OnceValue(func() *completionPort {
	p, err := newPort()
	if err != nil {
		return nil
	}
	go func() {
		notes := make([]notification, 64)
		for {
			n, err := p.Process(nil, notes, -1)
			if err != nil {
				return
			}
			for i := range notes[:n] {
				if notes[i].Kind() == socknotify.KindCompleted {
					p.complete(&notes[i])
				} // a post is the end of an AcceptEx, which has settled its OVERLAPPED
			}
			clear(notes[:n])
		}
	}()
	return p
})

// An operation is an OVERLAPPED in flight.
type operation struct {
	op         overlapped.Op[key] // first, so that a pointer to it is one to the whole
	port       *completionPort
	target     *object // what CancelIoEx finds it by
	overlapped *C.OVERLAPPED
	isFile     bool
	// event is hEvent. Its lowest bit says that the completion is not queued.
	event uintptr
	// The result, once the operation has completed.
	bytes  int
	status uintptr
	// pinned is set while inFlight has the operation, and never cleared.
	pinned atomic.Bool
	// attempt is that of the call that has started the operation, until the operation has its result.
	attempt *attempt
	// quiet is set if the call has returned the error: nothing is dequeued.
	quiet bool
	// routine is the sn_routine, or 0. It is called once.
	routine uintptr
	// buffers are those of the program, where they are several; they are received into one, and
	// copied.
	buffers []C.WSABUF
	gather  []byte
	// RecvFrom
	family     int
	from       *C.struct_sockaddr
	fromLength *C.int
	// AcceptEx
	accepts                   bool        // op accepts, or has accepted
	connection                sock.Socket // what op accepts
	completion                uintptr
	connectionFD              int
	buffer                    []byte
	data, localSize, peerSize int
	first                     *firstReceive // nil if no data was asked for
	of                        *operation    // of the accept of a firstReceive, until it has accepted
}

// An attempt is what a call and the operation that it has started agree upon: whether the call
// returns the operation's error, because the operation was over before the call. The one that comes
// second gives the attempt back, as the operation may be used again by then.
type attempt struct {
	over atomic.Uint32 // who came first: attemptCall or attemptOperation
	code C.uint32_t    // set by the operation, if it was first
}

const (
	attemptCall = 1 + iota
	attemptOperation
)

var attempts = sync.Pool{New: func() any { return new(attempt) }}

// failsCall reports whether the call that has started the operation returns the error.
func (o *operation) failsCall(code C.uint32_t) bool {
	a := o.attempt
	if a == nil {
		return false
	}
	o.attempt = nil
	if code == C.ERROR_OPERATION_ABORTED { // by another call
		code = C.ERROR_SUCCESS
	}
	a.code = code
	if a.over.CompareAndSwap(0, attemptOperation) {
		return code != C.ERROR_SUCCESS
	}
	attempts.Put(a)
	return false
}

// result returns what the call returns that has started an operation.
func (a *attempt) result() C.uint32_t {
	if a.over.CompareAndSwap(0, attemptCall) {
		return C.ERROR_IO_PENDING
	}
	code := a.code
	attempts.Put(a)
	if code == C.ERROR_SUCCESS {
		return C.ERROR_IO_PENDING // its completion is queued
	}
	return code
}

var operations = sync.Pool{New: func() any { return new(operation) }}

// inFlight are the operations in flight, by the address of their OVERLAPPED.
var (
	inFlightMu sync.Mutex
	inFlight   = map[*C.OVERLAPPED]*operation{}
)

const pending = 0x103 // STATUS_PENDING

// newOperation returns an operation for an OVERLAPPED, or nil if it is in flight.
func newOperation(p *completionPort, obj *object, ov *C.OVERLAPPED) *operation {
	inFlightMu.Lock()
	defer inFlightMu.Unlock()
	if inFlight[ov] != nil {
		return nil
	}
	o := operations.Get().(*operation)
	o.port, o.target, o.overlapped = p, obj, ov
	inFlight[ov] = o
	o.event = *(*uintptr)(unsafe.Pointer(&ov.hEvent))
	ov.InternalHigh = 0
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&ov.Internal)), pending)
	return o
}

// begin returns a new operation on the object's port, and the key of its completion. It returns nil
// if the OVERLAPPED is in flight, or the object has no port and none can be made.
func (obj *object) begin(ov *C.OVERLAPPED) (*operation, key) {
	obj.mu.Lock()
	p, completion := obj.port, obj.completion
	obj.mu.Unlock()
	if p == nil {
		if p = portless(); p == nil {
			return nil, key{}
		}
	}
	return newOperation(p, obj, ov), key{completion, uintptr(unsafe.Pointer(ov))}
}

// settle gives the OVERLAPPED the result. It belongs to the program afterwards, which may start
// another operation with it before the completion of this one is dequeued. If the port was closed,
// it belongs to the program already, and may be in flight on another port.
func (o *operation) settle(bytes int, status uintptr) {
	o.bytes, o.status = bytes, status
	event := o.event &^ C.SN_TAG_MASK
	inFlightMu.Lock()
	if inFlight[o.overlapped] == o {
		delete(inFlight, o.overlapped)
		o.overlapped.InternalHigh = C.ULONG_PTR(bytes)
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&o.overlapped.Internal)), uint64(status))
	}
	inFlightMu.Unlock()
	// A thread in GetOverlappedResult is counted before it reads the status. So this thread sees
	// the count, or that thread sees the status.
	if atomic.LoadInt32((*int32)(&C.sn_waiting)) != 0 {
		C.sn_completed()
	}
	if event != 0 {
		C.sn_signal(C.uintptr_t(event))
	}
	if o.routine != 0 {
		C.sn_complete_routine(C.uintptr_t(o.routine), C.ULONG_PTR(status), C.DWORD(bytes))
	}
}

// maxGather is the size of the largest buffer that is kept with an operation's memory. It is enough
// for any datagram.
const maxGather = 1 << 17

// recycle keeps the memory of an operation that has ended.
func (o *operation) recycle() {
	o.port, o.target, o.overlapped = nil, nil, nil
	o.from, o.fromLength, o.buffer = nil, nil, nil
	o.first, o.accepts, o.event = nil, false, 0
	o.attempt, o.quiet, o.routine = nil, false, 0
	o.buffers = o.buffers[:0]
	if cap(o.gather) > maxGather {
		o.gather = nil
	}
	if !o.pinned.Load() {
		operations.Put(o)
	}
}

// end ends an operation that has no completion of its own.
func (o *operation) end(bytes int, status uintptr) {
	o.routine = 0
	o.settle(bytes, status)
	o.recycle()
}

// statusOf returns the status of a Windows error.
func statusOf(code C.uint32_t) uintptr {
	if code == C.ERROR_SUCCESS {
		return 0
	}
	return uintptr(C.sn_status_of(C.DWORD(code)))
}

//export snGoAssociate
func snGoAssociate(handle C.uintptr_t, fd C.int, completion C.uintptr_t, result *C.uintptr_t) C.uint32_t {
	var made C.uintptr_t
	if handle == 0 {
		if code := snGoNewPort(&made); code != C.ERROR_SUCCESS {
			return code
		}
		handle = made
	}
	code := associate(uintptr(handle), int(fd), uintptr(completion))
	if code != C.ERROR_SUCCESS && made != 0 {
		snGoClosePort(made)
	}
	*result = handle
	return code
}

func associate(handle uintptr, fd int, completion uintptr) C.uint32_t {
	p := find(handle)
	if p == nil {
		return C.ERROR_INVALID_HANDLE
	}
	o, err := makeObject(fd)
	if err != nil {
		return C.ERROR_INVALID_HANDLE
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hasPortLocked() {
		return C.ERROR_INVALID_PARAMETER
	}
	o.port, o.completion = p, completion
	return C.ERROR_SUCCESS
}

// hasPort reports whether the program has associated an open port.
func (obj *object) hasPort() bool {
	obj.mu.Lock()
	defer obj.mu.Unlock()
	return obj.hasPortLocked()
}

func (obj *object) hasPortLocked() bool {
	return obj.port != nil && find(obj.port.handle) == obj.port
}

// Kinds of transfer, for snGoTransfer.
const (
	recvKind = iota
	recvFromKind
	sendKind
	sendToKind
	readKind
	writeKind
)

// snGoTransfer starts to receive, send, read or write. The result is ERROR_IO_PENDING, or why
// nothing was started. A socket with a port has no routines.
//
//export snGoTransfer
func snGoTransfer(kind, fd C.int, buffers *C.WSABUF, count C.uint32_t, address *C.struct_sockaddr, addressLength *C.int,
	offset C.uint64_t, ov *C.OVERLAPPED, routine C.uintptr_t) C.uint32_t {
	obj, err := makeObject(int(fd))
	if err != nil {
		return operationCode(err)
	}
	if (obj.file != nil) != (kind == readKind || kind == writeKind) && obj.socket == nil {
		return C.ERROR_INVALID_PARAMETER
	}
	if routine != 0 && obj.hasPort() {
		return C.WSAEINVAL
	}
	o, k := obj.begin(ov)
	if o == nil {
		return C.ERROR_INVALID_PARAMETER
	}
	if o.routine = uintptr(routine); routine != 0 {
		o.event = 0 // hEvent is the program's own
	}
	p := o.port
	var b []byte
	if list := unsafe.Slice(buffers, int(count)); kind == recvKind || kind == recvFromKind {
		b = o.recvBuffer(list, obj.datagrams)
	} else {
		b = o.sendBuffer(list)
	}
	o.isFile = obj.file != nil
	var a *attempt
	if !o.isFile {
		a = attempts.Get().(*attempt)
		a.over.Store(0)
		o.attempt = a
	}
	switch {
	case kind == sendToKind:
		to, ok := addrPort(address, int(*addressLength))
		if !ok {
			o.end(0, statusOf(C.WSAEFAULT))
			return C.WSAEFAULT
		}
		err = overlapped.SendTo(p.Port, obj.socket, k, b, to, &o.op)
	case obj.file != nil && kind == writeKind:
		err = overlapped.WriteAt(p.Port, obj.file, k, b, int64(offset), &o.op)
	case obj.file != nil:
		err = overlapped.ReadAt(p.Port, obj.file, k, b, int64(offset), &o.op)
	case kind == sendKind || kind == writeKind:
		err = overlapped.Send(p.Port, obj.socket, k, b, &o.op)
	case kind == recvFromKind:
		o.family, o.from, o.fromLength = obj.family, address, addressLength
		err = overlapped.RecvFrom(p.Port, obj.socket, k, b, &o.op)
	default:
		err = overlapped.Recv(p.Port, obj.socket, k, b, &o.op)
	}
	if err == nil && a != nil {
		return a.result()
	}
	return o.started(err)
}

// started returns the result of a call that has started an operation, or failed to.
func (o *operation) started(err error) C.uint32_t {
	if err != nil {
		code := operationCode(err)
		o.end(0, statusOf(code))
		return code
	}
	return C.ERROR_IO_PENDING
}

func bytesOf(p unsafe.Pointer, n int) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(p), n)
}

// sendBuffer returns the buffer of an operation that sends, or that is for a file. For several
// buffers it is a copy.
func (o *operation) sendBuffer(buffers []C.WSABUF) []byte {
	if len(buffers) == 1 {
		return bytesOf(unsafe.Pointer(buffers[0].buf), int(buffers[0].len))
	}
	o.gather = o.gather[:0]
	for _, b := range buffers {
		o.gather = append(o.gather, bytesOf(unsafe.Pointer(b.buf), int(b.len))...)
	}
	return o.gather
}

// recvBuffer returns the buffer of an operation that receives. For several buffers, and for a
// datagram, it is one from which completed copies. That of a datagram has room for one byte more,
// which shows that the datagram is too long.
func (o *operation) recvBuffer(buffers []C.WSABUF, datagram bool) []byte {
	total := 0
	for _, b := range buffers {
		total += int(b.len)
	}
	if len(buffers) == 1 && (!datagram || total == 0) {
		return bytesOf(unsafe.Pointer(buffers[0].buf), total)
	}
	// The program's array may be gone when the call returns.
	o.buffers = append(o.buffers[:0], buffers...)
	if datagram && total > 0 {
		total++
	}
	o.gather = slices.Grow(o.gather[:0], total)
	return o.gather[:total]
}

// scatter copies what was received into the program's buffers. It returns the number of bytes that
// had room.
func (o *operation) scatter(n int) int {
	rest := o.gather[:n]
	for _, b := range o.buffers {
		rest = rest[copy(bytesOf(unsafe.Pointer(b.buf), int(b.len)), rest):]
	}
	return n - len(rest)
}

// completed is called when an operation of package overlapped has its result, with a lock of the
// port held.
func completed(of unsafe.Pointer) {
	o := (*operation)(of)
	n, err := o.op.Result()
	if o.accepts {
		if o.first == nil {
			o.accepted(err)
			return
		} // it has received the first data
	}
	if err == io.EOF && (n > 0 || !o.isFile) {
		err = nil
	}
	if o.overlapped == nil {
		return // a connect whose data is sent behind it
	}
	long := false
	if err == nil && len(o.buffers) > 0 {
		room := o.scatter(n)
		long, n = room < n, room
	}
	if err == nil && o.from != nil && o.fromLength != nil {
		to := bytesOf(unsafe.Pointer(o.from), int(*o.fromLength))
		*o.fromLength = C.int(putAddress(to, o.family, o.op.Addr()))
	}
	code := C.uint32_t(C.ERROR_SUCCESS)
	if err != nil {
		code = o.failure(err)
	}
	if o.failsCall(code) {
		o.quiet, o.event, o.routine = true, 0, 0
	}
	if long {
		code = C.WSAEMSGSIZE
	}
	o.settle(n, statusOf(code))
}

// failure returns the error of an operation on a socket or a file. A socket that was reset stays so.
func (o *operation) failure(err error) C.uint32_t {
	code := operationCode(err)
	switch fd := C.SOCKET(uint32(o.target.id)); {
	case errors.Is(err, unix.EPIPE):
		code = C.uint32_t(C.sn_broken(fd))
	case code == C.WSAECONNRESET:
		C.sn_set_reset(fd, true)
	}
	return code
}

// complete finishes an operation that was dequeued, and returns its status. It returns false if
// the program does not know of the operation.
func (p *completionPort) complete(nt *notification) (status uintptr, ok bool) {
	o := (*operation)(unsafe.Pointer(overlapped.Of(nt)))
	if o.of != nil {
		o = o.of // it was not accepted, so nothing is received
	}
	if o.overlapped == nil {
		o.recycle()
		return 0, false
	}
	status = o.status
	nt.Data = uintptr(o.bytes)
	queued := o.event&1 == 0 && !o.quiet
	o.recycle()
	return status, queued
}

//export snGoConnect
func snGoConnect(fd C.int, address *C.struct_sockaddr, addressLength C.int, buffer unsafe.Pointer, length C.uint32_t,
	ov *C.OVERLAPPED) C.uint32_t {
	obj, _ := makeObject(int(fd))
	to, ok := addrPort(address, int(addressLength))
	if obj == nil || obj.socket == nil || !ok {
		return C.ERROR_INVALID_PARAMETER
	}
	if is := obj.socket.LocalAddr(); !is.IsValid() || is.Port() == 0 {
		return C.WSAEINVAL // it is not bound
	}
	o, k := obj.begin(ov)
	if o == nil {
		return C.ERROR_INVALID_PARAMETER
	}
	C.sn_set_connected(C.SOCKET(fd))
	p := o.port.Port
	if length == 0 {
		return o.started(overlapped.Connect(p, obj.socket, k, to, &o.op))
	}
	// The data is sent by a second operation, which waits for the connect and has its error. The
	// program sees only that one.
	connect := operations.Get().(*operation)
	if err := overlapped.Connect(p, obj.socket, k, to, &connect.op); err != nil {
		connect.recycle()
		return o.started(err)
	}
	return o.started(overlapped.Send(p, obj.socket, k, bytesOf(buffer, int(length)), &o.op))
}

// snGoCancel cancels an operation on a descriptor, or all of them if ov is nil.
//
//export snGoCancel
func snGoCancel(fd C.int, ov *C.OVERLAPPED) C.uint32_t {
	obj := objectOf(int(fd))
	if obj == nil {
		return C.ERROR_NOT_FOUND
	}
	code := C.uint32_t(C.ERROR_NOT_FOUND)
	for _, o := range pin(obj, ov) {
		if o.first != nil && o.first.cancel(o.port) || overlapped.Cancel(o.port.Port, o.op) == nil {
			code = C.ERROR_SUCCESS
		}
	}
	return code
}

// A pinned operation is not used for another OVERLAPPED.
type pinned struct {
	port  *completionPort
	op    *overlapped.Op[key]
	first *firstReceive
}

// pin returns the operations of a descriptor in flight, or one of them, for a call that may find
// them completed and dequeued.
func pin(obj *object, ov *C.OVERLAPPED) (list []pinned) {
	inFlightMu.Lock()
	defer inFlightMu.Unlock()
	add := func(o *operation) {
		if o != nil && o.target == obj {
			o.pinned.Store(true)
			list = append(list, pinned{o.port, &o.op, o.first})
		}
	}
	if ov != nil {
		add(inFlight[ov])
		return list
	}
	for _, o := range inFlight {
		add(o)
	}
	return list
}

// dropOperations ends what was in flight on a port that is closed. Nothing of it completes.
func dropOperations(p *completionPort) {
	inFlightMu.Lock()
	for at, o := range inFlight {
		if o.port == p {
			delete(inFlight, at)
		}
	}
	inFlightMu.Unlock()
	acceptingMu.Lock()
	defer acceptingMu.Unlock()
	for at, a := range accepting {
		if a.port == p {
			delete(accepting, at)
		}
	}
}

// snGoBlocked re-arms the edges of a socket on backends without edges: a call on it would have
// blocked.
//
//export snGoBlocked
func snGoBlocked(fd C.int, recv C.bool) {
	for i := range portsTop.Load() {
		if p := ports[i].Load(); p != nil {
			p.core.Blocked(uintptr(fd), bool(recv))
		}
	}
}

// snGoClosing ends the registration and the operations of a descriptor that is about to be closed.
// It reports whether it has closed the descriptor.
//
//export snGoClosing
func snGoClosing(fd C.int) C.bool {
	abort(int(fd))
	for i := range portsTop.Load() {
		if p := ports[i].Load(); p != nil {
			p.core.Closing(uintptr(fd))
		}
	}
	objectsMu.Lock()
	obj := objects[int(fd)]
	delete(objects, int(fd))
	objectsMu.Unlock()
	if obj == nil {
		return false
	}
	if obj.file != nil {
		obj.file.Close() // an error, such as a disk's, closes it too
		return true
	}
	obj.socket.Close()
	return true
}

// snGoOperates reports whether a descriptor is a socket with overlapped operations, which never
// blocks by itself.
//
//export snGoOperates
func snGoOperates(fd C.int) C.bool {
	o := objectOf(int(fd))
	return o != nil && o.socket != nil
}

// addrPort converts an address of the internet.
func addrPort(a *C.struct_sockaddr, length int) (to netip.AddrPort, ok bool) {
	if a == nil || length < 2 {
		return to, false
	}
	switch a.sa_family {
	case unix.AF_INET:
		if length < unix.SizeofSockaddrInet4 {
			return to, false
		}
		b := bytesOf(unsafe.Pointer(a), unix.SizeofSockaddrInet4)
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])), true
	case unix.AF_INET6:
		if length < unix.SizeofSockaddrInet6 {
			return to, false
		}
		b := bytesOf(unsafe.Pointer(a), unix.SizeofSockaddrInet6)
		addr := netip.AddrFrom16([16]byte(b[8:24]))
		if scope := binary.NativeEndian.Uint32(b[24:]); scope != 0 {
			if i, err := net.InterfaceByIndex(int(scope)); err == nil {
				addr = addr.WithZone(i.Name)
			}
		}
		return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[2:])), true
	}
	return to, false
}

// putAddress writes an address for a socket of a family, as far as there is room, and returns its
// length.
func putAddress(to []byte, family int, from netip.AddrPort) int {
	if !from.IsValid() {
		return 0
	}
	var b [unix.SizeofSockaddrInet6]byte
	binary.NativeEndian.PutUint16(b[:], uint16(family))
	binary.BigEndian.PutUint16(b[2:], from.Port())
	n := unix.SizeofSockaddrInet4
	if family == unix.AF_INET6 {
		n = unix.SizeofSockaddrInet6
		a := from.Addr().As16()
		copy(b[8:], a[:])
		if i, err := net.InterfaceByName(from.Addr().Zone()); err == nil {
			binary.NativeEndian.PutUint32(b[24:], uint32(i.Index))
		}
	} else {
		a := from.Addr().Unmap().As4()
		copy(b[4:], a[:])
	}
	copy(to, b[:n])
	return n
}
