package afd

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/windows"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/winsock"
)

// Poller implements backend.Poller on polls of the socket driver.
type Poller struct {
	port       windows.Handle // of the polls for readiness, and of the waker
	closings   windows.Handle // of the witnesses; no goroutine waits for it
	syncHelper windows.Handle // a helper for polls that do not wait
	waker      waker
	timer      *time.Timer // expires at a Park's deadline
	one        [1]packet   // used by the goroutine in Park

	mu      sync.Mutex
	entries map[uintptr]*entry
	dying   map[uintptr]*entry // by base: dropped, but still owned by the kernel
	groups  []*group
	vacant  []*group // the groups with a free entry
	held    []*entry // dequeued by Park or a change, in order; harvested first
	out     int      // the number of blocks owned by the kernel
	packets [64]packet
	closed  [64]packet
}

// New opens two completion ports and a helper handle. Two more helper handles are opened for each 32 sockets.
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
	p.waker.port = p.port
	p.timer = time.AfterFunc(time.Hour, p.waker.expire)
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
	p.syncHelper, err = newHelper(windows.FILE_SYNCHRONOUS_IO_NONALERT)
	return err
}

// shut closes the handles that open has opened.
func (p *Poller) shut() (err error) {
	for _, h := range [...]windows.Handle{p.port, p.closings, p.syncHelper} {
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
	p.takeClosings()
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
		p.takeClosings()
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
		e.suppress()
	case backend.Delete:
		p.drop(e)
	}
	return backend.Done, nil
}

// find looks up the entry of a handle, and drops it if the handle no longer names its socket.
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

// reclaim waits for the packets of the polls, which were all cancelled. They usually come at once.
func (p *Poller) reclaim() {
	const tries = 100 // times 10 ms, for both ports
	for try := 0; p.out > 0 && try < tries; {
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

// abandon keeps groups reachable that the kernel still owns and may write to.
func abandon(groups []*group) {
	abandoned.mu.Lock()
	defer abandoned.mu.Unlock()
	abandoned.groups = append(abandoned.groups, groups...)
}
