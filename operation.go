package socknotify

import (
	"context"
	"net/netip"
	"runtime"
	"time"

	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// An Operation is one entry of a [Port.ProcessOperations] call: an overlapped operation on a socket that is to
// be started. [RecvOp], [RecvPooledOp], [RecvFromOp], [SendOp], [SendToOp] and [ConnectOp] make them. An entry
// may be used again, once its Overlapped is the caller's.
type Operation[K comparable] struct {
	// Result is how starting it fared: nil, or the error that the call of the same name, such as
	// Port.Recv, would have returned; then the operation was not started, and nothing comes of it.
	// ProcessOperations overwrites it and never reads it (O13).
	Result error

	kind   port.OpKind
	socket *sock.Socket
	key    K
	buf    []byte
	addr   netip.AddrPort
	pool   *Buffers
	o      *Overlapped[K]
}

// RecvOp returns the operation that [Port.Recv] starts.
func RecvOp[K comparable](s *sock.Socket, key K, b []byte, o *Overlapped[K]) Operation[K] {
	return Operation[K]{kind: port.OpRecv, socket: s, key: key, buf: b, o: o}
}

// RecvFromOp returns the operation that [Port.RecvFrom] starts.
func RecvFromOp[K comparable](s *sock.Socket, key K, b []byte, o *Overlapped[K]) Operation[K] {
	return Operation[K]{kind: port.OpRecvFrom, socket: s, key: key, buf: b, o: o}
}

// SendOp returns the operation that [Port.Send] starts.
func SendOp[K comparable](s *sock.Socket, key K, b []byte, o *Overlapped[K]) Operation[K] {
	return Operation[K]{kind: port.OpSend, socket: s, key: key, buf: b, o: o}
}

// SendToOp returns the operation that [Port.SendTo] starts.
func SendToOp[K comparable](s *sock.Socket, key K, b []byte, to netip.AddrPort, o *Overlapped[K]) Operation[K] {
	return Operation[K]{kind: port.OpSendTo, socket: s, key: key, buf: b, addr: to, o: o}
}

// ConnectOp returns the operation that [Port.Connect] starts.
func ConnectOp[K comparable](s *sock.Socket, key K, to netip.AddrPort, o *Overlapped[K]) Operation[K] {
	return Operation[K]{kind: port.OpConnect, socket: s, key: key, addr: to, o: o}
}

// ProcessOperations starts operations in order, and then dequeues as [Port.Process] does, with the same
// time-outs and errors. Every operation is started, unless the call fails as a whole, and each one's Result alone
// tells how that fared; one that was started is carried out whether or not anything is dequeued (O13).
//
// It is for loops that serve many sockets: what the completions of one call lead to is started in the next. Where
// the kernel can, the receives and sends of a batch are made by one system call together, and elsewhere by one
// each. The port keeps no reference to either slice.
func (p *Port[K]) ProcessOperations(ops []Operation[K], entries []Notification[K], timeout time.Duration) (int, error) {
	if len(entries) == 0 && timeout != 0 {
		if p.port.Core.Closed.Load() {
			return 0, ErrClosed
		}
		return 0, port.CallError("ProcessOperations", "a time-out without entries")
	}
	n, err := p.processOperations(context.Background(), ops, entries, timeout)
	runtime.KeepAlive(p)
	return n, err
}

// ProcessOperationsContext is ProcessOperations that waits until the context is done, and then returns the
// context's cause; what was started stays so (C9). A context that is done already dequeues nothing. A nil context
// is ErrInvalid. Without entries it only starts.
func (p *Port[K]) ProcessOperationsContext(ctx context.Context, ops []Operation[K], entries []Notification[K]) (int, error) {
	if ctx == nil {
		if p.port.Core.Closed.Load() {
			return 0, ErrClosed
		}
		return 0, port.CallError("ProcessOperationsContext", "a nil context")
	}
	timeout := time.Duration(-1)
	if len(entries) == 0 {
		timeout = 0
	}
	n, err := p.processOperations(ctx, ops, entries, timeout)
	runtime.KeepAlive(p)
	return n, err
}

func (p *Port[K]) processOperations(ctx context.Context, ops []Operation[K], out []Notification[K], timeout time.Duration) (int, error) {
	w := p.port.Begin()
	if w == nil {
		return 0, ErrClosed
	}
	for i := range ops {
		op := &ops[i]
		if op.Result = p.claimOp(op); op.Result == nil {
			_, err := p.port.Admit(w, op.socket, &op.o.op, p.port.Core.Batcher != nil)
			op.Result = operationResult(err)
		}
	}
	p.port.CarryOut(w)
	n, err := p.port.DequeueIn(w, ctx, entriesOf(out), timeout)
	p.port.End(w)
	port.Traced(ctx, n, len(out))
	return n, err
}
