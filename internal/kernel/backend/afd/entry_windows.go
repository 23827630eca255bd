package afd

import (
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/winsock"
)

// An entry is a socket that is or was watched. It is dead when the socket is no longer watched, and is freed when the
// kernel owns neither of its blocks.
type entry struct {
	group  *group
	handle uintptr // the handle that the caller uses
	base   uintptr // the handle that the kernel knows
	name   winsock.Name
	stream bool
	dead   bool

	token uint64
	asked backend.Mask
	want  uint32 // asked as AFD events; 0 if suppressed
	found uint32 // the events that the last poll found
	held  bool   // found holds events that a Park or a change dequeued and no harvest has reported
	queue bool   // in Poller.held

	ready   block // the poll for readiness
	witness block
}

// A block is one poll. It is owned by the kernel while out is set.
type block struct {
	iosb  windows.IO_STATUS_BLOCK
	info  pollInfo
	owner *entry
	mask  uint32 // the events that it asks for
	out   bool
	// old is set if its result may be from before the latest change.
	old bool
}

func (b *block) found() uint32 { return judge(uint32(b.iosb.Status), b.info.sockets, b.info.events) }

// start starts a poll of the socket that the handle names now.
func (p *Poller) start(helper windows.Handle, b *block, events uint32) (backend.Status, error) {
	b.info = pollInfo{timeout: forever, sockets: 1, socket: b.owner.base, events: events}
	b.iosb.Status = windows.STATUS_PENDING
	b.mask, b.old = events, false
	// A poll that succeeds at once queues a packet too.
	status := poll(helper, uintptr(unsafe.Pointer(b)), &b.iosb, &b.info)
	switch status {
	case windows.STATUS_PENDING, 0:
		b.out = true
		p.out++
		return backend.Done, nil
	case windows.STATUS_INVALID_HANDLE, windows.STATUS_OBJECT_TYPE_MISMATCH, windows.STATUS_INVALID_DEVICE_REQUEST:
		return backend.Bad, windows.WSAENOTSOCK
	}
	return backend.Refused, status.Errno()
}

// startReady starts the poll for readiness of an entry.
func (p *Poller) startReady(e *entry) (backend.Status, error) {
	return p.start(e.group.ready, &e.ready, e.want)
}

// add begins to watch a socket.
func (p *Poller) add(c *backend.Change) (backend.Status, error) {
	kind, err := winsock.Describe(c.Handle)
	if err != nil {
		return backend.Bad, err
	}
	base, err := winsock.Base(c.Handle)
	if err != nil {
		return backend.Refused, err
	}
	name, err := winsock.NameOf(c.Handle)
	if err != nil {
		return backend.Bad, err
	}
	if !p.awaitPackets(func() bool { return p.dying[base] == nil }) {
		return backend.Refused, windows.WAIT_TIMEOUT
	}
	e, err := p.take()
	if err != nil {
		return backend.Refused, err
	}
	e.handle, e.base, e.name, e.stream = c.Handle, base, name, kind == backend.Stream
	e.token, e.asked, e.want = c.Token, c.Interest, interest(c.Interest)
	p.entries[c.Handle] = e
	status, err := p.start(e.group.witness, &e.witness, localClose)
	if status == backend.Done {
		status, err = p.startReady(e)
	}
	if status != backend.Done {
		p.drop(e)
	}
	return status, err
}

// set polls the socket again. It first ends an outstanding poll, which may ask for other events or have completed.
func (p *Poller) set(e *entry, c *backend.Change) (backend.Status, error) {
	token, asked := e.token, e.asked
	if e.ready.out {
		e.suppress()
		cancel(e.group.ready, &e.ready.iosb)
		over := p.awaitPackets(func() bool { return !e.ready.out })
		if p.entries[c.Handle] != e { // the socket was closed during awaitPackets
			return backend.Absent, windows.ERROR_NOT_FOUND
		}
		if !over { // the next poll is started when its packet is dequeued
			e.ready.old = true
			e.token, e.asked, e.want = c.Token, c.Interest, interest(c.Interest)
			return backend.Done, nil
		}
	}
	e.token, e.asked, e.want, e.held = c.Token, c.Interest, interest(c.Interest), false
	status, err := p.startReady(e)
	switch status {
	case backend.Bad:
		p.drop(e)
	case backend.Refused:
		e.token, e.asked, e.want = token, asked, 0
	}
	return status, err
}

// suppress makes the result of the poll be ignored.
func (e *entry) suppress() { e.want, e.held = 0, false }

// drop stops watching.
func (p *Poller) drop(e *entry) {
	delete(p.entries, e.handle)
	e.dead = true
	e.suppress()
	if e.ready.out {
		cancel(e.group.ready, &e.ready.iosb)
	}
	if e.witness.out {
		cancel(e.group.witness, &e.witness.iosb)
	}
	p.dying[e.base] = e
	p.settle(e)
}

// settle frees an entry that is dead, not owned by the kernel, and not in Poller.held.
func (p *Poller) settle(e *entry) {
	if !e.dead || e.ready.out || e.witness.out {
		return
	}
	if p.dying[e.base] == e {
		delete(p.dying, e.base)
	}
	if !e.queue {
		p.free(e)
	}
}

// completed handles the packet of a poll for readiness, and reports whether there is something to report.
func (p *Poller) completed(b *block) bool {
	e := b.owner
	b.out = false
	p.out--
	e.found = b.found()
	switch {
	case e.dead:
		p.settle(e)
	case e.found&localClose != 0:
		p.drop(e)
	case e.want == 0:
	case e.found&e.want != 0 && !b.old:
		return true
	default:
		return p.recheck(e)
	}
	return false
}

// checkName reports whether an entry's handle still names its socket, and drops the entry if not. A socket may be
// closed after the packet of its poll was queued, and the packet of the witness may come later. Without the check,
// the next poll could be of another socket with the same number.
func (p *Poller) checkName(e *entry) bool {
	name, err := winsock.NameOf(e.handle)
	if err == nil && e.name.Stays(name, e.stream) {
		return true
	}
	p.drop(e)
	return false
}

// recheck starts another poll for readiness on behalf of no Change, so it has no status to set. It returns true if the
// system has no memory for the poll. The entry is then reported with the events it asks for, so that a Set follows,
// which can fail.
func (p *Poller) recheck(e *entry) (failed bool) {
	if !p.checkName(e) {
		return false
	}
	switch status, _ := p.startReady(e); status {
	case backend.Bad:
		p.drop(e)
	case backend.Refused:
		return true
	}
	return false
}

// report returns the conditions to report for a completed poll. Conditions may have ended or begun since the poll
// completed, so the socket is polled once more. Errors are kept, because the system may show an error only once.
func (p *Poller) report(e *entry) (m backend.Mask, ok bool) {
	if !p.checkName(e) {
		return 0, false
	}
	found := e.found&(abort|connectFail) | p.pollNow(e.base, e.want)
	if found == 0 {
		if !p.recheck(e) {
			return 0, false
		}
		found = e.want & (receive | send)
	}
	e.want = 0
	return mask(found, e.stream) & (e.asked | backend.Err | backend.Dead | backend.PeerClosed), true
}

// gone handles the packet of a witness.
func (p *Poller) gone(b *block) {
	e := b.owner
	b.out = false
	p.out--
	switch {
	case e.dead:
		p.settle(e)
	case b.found()&localClose != 0:
		p.drop(e)
	default:
		if status, _ := p.start(e.group.witness, b, localClose); status != backend.Done {
			p.drop(e)
		}
	}
}
