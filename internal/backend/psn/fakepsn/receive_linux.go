package fakepsn

import (
	"errors"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/backend/psn"
)

// An association makes the overlapped receives from one socket complete on a port. It lasts until the socket is closed or
// taken off the port, and longer than the port.
type association struct {
	fd      int
	cookie  uint64
	port    *port
	key     uintptr
	waiting []*overlapped
}

// An overlapped implements psn.Overlapped.
type overlapped struct {
	k    *Kernel
	of   *association // while the receive waits
	buf  []byte
	n    int
	void bool
	err  error
}

var (
	errRefused  = errors.New("winsock error 87")
	errNotFound = errors.New("status 0xc0000002")
)

// associationOf returns the association of the socket that a descriptor names now, or nil.
func (k *Kernel) associationOf(fd int) *association {
	a := k.associations[fd]
	if c, open := cookie(fd); a != nil && (!open || c != a.cookie) {
		k.endAll(a)
		delete(k.associations, fd)
		return nil
	}
	return a
}

func (k *Kernel) associate(handle, port, key uintptr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	fd := int(handle)
	p := k.ports[port]
	c, open := cookie(fd)
	r := k.regs[fd]
	switch {
	case p == nil || !open || k.associationOf(fd) != nil,
		r != nil && r.alive() && k.q.RegisteredIsTaken:
		return errRefused
	}
	a := &association{fd: fd, cookie: c, port: p, key: key}
	if !p.watchReceives(a) {
		return errRefused
	}
	k.associations[fd] = a
	return nil
}

func (k *Kernel) dissociate(handle uintptr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.associationOf(int(handle))
	if a == nil || len(a.waiting) > 0 || k.q.NoDissociation {
		return errNotFound
	}
	a.port.unwatchReceives(a)
	delete(k.associations, a.fd)
	return nil
}

// Associations returns the number of open sockets whose receives complete on a port.
func (k *Kernel) Associations() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for fd := range k.associations {
		if k.associationOf(fd) != nil {
			n++
		}
	}
	return n
}

func (o *overlapped) Address() uintptr { return uintptr(unsafe.Pointer(o)) }

func (o *overlapped) Start(handle uintptr, buf []byte) (bool, error) {
	k := o.k
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.associationOf(int(handle))
	switch {
	case a == nil:
		return false, unix.EINVAL // it would end without a packet
	case k.dice.hit(k.dice.Receive):
		return false, nil
	}
	o.of, o.buf = a, buf
	a.waiting = append(a.waiting, o)
	k.receive(a)
	return true, nil
}

func (o *overlapped) Cancel(uintptr) {
	k := o.k
	k.mu.Lock()
	defer k.mu.Unlock()
	a := o.of
	if a == nil {
		return
	}
	if k.receive(a); o.of != nil {
		a.waiting = slices.DeleteFunc(a.waiting, func(w *overlapped) bool { return w == o })
		o.end(0, true, nil)
	}
}

func (o *overlapped) Result(uintptr) (n int, void bool, err error) { return o.n, o.void, o.err }

// end ends a receive and queues its packet.
func (o *overlapped) end(n int, void bool, err error) {
	a := o.of
	o.of, o.buf, o.n, o.void, o.err = nil, nil, n, void, err
	a.port.push(packet{key: a.key, overlapped: o.Address(), events: uint32(n)})
}

// receive carries out the receives from a socket that do not have to wait any more.
func (k *Kernel) receive(a *association) {
	for len(a.waiting) > 0 {
		o := a.waiting[0]
		n, e := a.take(o.buf)
		switch e {
		case unix.EAGAIN:
			return
		case unix.EBADF:
			k.endAll(a)
			return
		}
		a.waiting = a.waiting[:copy(a.waiting, a.waiting[1:])]
		if e != 0 {
			o.end(0, false, e)
		} else {
			o.end(n, false, nil)
		}
	}
}

// endAll ends the receives from a closed socket.
func (k *Kernel) endAll(a *association) {
	for _, o := range a.waiting {
		if k.q.CloseAborts {
			o.end(0, false, unix.ECONNABORTED)
		} else {
			o.end(0, true, nil)
		}
	}
	a.waiting = nil
}

// take receives what is there. The error is EAGAIN if that is nothing, and EBADF if the socket was closed. The program may
// close the descriptor at any time, so a duplicate is used, with a number that no test waits for.
func (a *association) take(buf []byte) (int, unix.Errno) {
	const high = 1 << 9
	d, err := unix.FcntlInt(uintptr(a.fd), unix.F_DUPFD_CLOEXEC, high)
	if err != nil {
		if d, err = unix.FcntlInt(uintptr(a.fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return 0, err.(unix.Errno)
		}
	}
	defer unix.Close(d)
	if c, open := cookie(d); !open || c != a.cookie {
		return 0, unix.EBADF
	}
	for {
		n, _, e := unix.Syscall6(unix.SYS_RECVFROM, uintptr(d), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)),
			unix.MSG_DONTWAIT, 0, 0)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// watchReceives makes the port notice what arrives at a socket.
func (p *port) watchReceives(a *association) bool {
	if !addEdges(p.arrivals, a.fd, unix.EPOLLIN|unix.EPOLLRDHUP, a.cookie) {
		return false
	}
	p.associated[a.cookie] = a
	return true
}

func (p *port) unwatchReceives(a *association) {
	delete(p.associated, a.cookie)
	if !p.closed {
		unix.EpollCtl(p.arrivals, unix.EPOLL_CTL_DEL, a.fd, nil)
	}
}

func (k *Kernel) newOverlapped() psn.Overlapped { return &overlapped{k: k} }
