package contend

import (
	"context"
	"net"
	"runtime"

	"github.com/cloudwego/netpoll"
	"golang.org/x/sys/unix"

	"github.com/socknotify/socknotify/sock"
)

// serveStd is the standard library: a goroutine for each connection.
func serveStd(_ Params, ready func(string)) error {
	return serveConns(ready, func(c net.Conn) {
		defer c.Close()
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	})
}

// serveConns serves each connection in a goroutine.
func serveConns(ready func(string), serve func(net.Conn)) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ready(l.Addr().String())
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go serve(c)
	}
}

// serveNetpoll is cloudwego/netpoll with as many pollers as cores.
func serveNetpoll(p Params, ready func(string)) error {
	if err := netpoll.Configure(netpoll.Config{PollerNum: p.Cores}); err != nil {
		return err
	}
	l, err := netpoll.CreateListener("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handle := func(_ context.Context, c netpoll.Connection) error {
		r, w := c.Reader(), c.Writer()
		b, err := r.Next(r.Len())
		if err != nil {
			return err
		}
		room, err := w.Malloc(len(b))
		if err != nil {
			return err
		}
		copy(room, b)
		if err := r.Release(); err != nil {
			return err
		}
		return w.Flush()
	}
	server, err := netpoll.NewEventLoop(handle)
	if err != nil {
		return err
	}
	ready(l.Addr().String())
	return server.Serve(l)
}

// serveLoop is epoll by hand in Go, level-triggered: a thread, an epoll descriptor and a listener for
// each core.
func serveLoop(p Params, ready func(string)) error {
	listeners, err := sock.ListenTCPGroup(sock.Loopback, sock.ListenOptions{}, p.Cores)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for _, l := range listeners {
		go func() {
			runtime.LockOSThread()
			failed <- echoLoop(l)
		}()
	}
	ready(listeners[0].LocalAddr().String())
	return <-failed
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
