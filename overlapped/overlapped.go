// Package overlapped starts operations that complete on a socknotify port (overlapped I/O): receives, sends, connects,
// accepts, and reads and writes of files. Use it to port programs that are written with overlapped operations, to wait for files and
// sockets in one place, and for batches. Small requests need less CPU time with notifications of readiness.
//
// An operation has a key and an [Op], the counterpart of Windows' OVERLAPPED. Its completion is dequeued from the port
// as a notification of [socknotify.KindCompleted], and [Of] returns the Op with the result:
//
//	op := new(overlapped.Op[*client])
//	err := overlapped.Recv(port, c.socket, c, c.buf, op)
//	...
//	n, err := port.Wait(ctx, ready)
//	for i := range ready[:n] {
//		if op := overlapped.Of(&ready[i]); op != nil {
//			received, err := op.Result()
//			...
//		}
//	}
//
// A socket is either registered with the port or has operations, not both at once.
//
// The operations are ordinary system calls, made when the socket is ready.
package overlapped

// The files, in the order in which an operation passes them:
//
//	overlapped.go  an Op, its result, and Cancel
//	request.go     a Request, which names the operation and its buffers, and Process, which starts it
//	buffers.go     buffers for receives, from a pool
//	errors.go      how an operation has ended

import (
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/operation"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// An Op is one operation (OVERLAPPED). Use one for each operation that is to be in flight at once, such as one for
// receiving and one for sending beside a connection's buffers, and use it again and again. The zero value is ready. It
// must not be copied.
//
// From the call that starts an operation until its completion has been dequeued, the Op and the buffer belong to the
// port. Starting an Op that is in flight is ErrInvalid.
type Op[K comparable] struct {
	op    operation.Overlapped // first, so that a pointer to it is one to the whole
	keyed port.Keyed[K]        // the key, where the port finds it
}

// Of returns the operation that a notification is the completion of, or nil. Key and Data of the notification, the
// number of bytes, are those of the operation; Events is 0.
func Of[K comparable](n *socknotify.Notification[K]) *Op[K] {
	if n.Kind() != socknotify.KindCompleted {
		return nil
	}
	return (*Op[K])((*port.Note[K])(unsafe.Pointer(n)).Of)
}

// Result returns the number of bytes transferred, and an error if the operation stopped early. It may be called once
// the completion has been dequeued, until the Op is used again.
//
// The error is io.EOF at the end of a stream or file, and an *[Error] otherwise.
func (o *Op[K]) Result() (n int, err error) { return o.op.N, public(o.op.Err) }

// Addr returns the sender of the datagram that a completed RecvFrom has received.
func (o *Op[K]) Addr() netip.AddrPort { return o.op.Addr }

// Buffer returns what a completed [RecvPooled] has received. The caller owns it until it calls [Buffers.Put]. It is nil
// where nothing was received. It may be called as Result may.
func (o *Op[K]) Buffer() []byte {
	if o.op.Pool == nil {
		return nil
	}
	return o.op.Buf
}

// Recv starts to receive into b (WSARecv). It completes with the first bytes, up to 256 KiB of a stream or one datagram,
// or at the end of the stream with none and io.EOF. If b is empty, it receives nothing, and completes when data, the end of
// the stream or an error is available. That is a way to wait without a buffer.
//
// Receives from one socket are carried out, and complete, in the order in which they were started. An error says that
// nothing was started: it is an *[Error], [socknotify.ErrInvalid] for a bad argument, or [socknotify.ErrClosed].
func Recv[K comparable](p *socknotify.Port[K], s *sock.Socket, key K, b []byte, op *Op[K]) error {
	r := RecvRequest(s, key, b, op)
	return r.start(p)
}

// RecvFrom is Recv of one datagram. Addr of the Op returns its sender.
func RecvFrom[K comparable](p *socknotify.Port[K], s *sock.Socket, key K, b []byte, op *Op[K]) error {
	r := RecvFromRequest(s, key, b, op)
	return r.start(p)
}

// RecvPooled is Recv into a buffer that is taken from a pool when there is something to receive, and not before: any
// number of receives may wait without one. [Op.Buffer] of the completed operation returns what came. A datagram that
// does not fit is truncated.
func RecvPooled[K comparable](p *socknotify.Port[K], s *sock.Socket, key K, pool *Buffers, op *Op[K]) error {
	r := RecvPooledRequest(s, key, pool, op)
	return r.start(p)
}

// Send starts to send b (WSASend). It completes when all of b has been handed to the system, or with the error that
// prevented that and the number of bytes handed over before. Sends on one socket keep their order. The error is that of
// [Recv].
func Send[K comparable](p *socknotify.Port[K], s *sock.Socket, key K, b []byte, op *Op[K]) error {
	r := SendRequest(s, key, b, op)
	return r.start(p)
}

// SendTo is Send of one datagram to an address.
func SendTo[K comparable](p *socknotify.Port[K], s *sock.Socket, key K, b []byte, to netip.AddrPort, op *Op[K]) error {
	r := SendToRequest(s, key, b, to, op)
	return r.start(p)
}

// Connect starts to connect (ConnectEx). Operations that are started on the socket before the connect has completed
// wait for it. The error is that of [Recv].
func Connect[K comparable](p *socknotify.Port[K], s *sock.Socket, key K, to netip.AddrPort, op *Op[K]) error {
	r := ConnectRequest(s, key, to, op)
	return r.start(p)
}

// Accept starts to accept a connection into a closed Socket (AcceptEx), as [sock.Socket.AcceptInto] does. Accepts of one
// listener complete in the order in which they were started. From the start of the operation until its completion has been
// dequeued, into belongs to the port. It is open then if the operation has completed without an error. If the port is
// closed first, the caller must close into, because it may be open.
//
// If the system has run out of descriptors or memory while a connection waits, the operation completes with an error for
// which [sock.IsExhausted] is true, and so would the next one. The error of Accept is that of [Recv].
//
// A listener has either operations or connections that are delivered as notifications, by Accept of the port.
func Accept[K comparable](p *socknotify.Port[K], listener *sock.Socket, key K, into *sock.Socket, op *Op[K]) error {
	r := AcceptRequest(listener, key, into, op)
	return r.start(p)
}

// ReadAt starts to read len(b) bytes of a file at an offset (ReadFile). The result is that of [os.File.ReadAt]: all of
// the bytes, or an error such as io.EOF. One of a few goroutines reads, which exist only while there is work. The error is
// that of [Recv].
func ReadAt[K comparable](p *socknotify.Port[K], f *os.File, key K, b []byte, off int64, op *Op[K]) error {
	return transfer(p, operation.Read, f, key, b, off, op)
}

// WriteAt starts to write b to a file at an offset (WriteFile), as ReadAt reads.
func WriteAt[K comparable](p *socknotify.Port[K], f *os.File, key K, b []byte, off int64, op *Op[K]) error {
	return transfer(p, operation.Write, f, key, b, off, op)
}

// Cancel ends an operation that is in flight on the port (CancelIoEx). Its completion is still dequeued, with
// ErrCanceled, or with its result if that came first; the bytes moved before are counted in both cases. The error is
// ErrNotInFlight if op is not in flight on this port, or [socknotify.ErrClosed].
func Cancel[K comparable](p *socknotify.Port[K], op *Op[K]) error {
	core := port.Of(p)
	if core.Core.Closed.Load() {
		return port.ErrClosed
	}
	if op == nil {
		return port.CallError("Cancel", "a nil Op")
	}
	err := operation.Cancel(core, &op.op)
	runtime.KeepAlive(p)
	return err
}

// transfer starts an operation on a file.
func transfer[K comparable](p *socknotify.Port[K], kind operation.Kind, f *os.File, key K, b []byte, off int64, op *Op[K]) error {
	core := port.Of(p)
	if f == nil && !core.Core.Closed.Load() {
		return port.CallError(kind.Call(), "a nil file")
	}
	if err := operation.Reserve(core, kind, b, untyped(op)); err != nil {
		return err
	}
	op.setKey(key)
	err := operation.StartFile(core, f, off, &op.op)
	if err != nil {
		port.ClearKey[K](op.op.Rec)
	}
	runtime.KeepAlive(p)
	return err
}

// setKey gives its key to an operation that is being started.
func (o *Op[K]) setKey(key K) {
	o.keyed.Key, o.op.Rec = key, &o.keyed.Record
}

func untyped[K comparable](o *Op[K]) *operation.Overlapped {
	if o == nil {
		return nil
	}
	return &o.op
}
