package docs_test

import (
	"net"
	"sync"
	"testing"

	"github.com/socknotify/socknotify/internal/test/backendtest"
	"github.com/socknotify/socknotify/park"
	"github.com/socknotify/socknotify/server"
)

func serveNet(conn net.Conn) {
	defer conn.Close()
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		if _, err := conn.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A parked server is the same with its connections parked.
type parked struct {
	lot     *park.Lot
	buffers sync.Pool
}

func (p *parked) serve(conn net.Conn) {
	buf := p.buffers.Get().(*[4096]byte)
	defer p.buffers.Put(buf)
	n, err := conn.Read(buf[:]) // does not wait
	if err == nil {
		_, err = conn.Write(buf[:n])
	}
	if err == nil {
		err = p.lot.Park(conn, p.serve) // in the place of the loop
	}
	if err != nil {
		conn.Close()
	}
}

type echo struct{}

func (*echo) Open(c *server.Conn[struct{}]) error         { return nil }
func (*echo) Close(c *server.Conn[struct{}], cause error) {}
func (*echo) Data(c *server.Conn[struct{}], buf []byte) error {
	n, err := c.Read(buf)
	if err == nil {
		_, err = c.Write(buf[:n])
	}
	return err
}

// accepted runs a function for each connection of a listener.
func accepted(t *testing.T, f func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { f(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

func TestFromNet(t *testing.T) {
	echoed(t, accepted(t, serveNet))
}

func TestFromNetParked(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		lot, err := park.New(park.Config{Backend: backend})
		if err != nil {
			t.Fatal(err)
		}
		p := &parked{lot: lot, buffers: sync.Pool{New: func() any { return new([4096]byte) }}}
		echoed(t, accepted(t, p.serve))
		if err := lot.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestFromNetServer(t *testing.T) {
	backendtest.Each(t, func(t *testing.T, backend string) {
		c := serving(t, &echo{}, backend)
		echoed(t, c.RemoteAddr().String())
	})
}
