package socknotify

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"runtime/trace"
	"syscall"
	"time"
	"unsafe"

	"github.com/socknotify/socknotify/internal/kernel/fdstate"
	"github.com/socknotify/socknotify/internal/kernel/port"
	"github.com/socknotify/socknotify/sock"
)

// Process applies registrations in order, then dequeues up to len(entries) notifications
// (ProcessSocketNotifications) and returns their number. If there is none, Process waits for the
// first: not at all if timeout is 0, without limit if it is negative, and otherwise for that time.
//
// If the error is nil or [ErrTimeout], which says that nothing could be dequeued in time, all
// registrations have been processed, and the Result of each says whether it succeeded. If it is
// [ErrInvalid], for a timeout other than 0 without entries, nothing was changed. [ErrClosed] is
// returned by a call on a closed port, which changes nothing, and by a call that was waiting when
// the port was closed. Any other error is the system's, of the wait. The port keeps no reference to
// either slice. In the steady state Process allocates nothing.
func (p *Port[K]) Process(
	registrations []Registration[K], entries []Notification[K], timeout time.Duration,
) (int, error) {
	if len(entries) == 0 && timeout != 0 {
		if p.port.Core.Closed.Load() {
			return 0, ErrClosed
		}
		return 0, port.CallError("Process", "a timeout without entries")
	}
	if len(entries) == 0 && len(registrations) == 1 && !p.port.Core.Closed.Load() &&
		p.fastEnable(nil, &registrations[0]) {
		runtime.KeepAlive(p)
		return 0, nil
	}
	n, err := p.process(context.Background(), registrations, entries, timeout)
	runtime.KeepAlive(p)
	return n, err
}

// ProcessContext is like Process, but waits until ctx is done instead of for a time. It then
// returns the context's cause, and the registrations remain in effect. If the context is done
// already, nothing is dequeued. A nil context is ErrInvalid. Without entries ProcessContext only
// registers.
func (p *Port[K]) ProcessContext(
	ctx context.Context, registrations []Registration[K], entries []Notification[K],
) (int, error) {
	return p.processContext("ProcessContext", ctx, registrations, entries)
}

func (p *Port[K]) processContext(
	call string, ctx context.Context, registrations []Registration[K], entries []Notification[K],
) (int, error) {
	if ctx == nil {
		if p.port.Core.Closed.Load() {
			return 0, ErrClosed
		}
		return 0, port.CallError(call, "a nil context")
	}
	timeout := time.Duration(-1)
	if len(entries) == 0 {
		timeout = 0
	}
	n, err := p.process(ctx, registrations, entries, timeout)
	runtime.KeepAlive(p)
	return n, err
}

// Wait dequeues up to len(entries) notifications (GetQueuedCompletionStatusEx) and returns their
// number. If there is none, it waits for the first until the context is done, and then returns the
// context's cause. If the context is done already, nothing is dequeued. No entries, and a nil
// context, are ErrInvalid. To wait for a limited time, use [Port.Process] without registrations.
func (p *Port[K]) Wait(ctx context.Context, entries []Notification[K]) (int, error) {
	if len(entries) == 0 {
		return 0, p.noEntries("Wait")
	}
	return p.processContext("Wait", ctx, nil, entries)
}

func (p *Port[K]) noEntries(call string) error {
	if p.port.Core.Closed.Load() {
		return ErrClosed
	}
	return port.CallError(call, "no entries to dequeue into")
}

// All returns an iterator that dequeues one notification at a time, so that leaving the loop loses
// none. It ends when the context is done or the port is closed. With a nil context it ends at once.
func (p *Port[K]) All(ctx context.Context) iter.Seq[Notification[K]] {
	return func(yield func(Notification[K]) bool) {
		var one [1]Notification[K]
		for {
			if _, err := p.Wait(ctx, one[:]); err != nil || !handled(ctx, yield, one[0]) {
				return
			}
		}
	}
}

// Deregister removes a registration and returns its key. Conn or Handle of r name the socket; the
// other fields are not read. No EventRemove is queued: when Deregister returns, nothing of the
// registration will be dequeued any more. A notification that another goroutine dequeued before may
// still be in use. Deregister waits for no notification.
//
// The error is the Result that OpRemove would have had, or ErrClosed. It is ErrNotRegistered where
// another goroutine has removed the registration.
func (p *Port[K]) Deregister(r Registration[K]) (K, error) {
	var key K
	r.Op = OpRemove
	var e port.Entry
	r.entry(&e)
	rec, err := p.port.Deregister(&e)
	if err == nil {
		key = port.KeyOf[K](rec)
	}
	runtime.KeepAlive(p)
	return key, err
}

// process registers and dequeues. If timeout is positive or 0, the context is never done.
func (p *Port[K]) process(
	ctx context.Context, regs []Registration[K], out []Notification[K], timeout time.Duration,
) (int, error) {
	w := p.port.Begin()
	if w == nil {
		return 0, ErrClosed
	}
	for i := range regs {
		if p.fastEnable(w, &regs[i]) {
			continue
		}
		var e port.Entry
		regs[i].entry(&e)
		p.port.Register(w, &e)
	}
	p.port.Complete(w)
	n, err := p.port.DequeueIn(w, ctx, entriesOf(out), timeout)
	p.port.End(w)
	port.Traced(ctx, n, len(out))
	return n, err
}

// fastEnable carries out an OpEnable that needs no system call. False says that nothing was done.
func (p *Port[K]) fastEnable(w *port.Call, r *Registration[K]) bool {
	if r.Op != OpEnable {
		return false
	}
	fd, handle := fastSocket(r.Conn, r.Handle, r.Drained)
	if handle == port.NoSocket ||
		!p.port.FastEnable(w, fd, handle, port.Events(r.Filter), port.Trigger(r.Trigger), r.Drained,
			unsafe.Pointer(&r.Key)) {
		return false
	}
	r.Result = nil
	return true
}

// fastSocket returns the socket of a registration for FastEnable. The handle is port.NoSocket if
// enabling needs a system call in any case.
func fastSocket(conn syscall.Conn, handle uintptr, drained bool) (*fdstate.FD, uintptr) {
	switch c := conn.(type) {
	case nil:
		if drained && handle != 0 {
			return nil, handle
		}
	case *sock.Socket:
		if c != nil {
			fd := fdstate.Of(c.SyscallConn())
			return fd, fd.Handle()
		}
	}
	return nil, port.NoSocket
}

// Accept delivers the connections of a listener as notifications of [KindAccepted] with this key
// (AcceptEx); [Notification.Accepted] returns the connected socket. Calling Accept again changes n.
// [sock.Detach] makes a *sock.Socket of a listener of package net.
//
// n is the number of accepts outstanding. A dequeuing call accepts up to n connections, and no more
// than its entries hold, before it makes way for other sockets. Nothing is accepted that is not
// dequeued: the rest waits in the listener's backlog.
//
// If descriptors or memory run out, one notification says so, with EventErr and the error from
// Accepted. Accepting then pauses for a time that grows up to a second, and resumes by itself. Any
// other failure is reported the same way and ends accepting; the listener should then be removed.
//
// The listener is removed like any registration, and its EventRemove is the last notification for
// the key. OpDisable pauses accepting, and Accept resumes it. The error is an *[OpError],
// [ErrInvalid] for a nil listener or an n below 1, or [ErrClosed].
func (p *Port[K]) Accept(listener *sock.Socket, key K, n int) error {
	switch {
	case p.port.Core.Closed.Load():
		return ErrClosed
	case listener == nil:
		return port.CallError("Accept", "a nil listener")
	case n < 1:
		return port.CallError("Accept", fmt.Sprintf("n must be at least 1, got %d", n))
	}
	w := p.port.Begin()
	if w == nil {
		return ErrClosed
	}
	r := Enable(listener, key, EventIn, TriggerLevel|TriggerPersistent)
	var e port.Entry
	r.entry(&e)
	e.Work = &port.Work{Socket: listener, Accept: &port.Acceptor{AtOnce: n}}
	p.port.Register(w, &e)
	p.port.Complete(w)
	p.port.End(w)
	runtime.KeepAlive(p)
	return r.Result
}

// regionHandle is the name of a region in an execution trace: the body of a loop over Port.All.
const regionHandle = "socknotify.handle"

// handled yields a notification, in a region where there is an execution trace.
func handled[K comparable](
	ctx context.Context, yield func(Notification[K]) bool, n Notification[K],
) bool {
	if !trace.IsEnabled() {
		return yield(n)
	}
	// A body that panics, or ends its goroutine, ends the region too.
	defer trace.StartRegion(ctx, regionHandle).End()
	return yield(n)
}
