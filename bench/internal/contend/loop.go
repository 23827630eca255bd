package contend

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

// A loop is an epoll descriptor that one goroutine uses by hand.
type loop struct {
	fd     int
	events []unix.EpollEvent
}

func newLoop(batch int) (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return &loop{fd, make([]unix.EpollEvent, batch)}, err
}

func (l *loop) add(fd, data int) error {
	return unix.EpollCtl(l.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(data)})
}

// wait polls without informing Go's scheduler, and blocks a thread only if nothing is ready.
func (l *loop) wait() ([]unix.EpollEvent, error) {
	events := uintptr(unsafe.Pointer(unsafe.SliceData(l.events)))
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.fd), events, uintptr(len(l.events)), 0, 0, 0)
	if errno != 0 || n == 0 {
		n, _, errno = syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.fd), events, uintptr(len(l.events)), ^uintptr(0), 0, 0)
	}
	if errno == unix.EINTR {
		return nil, nil
	}
	if errno != 0 {
		return nil, errno
	}
	return l.events[:n], nil
}

// serveLoop is epoll by hand in Go, level-triggered: a thread, an epoll descriptor and a listener for
// each core.
func serveLoop(p Params, ready func(string)) error {
	listeners, err := sock.ListenTCPGroup(sock.Loopback, sock.ListenOptions{}, p.Cores)
	if err != nil {
		return err
	}
	ready(listeners[0].LocalAddr().String())
	return onCores(len(listeners), func(i int) error {
		runtime.LockOSThread()
		return echoLoop(listeners[i])
	})
}

func echoLoop(listener *sock.Socket) error {
	const listening = -1
	l, err := newLoop(256)
	if err != nil {
		return err
	}
	if err := l.add(int(listener.Handle()), listening); err != nil {
		return err
	}
	conns := map[int]*sock.Socket{}
	buf := make([]byte, 64<<10)
	for {
		events, err := l.wait()
		if err != nil {
			return err
		}
		for i := range events {
			if fd := int(events[i].Fd); fd == listening {
				for c, err := listener.Accept(); err == nil; c, err = listener.Accept() {
					c.SetNoDelay(true)
					fd := int(c.Handle())
					if err := l.add(fd, fd); err != nil {
						return err
					}
					conns[fd] = c
				}
			} else if !echoOnce(conns[fd], buf) {
				conns[fd].Close()
				delete(conns, fd)
			}
		}
	}
}

// echoOnce sends back the bytes that it receives. It reports whether the connection is still open.
func echoOnce(c *sock.Socket, buf []byte) bool {
	n, err := c.Recv(buf)
	if err == sock.ErrWouldBlock {
		return true
	}
	for sent := 0; err == nil && sent < n; {
		var k int
		if k, err = c.Send(buf[sent:n]); err == sock.ErrWouldBlock {
			_, err = unix.Poll([]unix.PollFd{{Fd: int32(c.Handle()), Events: unix.POLLOUT}}, -1)
		}
		sent += k
	}
	return err == nil
}

// loopCore is the event core on level-triggered epoll, by hand in Go.
func loopCore(p Params, t *tokens) (Outcome, error) {
	l, err := newLoop(p.Batch)
	if err != nil {
		return Outcome{}, err
	}
	if err := t.each(l.add); err != nil {
		return Outcome{}, err
	}
	t.begin()
	var buf [8]byte
	var ops int64
	w := startWatch()
	until := time.Now().Add(p.Duration())
	for turns := 1; turns%16 != 0 || time.Now().Before(until); turns++ {
		events, err := l.wait()
		if err != nil {
			return Outcome{}, err
		}
		for i := range events {
			ops += t.pass(int(events[i].Fd), &buf)
		}
	}
	return w.stop(ops), nil
}
