package socknotify

import (
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

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
	overlapped // first, so that a pointer to it is one to the whole
	key        K
}

// An overlapped is an operation without its key.
type overlapped struct {
	// core is of the port that the operation is in flight on, or nil.
	core atomic.Pointer[core]
	// at is where it waits: a slot's index + 1, atFile or atKernel. It is written under the lock of that place.
	at   atomic.Uint32
	kind opKind
	// begun tells that a connect has been told to the system, or that it has failed at a read or write.
	begun bool
	// canceled tells that the kernel was asked to give it up, and token what that knows it by.
	canceled bool
	token    uint8

	n   int
	err error

	buf   []byte
	next  *overlapped    // of its direction, or of the files' queue
	addr  netip.AddrPort // to connect to or send to, or the sender of what was received
	file  *os.File
	off   int64
	pool  *Buffers          // that buf is from, while there is one; or nil
	letGo func(*overlapped) // clears the key
}

type opKind uint8

const (
	opRecv opKind = iota
	opRecvFrom
	opRecvPooled
	opSend
	opSendTo
	opConnect
	opRead
	opWrite
)

var opNames = [...]string{"recv", "recvfrom", "recv", "send", "sendto", "connect", "read", "write"}

var callNames = [...]string{"Recv", "RecvFrom", "RecvPooled", "Send", "SendTo", "Connect", "ReadAt", "WriteAt"}

func (k opKind) String() string { return opNames[k] }
func (k opKind) call() string   { return callNames[k] }
func (k opKind) sends() bool    { return k == opSend || k == opSendTo || k == opConnect }

// atFile stands for the files' queue.
const atFile = ^uint32(0)

// atKernel stands for the kernel, and is above every slot.
const atKernel = atFile - 1

// Result tells how the operation ended: how many bytes were moved, and why no more, nil if that was all that
// there was to do. It may be called once the completion has been dequeued, until the Overlapped is used again.
//
// The error is io.EOF at the end of a stream or file, and an *[OverlappedError] otherwise.
func (o *Overlapped[K]) Result() (n int, err error) { return o.n, o.err }

// Addr is the sender of the datagram that a completed RecvFrom has received.
func (o *Overlapped[K]) Addr() netip.AddrPort { return o.addr }

// Completed returns the operation that the notification is the completion of, or nil. Key and Data, the
// number of bytes, are the operation's; Events is 0.
func (n Notification[K]) Completed() *Overlapped[K] {
	if n.kind != completion {
		return nil
	}
	return (*Overlapped[K])(n.of)
}

// claim makes the operation one that is in flight on a port. false says that it is in flight already; what
// was in flight on a port that is no more never completes (O10).
func (o *overlapped) claim(c *core) bool {
	was := o.core.Load()
	if was != nil && !was.over() || !o.core.CompareAndSwap(was, c) {
		return false
	}
	if was != nil {
		// The port was closed as it was: on a list that is no more, with others that are not to be carried out.
		o.next = nil
		o.at.Store(0)
	}
	return true
}

// end makes the operation the caller's again.
func (o *overlapped) end() { o.core.Store(nil) }

// over tells that nothing on the port completes any more, and nobody uses a buffer of it.
func (c *core) over() bool { return c.down.Load() && c.jobs.Load() == 0 }

// forget lets go of the arguments.
func (o *overlapped) forget() {
	if o.letGo != nil {
		o.letGo(o)
	}
	o.next, o.file = nil, nil
	if o.pool == nil {
		o.buf = nil
	}
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
	return p.transfer(opRead, f, key, b, off, o)
}

// WriteAt starts to write b to a file, at an offset (WriteFile), as ReadAt reads.
func (p *Port[K]) WriteAt(f *os.File, key K, b []byte, off int64, o *Overlapped[K]) error {
	return p.transfer(opWrite, f, key, b, off, o)
}

// Cancel ends an operation that is in flight (CancelIoEx). Its completion comes all the same, with ErrCanceled,
// or with the result if that was quicker (O8); what was moved before is counted either way. The error is
// ErrNotInFlight where no completion is to come from this port, or ErrClosed.
func (p *Port[K]) Cancel(o *Overlapped[K]) error {
	if p.core.closed.Load() {
		return ErrClosed
	}
	if o == nil {
		return callError("Cancel", "a nil Overlapped")
	}
	err := p.cancel(&o.overlapped)
	runtime.KeepAlive(p)
	return err
}

// transfer begins an operation on a file.
func (p *Port[K]) transfer(kind opKind, f *os.File, key K, b []byte, off int64, o *Overlapped[K]) error {
	if f == nil && !p.core.closed.Load() {
		return callError(kind.call(), "a nil file")
	}
	if err := p.claim(kind, b, untyped(o)); err != nil {
		return err
	}
	p.hand(key, o)
	return p.startFile(f, off, &o.overlapped)
}

// startOp begins an operation on a socket.
func (p *Port[K]) startOp(op *Operation[K]) error {
	w := p.begin()
	if w == nil {
		return ErrClosed
	}
	queued := false
	err := p.claimOp(op)
	if err == nil {
		queued, err = p.admit(w, op.socket, &op.o.overlapped, false)
	}
	p.end(w)
	if queued {
		p.parking.wakeOne(p.core, nil)
	}
	runtime.KeepAlive(p)
	return err
}

// claimOp makes an operation on a socket one that is being started, unless an argument makes no sense.
func (p *Port[K]) claimOp(op *Operation[K]) error {
	switch {
	case op.socket == nil:
		return callError(op.kind.call(), "a nil socket")
	case op.kind == opRecvPooled && (op.pool == nil || op.pool.size < 1):
		return callError(op.kind.call(), "no pool of buffers, or one of buffers without room")
	}
	if err := p.claim(op.kind, op.buf, untyped(op.o)); err != nil {
		return err
	}
	p.hand(op.key, op.o)
	op.o.addr, op.o.pool = op.addr, op.pool
	return nil
}

// hand gives an operation that has been claimed its key.
func (p *Port[K]) hand(key K, o *Overlapped[K]) { o.key, o.letGo = key, p.letGo }

func untyped[K comparable](o *Overlapped[K]) *overlapped {
	if o == nil {
		return nil
	}
	return &o.overlapped
}

func letGo[K comparable](o *overlapped) {
	var none K
	(*Overlapped[K])(unsafe.Pointer(o)).key = none
}
