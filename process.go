package socknotify

import (
	"context"
	"iter"
	"runtime"
	"syscall"
	"time"

	"github.com/socknotify/socknotify/internal/port"
	"github.com/socknotify/socknotify/sock"
)

// Process applies registrations in order, then dequeues up to len(entries) notifications
// (ProcessSocketNotifications). If there is none it waits for the first: not at all with a time-out
// of 0, for ever with a negative one, else so long and not less. It returns how many entries it
// filled.
//
// The error is ErrClosed, or ErrInvalid for a time-out other than 0 without entries; then nothing
// was changed. It is ErrTimeout where entries were given and nothing came. In that case as in the
// case of success all registrations were processed, and each one's Result alone tells how it fared
// (C1 to C6). The port keeps no reference to either slice.
func (p *Port[K]) Process(registrations []Registration[K], entries []Notification[K], timeout time.Duration) (int, error) {
	if len(entries) == 0 && timeout != 0 {
		if p.port.Core.Closed.Load() {
			return 0, ErrClosed
		}
		return 0, port.CallError("Process", "a time-out without entries")
	}
	if len(entries) == 0 && len(registrations) == 1 && p.vouchedAlone(&registrations[0]) {
		return 0, nil
	}
	n, err := p.process(context.Background(), registrations, entries, timeout)
	runtime.KeepAlive(p)
	return n, err
}

// ProcessContext is Process that waits until the context is done, and then returns the context's
// cause; registrations stay processed (C9). A context that is done already dequeues nothing. A nil
// context is ErrInvalid. Without entries it only registers.
func (p *Port[K]) ProcessContext(ctx context.Context, registrations []Registration[K], entries []Notification[K]) (int, error) {
	return p.processContext("ProcessContext", ctx, registrations, entries)
}

func (p *Port[K]) processContext(call string, ctx context.Context, registrations []Registration[K], entries []Notification[K]) (int, error) {
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

// Wait dequeues up to len(entries) notifications (GetQueuedCompletionStatusEx): what Process does
// without registrations (Q3). No entries are ErrInvalid (C2).
func (p *Port[K]) Wait(entries []Notification[K], timeout time.Duration) (int, error) {
	if len(entries) == 0 {
		return 0, p.noEntries("Wait")
	}
	n, err := p.process(context.Background(), nil, entries, timeout)
	runtime.KeepAlive(p)
	return n, err
}

// WaitContext is Wait that waits until the context is done, and then returns the context's cause. A
// context that is done already dequeues nothing. No entries, and a nil context, are ErrInvalid.
func (p *Port[K]) WaitContext(ctx context.Context, entries []Notification[K]) (int, error) {
	if len(entries) == 0 {
		return 0, p.noEntries("WaitContext")
	}
	return p.processContext("WaitContext", ctx, nil, entries)
}

func (p *Port[K]) noEntries(call string) error {
	if p.port.Core.Closed.Load() {
		return ErrClosed
	}
	return port.CallError(call, "no entries to dequeue into")
}

// All returns an iterator that dequeues one notification at a time, so that leaving the loop loses
// none, until the context is done or the port is closed. With a nil context it ends at once.
func (p *Port[K]) All(ctx context.Context) iter.Seq[Notification[K]] {
	return func(yield func(Notification[K]) bool) {
		var one [1]Notification[K]
		for {
			if _, err := p.WaitContext(ctx, one[:]); err != nil || !handled(ctx, yield, one[0]) {
				return
			}
		}
	}
}

// RemoveWait removes a socket's registration and returns its EventRemove notification, which no
// waiter sees; other waiters go on being served, and nothing of any other socket is dropped (Q5).
// It is the page's DeregisterAndWait, safe with any number of sockets. The error is the Result that
// OpRemove would have had, ErrClosed, ErrInvalid for a nil context, or the cause of one that is done
// already; then there is no EventRemove. It does not wait for the context: what it removes is returned
// at once.
func (p *Port[K]) RemoveWait(ctx context.Context, socket Socket) (Notification[K], error) {
	r := Remove[K](socket)
	return p.removeWait(ctx, &r)
}

// RemoveWaitConn is [Port.RemoveWait] for a connection.
func (p *Port[K]) RemoveWaitConn(ctx context.Context, conn syscall.Conn) (Notification[K], error) {
	if conn == nil && !p.port.Core.Closed.Load() {
		return Notification[K]{}, port.CallError("RemoveWaitConn", "a nil connection")
	}
	return p.removeWait(ctx, &Registration[K]{Conn: conn, Op: OpRemove})
}

// RemoveWaitSock is [Port.RemoveWait] for a socket of package sock.
func (p *Port[K]) RemoveWaitSock(ctx context.Context, s *sock.Socket) (Notification[K], error) {
	if s == nil && !p.port.Core.Closed.Load() {
		return Notification[K]{}, port.CallError("RemoveWaitSock", "a nil socket")
	}
	return p.removeWait(ctx, &Registration[K]{Sock: s, Op: OpRemove})
}

func (p *Port[K]) removeWait(ctx context.Context, r *Registration[K]) (Notification[K], error) {
	var last Notification[K]
	e := r.entry()
	rec, err := p.port.RemoveNow(ctx, &e)
	if err == nil {
		last.Key, last.Events = port.KeyOf[K](rec), EventRemove
	}
	runtime.KeepAlive(p)
	return last, err
}

// process is the one way in. Where the time-out counts, the context is one that is never done.
func (p *Port[K]) process(ctx context.Context, regs []Registration[K], out []Notification[K], timeout time.Duration) (int, error) {
	w := p.port.Begin()
	if w == nil {
		return 0, ErrClosed
	}
	for i := range regs {
		e := regs[i].entry()
		p.port.Register(w, &e)
	}
	p.port.Complete(w)
	n, err := p.port.DequeueIn(w, ctx, entriesOf(out), timeout)
	p.port.End(w)
	port.Traced(ctx, n, len(out))
	return n, err
}

// vouchedAlone processes a registration that is a call's only one where that needs nothing but the slot's word.
func (p *Port[K]) vouchedAlone(r *Registration[K]) bool {
	if r.Sock == nil || r.Conn != nil {
		return false
	}
	e := r.entry()
	return p.port.VouchedAlone(&e)
}
