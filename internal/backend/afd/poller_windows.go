package afd

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/backend"
	"github.com/socknotify/socknotify/internal/backend/winsock"
)

// Poller implements backend.Poller on polls of the socket driver.
type Poller struct {
	port     windows.Handle // of the polls for readiness, and the bell
	closings windows.Handle // of the witnesses; nobody waits for it
	looker   windows.Handle // a helper for polls that do not wait
	bell     bell
	timer    *time.Timer // rings at a Park's deadline
	one      [1]packet   // of the goroutine in Park

	mu      sync.Mutex
	entries map[uintptr]*entry
	dying   map[uintptr]*entry // by base: dropped, and the kernel's still
	groups  []*group
	vacant  []*group // those that have room
	held    []*entry // found by Park, in order; the first to be harvested
	out     int      // blocks that are the kernel's
	packets [64]packet
	closed  [64]packet
}

// New makes two completion ports and opens a helper handle. More of these come with the sockets, two for
// each 32.
func New() (backend.Poller, error) {
	if err := winsock.Start(); err != nil {
		return nil, os.NewSyscallError("WSAStartup", err)
	}
	p := &Poller{entries: make(map[uintptr]*entry), dying: make(map[uintptr]*entry)}
	err := p.open()
	if err != nil {
		p.shut()
		return nil, err
	}
	p.bell.port = p.port
	p.timer = time.AfterFunc(time.Hour, p.bell.expire)
	p.timer.Stop()
	return p, nil
}

func (p *Poller) open() (err error) {
	if p.port, err = newPort(); err != nil {
		return err
	}
	if p.closings, err = newPort(); err != nil {
		return err
	}
	p.looker, err = newHelper(windows.FILE_SYNCHRONOUS_IO_NONALERT)
	return err
}

// shut closes what open has opened.
func (p *Poller) shut() (err error) {
	for _, h := range [...]windows.Handle{p.port, p.closings, p.looker} {
		if h == 0 {
			continue
		}
		if e := windows.CloseHandle(h); e != nil && err == nil {
			err = os.NewSyscallError("CloseHandle", e)
		}
	}
	return err
}

// Edges is false: AFD has none.
func (p *Poller) Edges() bool { return false }

// Describe implements backend.Poller.
func (p *Poller) Describe(handle uintptr) (backend.Kind, error) { return winsock.Describe(handle) }

// Has implements backend.Poller.
func (p *Poller) Has(handle uintptr) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removePort()
	_, status, err := p.find(handle)
	if status == backend.Bad {
		return false, err
	}
	return status == backend.Done, nil
}

// Poll implements backend.Poller.
func (p *Poller) Poll(changes []backend.Change, ready []backend.Ready) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(changes) > 0 {
		p.removePort()
	}
	for i := range changes {
		c := &changes[i]
		c.Status, c.Err = p.apply(c)
	}
	if len(ready) == 0 {
		return 0
	}
	return p.harvest(ready)
}

func (p *Poller) apply(c *backend.Change) (backend.Status, error) {
	e, status, err := p.find(c.Handle)
	switch {
	case c.Action == backend.Add && status == backend.Absent:
		return p.add(c)
	case c.Action == backend.Add && status == backend.Done:
		return backend.Present, windows.ERROR_ALREADY_EXISTS
	case status != backend.Done:
		return status, err
	}
	switch c.Action {
	case backend.Set:
		return p.set(e, c)
	case backend.Suppress:
		e.mute()
	case backend.Delete:
		p.drop(e)
	}
	return backend.Done, nil
}

// find looks an entry up and makes sure that the handle still names its socket. If not, the entry is
// dropped.
func (p *Poller) find(handle uintptr) (*entry, backend.Status, error) {
	e := p.entries[handle]
	name, err := winsock.NameOf(handle)
	switch {
	case err != nil:
		if e != nil {
			p.drop(e)
		}
		return nil, backend.Bad, err
	case e == nil:
		return nil, backend.Absent, windows.ERROR_NOT_FOUND
	case !e.name.Stays(name, e.stream):
		p.drop(e)
		return nil, backend.Absent, windows.ERROR_NOT_FOUND
	}
	return e, backend.Done, nil
}

// Close implements backend.Poller.
func (p *Poller) Close() error {
	p.timer.Stop()
	for _, g := range p.groups {
		cancel(g.ready, nil)
		cancel(g.witness, nil)
	}
	p.reclaim()
	for _, g := range p.groups {
		g.close()
		if p.out == 0 {
			g.pin.Unpin()
		}
	}
	if p.out > 0 {
		abandon(p.groups)
	}
	return p.shut()
}

// reclaim waits for the packets of polls that were all cancelled. They come at once.
func (p *Poller) reclaim() {
	const patience = 100 // times 10 ms, for both ports
	for try := 0; p.out > 0 && try < patience; {
		n := 0
		for _, port := range [...]windows.Handle{p.port, p.closings} {
			k, _ := dequeue(port, p.packets[:], 0)
			for i := range k {
				if p.packets[i].key == keyPoll {
					p.out--
				}
			}
			n += k
		}
		if n == 0 {
			try++
			time.Sleep(10 * time.Millisecond)
		}
	}
}

var abandoned struct {
	mu     sync.Mutex
	groups []*group
}

// abandon keeps what the kernel has not given back, and may yet write to.
func abandon(groups []*group) {
	abandoned.mu.Lock()
	defer abandoned.mu.Unlock()
	abandoned.groups = append(abandoned.groups, groups...)
}
