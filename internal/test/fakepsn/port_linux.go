package fakepsn

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend/psn"
)

// A port is a completion port. All of it except pump is guarded by the kernel's lock.
type port struct {
	k      *Kernel
	queue  []packet
	more   sync.Cond
	closed bool

	epfd, stop int
	stopped    chan struct{}
	events     [64]unix.EpollEvent
}

// A packet has the events of its registration at the time when it is dequeued, or events of its own.
type packet struct {
	reg    *registration
	key    uintptr
	events uint32
	cookie uint64 // of a removed registration's socket
}

func (k *Kernel) newPort() (*port, error) {
	p := &port{k: k, stopped: make(chan struct{})}
	p.more.L = &k.mu
	var e error
	if p.epfd, e = unix.EpollCreate1(unix.EPOLL_CLOEXEC); e != nil {
		return nil, e
	}
	if p.stop, e = unix.Eventfd(0, unix.EFD_CLOEXEC); e != nil {
		unix.Close(p.epfd)
		return nil, e
	}
	go p.pump()
	return p, nil
}

// pump queues packets when their conditions begin to hold.
func (p *port) pump() {
	defer close(p.stopped)
	fds := []unix.PollFd{{Fd: int32(p.epfd), Events: unix.POLLIN}, {Fd: int32(p.stop), Events: unix.POLLIN}}
	for {
		unix.Poll(fds, -1)
		if fds[1].Revents != 0 {
			return
		}
		p.k.mu.Lock()
		p.notice()
		p.k.mu.Unlock()
	}
}

// notice polls the sockets whose state has changed.
func (p *port) notice() {
	for {
		n, e := unix.EpollWait(p.epfd, p.events[:], 0)
		if e == unix.EINTR {
			continue
		}
		for i := range max(n, 0) {
			if r := p.k.regs[int(p.events[i].Fd)]; r != nil && r.port == p {
				p.k.poll(r)
			}
		}
		if n < len(p.events) {
			return
		}
	}
}

func (p *port) watch(r *registration) bool {
	ev := unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff, Fd: int32(r.fd),
	}
	e := unix.EpollCtl(p.epfd, unix.EPOLL_CTL_ADD, r.fd, &ev)
	if e == unix.EEXIST {
		e = unix.EpollCtl(p.epfd, unix.EPOLL_CTL_MOD, r.fd, &ev) // a duplicate descriptor has kept the item
	}
	return e == nil
}

func (p *port) unwatch(r *registration) {
	if !p.closed && r.alive() {
		unix.EpollCtl(p.epfd, unix.EPOLL_CTL_DEL, r.fd, nil)
	}
}

func (p *port) push(q packet) {
	if p.closed {
		p.k.gone(q)
		return
	}
	p.queue = append(p.queue, q)
	p.more.Broadcast()
}

// wakeWaiters wakes all waiters, so that they check their deadlines.
func (p *port) wakeWaiters() {
	p.k.mu.Lock()
	defer p.k.mu.Unlock()
	p.more.Broadcast()
}

// dequeue fills entries with queued packets.
func (p *port) dequeue(entries []psn.Entry) int {
	p.notice()
	n := 0
	var again []*registration
	for n < len(entries) && len(p.queue) > 0 {
		q := p.queue[0]
		p.queue = p.queue[:copy(p.queue, p.queue[1:])]
		r := q.reg
		if r == nil {
			entries[n] = psn.Entry{Key: q.key, Transfer: q.events}
			n++
			p.k.gone(q)
			continue
		}
		if !r.over && !r.alive() {
			// The socket was closed. Its queued packet may be delivered or not.
			p.k.end(r)
			if !r.queued && p.k.q.CloseWithdraws {
				continue
			}
		}
		if p.k.q.Refresh && !r.over && !p.k.refresh(r) {
			continue
		}
		entries[n] = psn.Entry{Key: r.key, Transfer: r.events}
		n++
		r.queued, r.events = false, 0
		switch {
		case r.trigger&oneShot != 0:
			if !p.k.q.DisarmWhenQueued {
				r.enabled = false
			}
		case r.trigger&level != 0:
			again = append(again, r)
		}
	}
	for _, r := range again {
		p.k.poll(r)
	}
	return n
}

// close drops all queued packets.
func (p *port) close() {
	p.closed = true
	for _, q := range p.queue {
		p.k.gone(q)
	}
	p.queue = nil
	for _, r := range p.k.regs {
		if r.port == p && !p.k.q.ClosedPortHolds {
			r.over = true
			delete(p.k.regs, r.fd)
		}
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	unix.Write(p.stop, one[:])
	p.more.Broadcast()
}

// release closes the descriptors after pump has returned.
func (p *port) release() {
	<-p.stopped
	unix.Close(p.epfd)
	unix.Close(p.stop)
}
