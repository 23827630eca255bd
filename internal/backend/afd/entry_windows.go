package afd

import (
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/winsock"
)

// An entry is a socket that is watched, or was: it is dead when it is, and free when the kernel has also
// done with both of its blocks.
type entry struct {
	group  *group
	handle uintptr // the caller's
	base   uintptr // the kernel's
	name   winsock.Name
	stream bool
	dead   bool

	token uint64
	asked backend.Mask
	want  uint32 // asked, in AFD's terms; 0: silent
	found uint32 // by the last poll
	held  bool   // found by a Park, and not yet harvested
	queue bool   // on the list of those

	ready   block // the poll for readiness
	witness block
}

// A block is one poll, and the kernel's while out is set.
type block struct {
	iosb  windows.IO_STATUS_BLOCK
	info  pollInfo
	owner *entry
	mask  uint32 // what it asks for
	out   bool
	// old says that what it finds may be from before the latest change.
	old bool
}

func (b *block) found() uint32 { return judge(uint32(b.iosb.Status), b.info.sockets, b.info.events) }

// start makes a poll. It looks at the socket that the handle names now.
func (p *Poller) start(helper windows.Handle, b *block, events uint32) (backend.Status, error) {
	b.info = pollInfo{timeout: forever, sockets: 1, socket: b.owner.base, events: events}
	b.iosb.Status = windows.STATUS_PENDING
	b.mask, b.old = events, false
	// Where the poll succeeds at once there is a packet all the same.
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

// look makes an entry's poll for readiness.
func (p *Poller) look(e *entry) (backend.Status, error) {
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
	if !p.lull(func() bool { return p.dying[base] == nil }) {
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
		status, err = p.look(e)
	}
	if status != backend.Done {
		p.drop(e)
	}
	return status, err
}

// set looks again. A poll that stands is ended before: it may ask for too little, or have completed already.
func (p *Poller) set(e *entry, c *backend.Change) (backend.Status, error) {
	token, asked := e.token, e.asked
	if e.ready.out {
		e.mute()
		cancel(e.group.ready, &e.ready.iosb)
		over := p.lull(func() bool { return !e.ready.out })
		if p.entries[c.Handle] != e { // closed meanwhile
			return backend.Absent, windows.ERROR_NOT_FOUND
		}
		if !over { // its packet makes the next one
			e.ready.old = true
			e.token, e.asked, e.want = c.Token, c.Interest, interest(c.Interest)
			return backend.Done, nil
		}
	}
	e.token, e.asked, e.want, e.held = c.Token, c.Interest, interest(c.Interest), false
	status, err := p.look(e)
	switch status {
	case backend.Bad:
		p.drop(e)
	case backend.Refused:
		e.token, e.asked, e.want = token, asked, 0
	}
	return status, err
}

// mute leaves the poll alone, whose findings will be for nobody.
func (e *entry) mute() { e.want, e.held = 0, false }

// drop stops watching.
func (p *Poller) drop(e *entry) {
	delete(p.entries, e.handle)
	e.dead = true
	e.mute()
	if e.ready.out {
		cancel(e.group.ready, &e.ready.iosb)
	}
	if e.witness.out {
		cancel(e.group.witness, &e.witness.iosb)
	}
	p.dying[e.base] = e
	p.settle(e)
}

// settle frees an entry that is dead and nobody's any more.
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

// completed takes the packet of a poll for readiness, and tells whether there is something to report.
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
		return p.recheckAll(e)
	}
	return false
}

// still makes sure that an entry's handle names its socket, and else drops the entry. A poll's packet may be
// on its way when the socket is closed, and the witness's is not here at once either; in between, the next
// poll would be of whatever has the number by then.
func (p *Poller) still(e *entry) bool {
	name, err := winsock.NameOf(e.handle)
	if err == nil && e.name.Stays(name, e.stream) {
		return true
	}
	p.drop(e)
	return false
}

// recheckAll makes a poll for readiness that nobody waits for to know of its failure. Without memory for it
// there is something to report all the same: what is asked for, so that a Set follows, which can fail.
func (p *Poller) recheckAll(e *entry) (failed bool) {
	if !p.still(e) {
		return false
	}
	switch status, _ := p.look(e); status {
	case backend.Bad:
		p.drop(e)
	case backend.Refused:
		return true
	}
	return false
}

// report settles what a completed poll is worth. What it found may be over by the time of the harvest, or
// have grown; so the socket is looked at once more. Errors are not over: where the system shows them once,
// that was it.
func (p *Poller) report(e *entry) (m backend.Mask, ok bool) {
	if !p.still(e) {
		return 0, false
	}
	found := e.found&(abort|connectFail) | p.now(e.base, e.want)
	if found == 0 {
		if !p.recheckAll(e) {
			return 0, false
		}
		found = e.want & (receive | send)
	}
	e.want = 0
	return mask(found, e.stream) & (e.asked | backend.Err | backend.Dead | backend.PeerClosed), true
}

// gone takes the packet of a witness.
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
