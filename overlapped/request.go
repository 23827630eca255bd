package overlapped

import (
	"context"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/kernel/operation"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// A Request is one entry of a [Process] call: an operation on a socket that is to be started. An entry may be used
// again once the completion of its Op has been dequeued.
type Request[K comparable] struct {
	// Result is nil if the operation was started. Otherwise it is the error that the function of the same name, such as
	// Recv, would have returned; then nothing completes. Process overwrites it and never reads it.
	Result error

	kind   operation.Kind
	socket *sock.Socket
	key    K
	buf    []byte
	addr   netip.AddrPort
	pool   *Buffers
	into   *sock.Socket
	op     *Op[K]
}

// RecvRequest returns the operation that [Recv] starts.
func RecvRequest[K comparable](s *sock.Socket, key K, b []byte, op *Op[K]) Request[K] {
	return Request[K]{kind: operation.Recv, socket: s, key: key, buf: b, op: op}
}

// RecvFromRequest returns the operation that [RecvFrom] starts.
func RecvFromRequest[K comparable](s *sock.Socket, key K, b []byte, op *Op[K]) Request[K] {
	return Request[K]{kind: operation.RecvFrom, socket: s, key: key, buf: b, op: op}
}

// RecvPooledRequest returns the operation that [RecvPooled] starts.
func RecvPooledRequest[K comparable](s *sock.Socket, key K, pool *Buffers, op *Op[K]) Request[K] {
	return Request[K]{kind: operation.RecvPooled, socket: s, key: key, pool: pool, op: op}
}

// SendRequest returns the operation that [Send] starts.
func SendRequest[K comparable](s *sock.Socket, key K, b []byte, op *Op[K]) Request[K] {
	return Request[K]{kind: operation.Send, socket: s, key: key, buf: b, op: op}
}

// SendToRequest returns the operation that [SendTo] starts.
func SendToRequest[K comparable](s *sock.Socket, key K, b []byte, to netip.AddrPort, op *Op[K]) Request[K] {
	return Request[K]{kind: operation.SendTo, socket: s, key: key, buf: b, addr: to, op: op}
}

// ConnectRequest returns the operation that [Connect] starts.
func ConnectRequest[K comparable](s *sock.Socket, key K, to netip.AddrPort, op *Op[K]) Request[K] {
	return Request[K]{kind: operation.Connect, socket: s, key: key, addr: to, op: op}
}

// AcceptRequest returns the operation that [Accept] starts.
func AcceptRequest[K comparable](listener *sock.Socket, key K, into *sock.Socket, op *Op[K]) Request[K] {
	return Request[K]{kind: operation.Accept, socket: listener, key: key, into: into, op: op}
}

// Process starts operations in order, and then dequeues as [socknotify.Port.Process] does, with the same timeouts and
// errors. Every operation is started, unless the call fails as a whole, and the Result of each says whether it was.
// Operations are carried out whether or not anything is dequeued. While no call waits on the port, a goroutine of the
// port does it, after a tenth of a second.
//
// It is for loops that serve many sockets. A loop handles the completions that one call returns, and starts the operations
// that follow from them with the next call. The port keeps no reference to either slice.
func Process[K comparable](p *socknotify.Port[K], requests []Request[K], entries []socknotify.Notification[K], timeout time.Duration) (int, error) {
	core := port.Of(p)
	if len(entries) == 0 && timeout != 0 {
		if core.Core.Closed.Load() {
			return 0, port.ErrClosed
		}
		return 0, port.CallError("Process", "a timeout without entries")
	}
	n, err := process(core, context.Background(), requests, entries, timeout)
	runtime.KeepAlive(p)
	return n, err
}

// ProcessContext is Process that waits until the context is done, and then returns the context's cause; operations stay
// started. A context that is done already dequeues nothing. A nil context is ErrInvalid. Without entries it only starts.
func ProcessContext[K comparable](ctx context.Context, p *socknotify.Port[K], requests []Request[K], entries []socknotify.Notification[K]) (int, error) {
	core := port.Of(p)
	if ctx == nil {
		if core.Core.Closed.Load() {
			return 0, port.ErrClosed
		}
		return 0, port.CallError("ProcessContext", "a nil context")
	}
	timeout := time.Duration(-1)
	if len(entries) == 0 {
		timeout = 0
	}
	n, err := process(core, ctx, requests, entries, timeout)
	runtime.KeepAlive(p)
	return n, err
}

func process[K comparable](p *port.Port, ctx context.Context, requests []Request[K], out []socknotify.Notification[K], timeout time.Duration) (int, error) {
	w := p.Begin()
	if w == nil {
		return 0, port.ErrClosed
	}
	for i := range requests {
		r := &requests[i]
		if r.Result = r.prepare(p); r.Result == nil {
			_, err := r.admit(p, w)
			r.Result = public(err)
		}
	}
	n, err := p.DequeueIn(w, ctx, port.EntriesOf(unsafe.Pointer(unsafe.SliceData(out)), len(out)), timeout)
	p.End(w)
	port.Traced(ctx, n, len(out))
	return n, err
}

// start starts an operation by itself.
func (r *Request[K]) start(on *socknotify.Port[K]) error {
	p := port.Of(on)
	w := p.Begin()
	if w == nil {
		return port.ErrClosed
	}
	queued := false
	err := r.prepare(p)
	if err == nil {
		queued, err = r.admit(p, w)
	}
	p.End(w)
	if queued {
		p.Waiters.WakeOne(nil)
	}
	runtime.KeepAlive(on)
	return public(err)
}

// admit starts an operation that is prepared. queued reports that completions were queued.
func (r *Request[K]) admit(p *port.Port, w *port.Call) (queued bool, err error) {
	if queued, err = operation.Start(p, w, r.socket, &r.op.op); err != nil {
		port.ClearKey[K](r.op.op.Rec)
	}
	return queued, err
}

// prepare reserves the Op and sets its arguments. It returns an error for an argument that is invalid.
func (r *Request[K]) prepare(p *port.Port) error {
	switch {
	case r.socket == nil:
		return port.CallError(r.kind.Call(), "a nil socket")
	case r.kind == operation.RecvPooled && (r.pool == nil || r.pool.pool.Size < 1):
		return port.CallError(r.kind.Call(), "no pool of buffers, or one whose buffers have no room")
	case r.kind == operation.Accept && r.into == nil:
		return port.CallError(r.kind.Call(), "a nil Socket to accept into")
	case r.kind == operation.Accept && r.into.Handle() != port.NoSocket:
		return port.CallError(r.kind.Call(), "the Socket to accept into is open")
	}
	if err := operation.Reserve(p, r.kind, r.buf, untyped(r.op)); err != nil {
		return err
	}
	r.op.setKey(r.key)
	r.op.op.Addr, r.op.op.Pool, r.op.op.Into = r.addr, nil, r.into
	if r.pool != nil {
		r.op.op.Pool = &r.pool.pool
	}
	return nil
}
