package iouring

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
)

// An entry is what the room knows of one descriptor number.
type entry struct {
	token  uint64
	cookie uint64 // the socket's identity
	gen    uint32 // of the poll: what is told of an earlier one is dropped
	flags  uint8
	alien  uint8  // how many reports in a row another thread than the poll's has taken
	thread uint16 // its place in Poller.threads
}

// The flags of an entry.
const (
	wantsIn   = uint8(kernel.In) // its interest
	wantsEnd  = 1 << 1
	wantsOut  = uint8(kernel.Out)
	watched   = 1 << 3
	armed     = 1 << 4 // the ring has a poll for it
	queued    = 1 << 5 // it is in Poller.queue
	submitted = 1 << 6 // it is in Poller.sent
	stirred   = 1 << 7 // its poll has completed since the last report
	interest  = wantsIn | wantsEnd | wantsOut
)

const pageSize = 64

type page [pageSize]entry

// lookup returns the entry of a number, or nil.
func (p *Poller) lookup(fd int) *entry {
	if i := fd / pageSize; i < len(p.pages) && p.pages[i] != nil {
		return &p.pages[i][fd%pageSize]
	}
	return nil
}

// entry returns the entry of a number, and makes it.
func (p *Poller) entry(fd int) *entry {
	i := fd / pageSize
	if i >= len(p.pages) {
		p.pages = append(p.pages, make([]*page, i+1-len(p.pages))...)
	}
	if p.pages[i] == nil {
		p.pages[i] = new(page)
	}
	return &p.pages[i][fd%pageSize]
}

// The data of a poll is its number and its generation, and so tells whose it is and whether it still counts.
func data(fd int, gen uint32) uint64 { return uint64(gen)<<32 | uint64(fd) }

// What bears this bit is no poll of an entry. (Numbers have 31 bits.)
const control = 1 << 31

// identify returns the identity of the socket that a number names: its cookie, which no other socket ever
// gets. The error is that of a number that is closed, or names no socket.
func (p *Poller) identify(fd int) (uint64, error) {
	p.cookie, p.cookieLen = 0, uint32(unsafe.Sizeof(p.cookie))
	_, _, e := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_COOKIE,
		uintptr(unsafe.Pointer(&p.cookie)), uintptr(unsafe.Pointer(&p.cookieLen)), 0)
	if e != 0 {
		return 0, e
	}
	return p.cookie, nil
}

// find looks up the entry of the socket that a number names now. What is left of another socket's is
// dropped.
func (p *Poller) find(fd int) (*entry, kernel.Status, error) {
	e := p.lookup(fd)
	if e != nil && e.flags&watched == 0 {
		e = nil
	}
	cookie, err := p.identify(fd)
	switch {
	case err == nil && e != nil && e.cookie == cookie:
		return e, kernel.Done, nil
	case e != nil:
		p.drop(fd, e)
	}
	if err != nil {
		return nil, kernel.Bad, err
	}
	return nil, kernel.Absent, unix.ENOENT
}
