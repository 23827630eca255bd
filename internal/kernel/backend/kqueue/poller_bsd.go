//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package kqueue

import (
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/internal/kernel/backend"
	"github.com/socknotify/socknotify/internal/kernel/backend/unixsock"
)

// Poller implements backend.Poller on one kqueue.
type Poller struct {
	queue
	native  native
	waker   unixsock.Waker
	woken   atomic.Bool
	parking [2]unix.PollFd // used by the one caller of Park
}

// New opens a kqueue and a waker: three descriptors.
func New() (backend.Poller, error) {
	waker, err := unixsock.NewWaker()
	if err != nil {
		return nil, err
	}
	syscall.ForkLock.RLock()
	kq, err := unix.Kqueue()
	if err == nil {
		unix.CloseOnExec(kq)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		waker.Close()
		return nil, os.NewSyscallError("kqueue", err)
	}
	p := &Poller{native: native{kq: kq}, waker: waker}
	p.queue.sys = &p.native
	p.parking = [2]unix.PollFd{{Fd: int32(kq), Events: unix.POLLIN}, waker.Entry()}
	return p, nil
}

// Edges is true: EV_CLEAR, with the knotes left in place.
func (p *Poller) Edges() bool { return true }

// Describe implements backend.Poller.
func (p *Poller) Describe(handle uintptr) (backend.Kind, error) { return unixsock.Describe(handle) }

// PollOne implements backend.Poller.
func (p *Poller) PollOne(handle uintptr) backend.Mask { return unixsock.PollOne(handle) }

// Has implements backend.Poller.
func (p *Poller) Has(handle uintptr) (bool, error) {
	fd, ok := unixsock.FD(handle)
	if !ok {
		return false, unix.EBADF
	}
	return p.has(fd)
}

// Close implements backend.Poller.
func (p *Poller) Close() error {
	err := p.waker.Close()
	if e := unix.Close(p.native.kq); e != nil {
		err = os.NewSyscallError("close", e)
	}
	return err
}
