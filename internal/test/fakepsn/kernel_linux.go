package fakepsn

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend/psn"
	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// A Kernel is one simulated Windows.
type Kernel struct {
	q Quirks

	mu      sync.Mutex
	ports   map[uintptr]*port
	regs    map[int]*registration // by descriptor
	leaving map[uint64]int        // by cookie: the number of REMOVE packets that were not dequeued
	last    uintptr
	dice    dice
}

// New returns a Kernel.
func New(q Quirks) *Kernel {
	return &Kernel{q: q, ports: make(map[uintptr]*port), regs: make(map[int]*registration), leaving: make(map[uint64]int)}
}

// System returns the kernel's functions for package psn.
func (k *Kernel) System() *psn.System {
	return &psn.System{
		Process: k.process, OpenPort: k.openPort, ClosePort: k.closePort, Post: k.post,
		Describe: unixsock.Describe, PollOne: unixsock.PollOne,
		Pin: pin, Same: same, Unpin: func(uintptr) {},
		Datagram: datagram,
		Errno:    func(code uint32) error { return fmt.Errorf("winsock error %d", code) },
	}
}

func (k *Kernel) process(handle uintptr, regs []psn.Registration, timeout uint32, entries []psn.Entry) (int, uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.ports[handle]
	switch {
	case p == nil:
		return 0, errorInvalidHandle
	case len(entries) == 0 && timeout != 0:
		return 0, errorInvalidParameter
	case k.dice.hit(k.dice.Call):
		return 0, wsaNoBufs
	}
	if k.q.BadHandleFailsCall {
		for i := range regs {
			fd := int(regs[i].Socket)
			if _, open := cookie(fd); !open {
				if r := k.regs[fd]; r != nil {
					k.end(r)
				}
				return 0, wsaNotSock
			}
		}
	}
	p.notice()
	for i := range regs {
		if regs[i].Result = k.dice.entryFault(); regs[i].Result == ok {
			regs[i].Result = k.apply(p, &regs[i])
		}
	}
	if len(entries) == 0 {
		return 0, ok
	}
	if k.dice.hit(k.dice.Foreign) {
		p.push(packet{key: k.dice.foreign(), events: in | out})
	}
	if !k.dice.hit(k.dice.Early) {
		if n := k.wait(p, timeout, entries[:k.dice.fewer(len(entries))]); n > 0 {
			return n, ok
		}
	}
	switch {
	case p.closed:
		return 0, errorInvalidHandle
	case k.q.ErrorTimeout:
		return 0, errorTimeout
	}
	return 0, waitTimeout
}

func (k *Kernel) wait(p *port, timeout uint32, entries []psn.Entry) int {
	n := p.dequeue(entries)
	if n > 0 || timeout == 0 {
		return n
	}
	var end time.Time
	if timeout != infinite {
		limit := time.Duration(timeout) * time.Millisecond
		end = time.Now().Add(limit)
		defer time.AfterFunc(limit, p.wakeWaiters).Stop()
	}
	for n == 0 && !p.closed && (end.IsZero() || time.Now().Before(end)) {
		p.more.Wait()
		if !p.closed {
			n = p.dequeue(entries)
		}
	}
	return n
}

// later calls f a little after the current call.
func (k *Kernel) later(f func()) {
	time.AfterFunc(100*time.Microsecond, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		f()
	})
}

// gone is called for each packet that leaves a queue.
func (k *Kernel) gone(q packet) {
	if q.cookie == 0 {
		return
	}
	if k.leaving[q.cookie]--; k.leaving[q.cookie] == 0 {
		delete(k.leaving, q.cookie)
	}
}

func (k *Kernel) openPort() (uintptr, error) {
	p, e := k.newPort()
	if e != nil {
		return 0, e
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last += 4
	k.ports[k.last] = p
	return k.last, nil
}

func (k *Kernel) closePort(handle uintptr) error {
	k.mu.Lock()
	p := k.ports[handle]
	if p == nil {
		k.mu.Unlock()
		return fmt.Errorf("port %d is not open", handle)
	}
	delete(k.ports, handle)
	p.close()
	k.mu.Unlock()
	p.release()
	return nil
}

func (k *Kernel) post(handle, key uintptr) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.ports[handle]
	if p == nil {
		return fmt.Errorf("port %d is not open", handle)
	}
	p.push(packet{key: key})
	return nil
}

func datagram() (uintptr, func() error, func(), error) {
	fd, e := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if e != nil {
		return 0, nil, nil, e
	}
	var send func() error
	if unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}) == nil {
		if self, e := unix.Getsockname(fd); e == nil {
			send = func() error { return unix.Sendto(fd, []byte{0}, 0, self) }
		}
	}
	return uintptr(fd), send, func() { unix.Close(fd) }, nil
}

// pin does not have to keep the socket alive, because no other socket gets the same cookie.
func pin(handle uintptr) (uintptr, error) {
	c, e := unix.GetsockoptUint64(int(handle), unix.SOL_SOCKET, unix.SO_COOKIE)
	return uintptr(c), e
}

func same(handle, pin uintptr) bool {
	c, open := cookie(int(handle))
	return open && uintptr(c) == pin
}
