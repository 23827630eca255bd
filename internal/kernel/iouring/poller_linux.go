package iouring

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel"
	"github.com/socknotify/socknotify/internal/kernel/epoll"
)

const (
	// entries is how many changes are submitted at once at most.
	entries = 64
	// worthwhile is how many changes cost less in a ring than by an epoll_ctl each.
	worthwhile = 16
)

// Poller implements kernel.Poller.
type Poller struct {
	*epoll.Poller

	least int // changes in a batch for which it is submitted

	// What follows belongs to whoever has the epoll descriptor's turn.
	ring   ring
	events [entries]unix.EpollEvent // what the submissions point to
	index  [entries]int             // of their changes
	named  marks

	exchanges exchanges
	files     files
}

// New opens an epoll descriptor, its gate and a ring: three descriptors. Rings for receives and sends, and one for
// files, come with the first of them.
func New() (kernel.Poller, error) { return NewFrom(worthwhile) }

// NewFrom is New for tests: it submits batches of so many changes, receives and sends, and more, and of less than
// usual also every read and write of a file.
func NewFrom(least int) (kernel.Poller, error) {
	p, err := open(least)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func open(least int) (*Poller, error) {
	p := &Poller{least: least}
	p.exchanges.init(min(least, leastExchanges))
	if err := p.ring.open(entries); err != nil {
		return nil, err
	}
	var err error
	if p.Poller, err = epoll.Open(p.batch); err != nil {
		p.ring.close()
		return nil, err
	}
	return p, nil
}

// Close implements kernel.Poller.
func (p *Poller) Close() error {
	err := p.files.close()
	for _, e := range []error{p.Poller.Close(), p.ring.close(), p.exchanges.close()} {
		if e != nil && err == nil {
			err = e
		}
	}
	return err
}

// batch makes changes by submissions as long as there are enough of them.
func (p *Poller) batch(epfd int, changes []kernel.Change) (rest []kernel.Change) {
	for len(changes) >= p.least {
		made := p.submit(epfd, changes)
		changes = changes[made:]
		if made == 0 {
			break // the kernel takes no submissions now
		}
	}
	return changes
}

// submit makes changes by one submission each, until one is of a socket that was changed before, and returns
// for how many of them it did.
//
// The kernel makes a change as it takes its submission. Only if the epoll descriptor is in use just then, by
// somebody who closes a socket or adds one, it leaves the change to a thread of its own. That may be overtaken
// by the changes behind it, which is why they must be of other sockets. It is waited for, so all that was
// submitted has been made when submit returns, in the eyes of everybody.
func (p *Poller) submit(epfd int, changes []kernel.Change) (made int) {
	clear(p.named[:])
	filled := 0
	for made < min(len(changes), entries) {
		c := &changes[made]
		if !p.named.add(c.Handle) {
			break
		}
		if op, fd, ev, ok := epoll.Instruction(c); ok {
			p.events[filled], p.index[filled] = ev, made
			*p.ring.next() = sqe{
				op: opEpollCtl, fd: int32(epfd), off: uint64(fd), len: uint32(op), data: uint64(made),
				addr: uint64(uintptr(unsafe.Pointer(&p.events[filled]))),
			}
			filled++
		}
		made++
	}
	if filled == 0 {
		return made
	}
	taken := p.ring.submit()
	if taken < filled {
		made = p.index[taken]
	}
	for taken > 0 {
		head, n := p.ring.completed()
		if n == 0 {
			p.ring.await(taken)
			continue
		}
		for at := head; at != head+uint32(n); at++ {
			answer := p.ring.completion(at)
			c := &changes[answer.data]
			switch answer.res {
			case 0:
				c.Status, c.Err = kernel.Done, nil
			case -int32(unix.EAGAIN), -int32(unix.ECANCELED):
				epoll.Apply(epfd, c) // there was no thread to be had; no answer of epoll's own
			default:
				epoll.Answer(c, unix.Errno(-answer.res))
			}
		}
		p.ring.release(head, n)
		taken -= n
	}
	return made
}

// marks is a set of handles that may take one for another.
type marks [16]uint64

// add adds a handle, and reports whether it was certainly not there.
func (m *marks) add(handle uintptr) bool {
	word, bit := &m[handle/64%16], uint64(1)<<(handle%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}
