package fakepsn

import (
	"cmp"
	"slices"

	"github.com/socknotify/socknotify/internal/kernel/backend/psn"
)

// A registration registers one socket with one port.
type registration struct {
	fd      int
	cookie  uint64
	port    *port
	key     uintptr // fixed at creation
	filter  uint32
	trigger uint8
	enabled bool
	// disarmed is set if queuing a packet has disabled the registration.
	disarmed bool
	held     uint32 // edge: the conditions that held at the last poll
	queued   bool   // its packet is queued; events coalesce in one packet
	events   uint32 // the events of that packet
	over     bool   // removed, or the socket was closed

	connected bool // a stream was seen connected
}

// alive reports whether the descriptor still names the registration's socket.
func (r *registration) alive() bool {
	c, open := cookie(r.fd)
	return open && c == r.cookie
}

// poll polls the socket and queues a packet if there is something to report.
func (k *Kernel) poll(r *registration) {
	if r.over {
		return
	}
	holds := r.conditions(&k.q)
	if !r.alive() {
		k.end(r)
		return
	}
	events := holds & (r.filter | err)
	if r.trigger&edge != 0 {
		events &^= r.held
		r.held = holds
	}
	if !r.enabled || events == 0 {
		return
	}
	r.events |= events
	if r.queued {
		return
	}
	r.queued = true
	r.port.push(packet{reg: r})
	if r.trigger&oneShot != 0 && k.q.DisarmWhenQueued {
		r.enabled, r.disarmed = false, true
	}
}

// refresh updates the events of a packet that is being dequeued. If no condition holds, the registration continues
// as if no packet had been queued.
func (k *Kernel) refresh(r *registration) bool {
	r.events = r.conditions(&k.q) & (r.filter | err)
	if r.events != 0 {
		return true
	}
	r.queued = false
	r.enabled = r.enabled || r.disarmed
	return false
}

// end ends a registration whose socket was closed. That queues no packet.
func (k *Kernel) end(r *registration) {
	if r.over {
		return
	}
	r.over, r.enabled, r.disarmed = true, false, false
	delete(k.regs, r.fd)
	r.port.unwatch(r)
	if k.q.CloseWithdraws {
		r.withdraw()
	}
	if k.dice.hit(k.dice.Late) {
		p, late := r.port, packet{key: r.key, events: r.filter | err}
		k.later(func() { p.push(late) })
	}
}

// withdraw removes the registration's packet from the queue.
func (r *registration) withdraw() {
	if !r.queued {
		return
	}
	if i := slices.IndexFunc(r.port.queue, func(p packet) bool { return p.reg == r }); i >= 0 {
		r.port.queue = slices.Delete(r.port.queue, i, i+1)
	}
	r.queued, r.events = false, 0
}

// apply performs one entry and returns its result.
func (k *Kernel) apply(p *port, e *psn.Registration) uint32 {
	fd := int(e.Socket)
	if e.Op == opNone {
		return ok
	}
	c, open := cookie(fd)
	if !open || e.Socket > 1<<31-1 {
		return wsaNotSock
	}
	r := k.regs[fd]
	if r != nil && !r.alive() {
		k.end(r)
		r = nil
	}
	switch e.Op {
	case opEnable:
		return k.enable(p, r, e, c)
	case opDisable, opRemove:
		if r == nil || r.port != p {
			return cmp.Or(k.q.NotFound, errorNotFound)
		}
		if e.Op == opRemove {
			k.remove(r)
			return ok
		}
		r.enabled, r.disarmed = false, false
		if k.q.DisableWithdraws {
			r.withdraw()
		}
		return ok
	}
	return errorInvalidParameter
}

func (k *Kernel) enable(p *port, r *registration, e *psn.Registration, cookie uint64) uint32 {
	once, how := e.Trigger&(oneShot|persistent), e.Trigger&(level|edge)
	if once != oneShot && once != persistent || how != level && how != edge || e.Trigger&^0xf != 0 || uint32(e.Filter)&^all != 0 {
		return errorInvalidParameter
	}
	switch {
	case r != nil && r.port != p:
		return cmp.Or(k.q.OtherPort, errorAccessDenied)
	case r == nil && k.q.RemoveBlocks && k.leaving[cookie] > 0, r != nil && k.q.StrictEnable && r.queued:
		return cmp.Or(k.q.Busy, errorBusy)
	case r == nil:
		r = &registration{fd: int(e.Socket), cookie: cookie, port: p, key: e.Key}
		if !p.watch(r) {
			return wsaNoBufs
		}
		k.regs[r.fd] = r
	case k.q.EnableWithdraws:
		r.withdraw()
	}
	r.filter, r.trigger, r.enabled, r.disarmed = uint32(e.Filter), e.Trigger, true, false
	if how == edge {
		r.held = r.conditions(&k.q)
	}
	k.poll(r)
	return ok
}

// remove ends a registration and queues its REMOVE packet.
func (k *Kernel) remove(r *registration) {
	p := r.port
	r.over, r.enabled, r.disarmed = true, false, false
	delete(k.regs, r.fd)
	p.unwatch(r)
	k.leaving[r.cookie]++
	last := packet{key: r.key, events: remove, cookie: r.cookie}
	if r.queued && k.q.RemoveMerges {
		r.withdraw()
	}
	if k.q.RemoveIsLate {
		k.later(func() { p.push(last) })
		return
	}
	p.push(last)
}
