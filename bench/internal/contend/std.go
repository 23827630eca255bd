package contend

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cloudwego/netpoll"
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

// stdCore is the event core on Go's poller: a goroutine for each socket.
func stdCore(p Params, t *tokens) (Outcome, error) {
	var ops atomic.Int64
	var running, parking sync.WaitGroup
	var files []*os.File
	err := t.each(func(fd, k int) error {
		f := os.NewFile(uintptr(fd), "")
		files = append(files, f)
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		parking.Add(1)
		running.Go(func() {
			var buf [8]byte
			parks := sync.OnceFunc(parking.Done)
			ready := func(uintptr) bool {
				if k >= 0 && t.take(k, &buf) { // an inactive socket has nothing to read before it is closed
					return true
				}
				parks()
				return false
			}
			for {
				if raw.Read(ready) != nil {
					return
				}
				ops.Add(1)
				t.give(k ^ 1)
			}
		})
		return nil
	})
	if err != nil {
		return Outcome{}, err
	}
	parking.Wait()
	t.begin()
	w, before := startWatch(), ops.Load()
	time.Sleep(p.Duration())
	o := w.stop(ops.Load() - before)
	for _, f := range files {
		f.Close() // it owns the descriptor
	}
	running.Wait()
	t.out = nil
	return o, nil
}
