package socknotify

import (
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// An Overlapped is one operation that completes on a port (OVERLAPPED): a receive, a send, a connect, or a
// read or write of a file. The caller has one for each operation that is to be in flight at once, such as one
// for receiving and one for sending beside a connection's buffers, and uses it again and again. The zero value
// is ready. It must not be copied.
//
// From the call that starts an operation until its completion was dequeued, the Overlapped and the buffer are
// the port's (O2). Starting it again meanwhile is ErrInvalid.
type Overlapped[K comparable] struct {
	op  port.Overlapped // first, so that a pointer to it is one to the whole
	key K
}

// Result tells how the operation ended: how many bytes were moved, and why no more, nil if that was all that
// there was to do. It may be called once the completion has been dequeued, until the Overlapped is used again.
//
// The error is io.EOF at the end of a stream or file, and an *[OverlappedError] otherwise.
func (o *Overlapped[K]) Result() (n int, err error) { return o.op.N, operationResult(o.op.Err) }

// Addr is the sender of the datagram that a completed RecvFrom has received.
func (o *Overlapped[K]) Addr() netip.AddrPort { return o.op.Addr }

// Completed returns the operation that the notification is the completion of, or nil. Key and Data, the
// number of bytes, are the operation's; Events is 0.
func (n Notification[K]) Completed() *Overlapped[K] {
	if n.kind != port.Completion {
		return nil
	}
	return (*Overlapped[K])(n.of)
}

// Recv starts to receive into b (WSARecv). The completion comes with the first bytes, up to 256 KiB of a
// stream or one datagram; at the end of a stream with none and io.EOF. Without room in b it comes as soon as
// there is something to receive, be it the end or an error, and nothing is received: a receive that waits
// so needs no buffer (O4).
//
// Receives from one socket are carried out, and complete, in the order in which they were started (O3). An
// error says that nothing was started (O1): an *[OverlappedError], ErrInvalid for an argument that makes no
// sense, or ErrClosed.
func (p *Port[K]) Recv(s *sock.Socket, key K, b []byte, o *Overlapped[K]) error {
	op := RecvOp(s, key, b, o)
	return p.startOp(&op)
}

// RecvFrom is Recv of one datagram, whose sender Addr of the Overlapped tells.
func (p *Port[K]) RecvFrom(s *sock.Socket, key K, b []byte, o *Overlapped[K]) error {
	op := RecvFromOp(s, key, b, o)
	return p.startOp(&op)
}

// Send starts to send b (WSASend). The completion comes when all of it has been handed to the system, or with
// the error that prevented that and how much was handed over before (O5). Sends on one socket keep their order,
// as receives do. The error is that of [Port.Recv].
func (p *Port[K]) Send(s *sock.Socket, key K, b []byte, o *Overlapped[K]) error {
	op := SendOp(s, key, b, o)
	return p.startOp(&op)
}

// SendTo is Send of one datagram to an address.
func (p *Port[K]) SendTo(s *sock.Socket, key K, b []byte, to netip.AddrPort, o *Overlapped[K]) error {
	op := SendToOp(s, key, b, to, o)
	return p.startOp(&op)
}

// Connect starts to connect (ConnectEx). The completion tells how that went (O6). What is started while a
// connect is in flight waits for it. The error is that of [Port.Recv].
func (p *Port[K]) Connect(s *sock.Socket, key K, to netip.AddrPort, o *Overlapped[K]) error {
	op := ConnectOp(s, key, to, o)
	return p.startOp(&op)
}

// ReadAt starts to read len(b) bytes of a file, from an offset (ReadFile). The completion has what
// [os.File.ReadAt] returned: all of them, or an error, such as io.EOF (O7). Where the system cannot read
// beside the program, one of a few goroutines does, which exist only while there is work; where it can, as on
// a port made with [WithRing], what is in memory already is read before ReadAt returns, up to 64 KiB. The error is that of
// [Port.Recv].
func (p *Port[K]) ReadAt(f *os.File, key K, b []byte, off int64, o *Overlapped[K]) error {
	return p.transfer(port.OpRead, f, key, b, off, o)
}

// WriteAt starts to write b to a file, at an offset (WriteFile), as ReadAt reads.
func (p *Port[K]) WriteAt(f *os.File, key K, b []byte, off int64, o *Overlapped[K]) error {
	return p.transfer(port.OpWrite, f, key, b, off, o)
}

// Cancel ends an operation that is in flight (CancelIoEx). Its completion comes all the same, with ErrCanceled,
// or with the result if that was quicker (O8); what was moved before is counted either way. The error is
// ErrNotInFlight where no completion is to come from this port, or ErrClosed.
func (p *Port[K]) Cancel(o *Overlapped[K]) error {
	if p.port.Core.Closed.Load() {
		return ErrClosed
	}
	if o == nil {
		return port.CallError("Cancel", "a nil Overlapped")
	}
	err := p.port.Cancel(&o.op)
	runtime.KeepAlive(p)
	return err
}

// transfer begins an operation on a file.
func (p *Port[K]) transfer(kind port.OpKind, f *os.File, key K, b []byte, off int64, o *Overlapped[K]) error {
	if f == nil && !p.port.Core.Closed.Load() {
		return port.CallError(kind.Call(), "a nil file")
	}
	if err := p.port.Claim(kind, b, untyped(o)); err != nil {
		return err
	}
	p.hand(key, o)
	return p.port.StartFile(f, off, &o.op)
}

// startOp begins an operation on a socket.
func (p *Port[K]) startOp(op *Operation[K]) error {
	w := p.port.Begin()
	if w == nil {
		return ErrClosed
	}
	queued := false
	err := p.claimOp(op)
	if err == nil {
		queued, err = p.port.Admit(w, op.socket, &op.o.op, false)
	}
	p.port.End(w)
	if queued {
		p.port.Parking.WakeOne(p.port.Core, nil)
	}
	runtime.KeepAlive(p)
	return operationResult(err)
}

// claimOp makes an operation on a socket one that is being started, unless an argument makes no sense.
func (p *Port[K]) claimOp(op *Operation[K]) error {
	switch {
	case op.socket == nil:
		return port.CallError(op.kind.Call(), "a nil socket")
	case op.kind == port.OpRecvPooled && (op.pool == nil || op.pool.pool.Size < 1):
		return port.CallError(op.kind.Call(), "no pool of buffers, or one of buffers without room")
	}
	if err := p.port.Claim(op.kind, op.buf, untyped(op.o)); err != nil {
		return err
	}
	p.hand(op.key, op.o)
	op.o.op.Addr, op.o.op.Pool = op.addr, nil
	if op.pool != nil {
		op.o.op.Pool = &op.pool.pool
	}
	return nil
}

// hand gives an operation that has been claimed its key.
func (p *Port[K]) hand(key K, o *Overlapped[K]) { o.key, o.op.LetGo = key, p.keys.letGo }

func untyped[K comparable](o *Overlapped[K]) *port.Overlapped {
	if o == nil {
		return nil
	}
	return &o.op
}

func letGo[K comparable](o *port.Overlapped) {
	var none K
	(*Overlapped[K])(unsafe.Pointer(o)).key = none
}
