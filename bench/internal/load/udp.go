package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is the kernel's: a message, and how many bytes of it were received or sent.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [4]byte
}

// A flow is one connected UDP socket, with depth datagrams under way. They are all the same, so it does
// not matter which of them were lost.
type flow struct {
	fd       int
	msgs     []mmsghdr
	iovs     []unix.Iovec
	request  []byte
	bufs     []byte
	underway int
	last     time.Time // an answer
}

// lostAfter is how long an answer is waited for before its datagram counts as lost and is sent again.
const lostAfter = 200 * time.Millisecond

func runUDP(ctx context.Context, cfg Config, ep *epoll, thread int, counters *Counters, stand func()) error {
	flows := make([]*flow, share(cfg.Connections, cfg.Threads, thread))
	count, done := counters.of(thread), uint64(0)
	for i := range flows {
		f, err := newFlow(cfg, newPattern().at(i*cfg.Threads+thread, 0, cfg.Size))
		if err != nil {
			return err
		}
		defer unix.Close(f.fd)
		flows[i] = f
		if err := ep.add(f.fd, i); err != nil {
			return err
		}
	}
	stand()
	checked := time.Time{} // so all are filled at once
	for ctx.Err() == nil {
		if now := time.Now(); now.Sub(checked) > lostAfter {
			checked = now
			for _, f := range flows {
				if now.Sub(f.last) > lostAfter {
					f.underway = 0
					if err := f.fill(cfg.Depth); err != nil {
						return err
					}
				}
			}
		}
		events, err := ep.wait()
		if err != nil {
			return err
		}
		for i := range events {
			f := flows[events[i].Fd]
			n, err := f.receive()
			if err == nil && n > 0 {
				done += uint64(n)
				f.underway -= min(n, f.underway) // an answer may come after it was given up
				f.last = time.Now()
				err = f.fill(cfg.Depth)
			}
			if err != nil {
				return err
			}
		}
		count.Store(done)
	}
	return nil
}

func newFlow(cfg Config, request []byte) (*flow, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<20)
	if err := unix.Connect(fd, sockaddr(cfg.Addr)); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &flow{
		fd: fd, request: request, msgs: make([]mmsghdr, cfg.Depth), iovs: make([]unix.Iovec, cfg.Depth),
		bufs: make([]byte, cfg.Depth*(cfg.Size+1)), // an answer that is too long shows
	}, nil
}

// fill sends until so many datagrams are under way.
func (f *flow) fill(depth int) error {
	n := depth - f.underway
	if n == 0 {
		return nil
	}
	for i := range n {
		f.set(i, f.request)
	}
	k, errno := f.call(unix.SYS_SENDMMSG, n)
	if errno != 0 {
		return fmt.Errorf("sendmmsg: %w", errno)
	}
	f.underway += k
	return nil
}

func (f *flow) receive() (int, error) {
	size := len(f.request)
	for i := range f.msgs {
		f.set(i, f.buf(i))
	}
	n, errno := f.call(unix.SYS_RECVMMSG, len(f.msgs))
	if errno == unix.EAGAIN {
		return 0, nil
	}
	if errno != 0 {
		return 0, fmt.Errorf("recvmmsg: %w", errno)
	}
	for i := range n {
		if int(f.msgs[i].n) != size || !bytes.Equal(f.buf(i)[:size], f.request) {
			return 0, errors.New("what came back is not what was sent")
		}
	}
	return n, nil
}

func (f *flow) buf(i int) []byte {
	room := len(f.request) + 1
	return f.bufs[i*room : (i+1)*room]
}

func (f *flow) set(i int, b []byte) {
	f.iovs[i].Base = unsafe.SliceData(b)
	f.iovs[i].SetLen(len(b))
	f.msgs[i].hdr = unix.Msghdr{Iov: &f.iovs[i]}
	f.msgs[i].hdr.SetIovlen(1)
}

func (f *flow) call(trap uintptr, n int) (int, syscall.Errno) {
	k, _, errno := syscall.RawSyscall6(trap, uintptr(f.fd), uintptr(unsafe.Pointer(&f.msgs[0])), uintptr(n), 0, 0, 0)
	return int(k), errno
}
