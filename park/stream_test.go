package park

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
)

// bufferedConn is a connection that reads ahead, as those of many protocols do.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func buffered(conn net.Conn) net.Conn { return &bufferedConn{conn, bufio.NewReader(conn)} }

func (c *bufferedConn) Read(p []byte) (int, error) { return c.in.Read(p) }
func (c *bufferedConn) NetConn() net.Conn          { return c.Conn }

var copyBuffers = sync.Pool{New: func() any { return new([4096]byte) }}

// copier is the function of docs/park.md, for a connection whose bytes go to another, or back if to is nil. turns,
// if not nil, counts its calls.
func copier(lot *Lot, to net.Conn, turns *atomic.Int64) func(net.Conn) {
	var serve func(net.Conn)
	serve = func(conn net.Conn) {
		if turns != nil {
			turns.Add(1)
		}
		out := to
		if out == nil {
			out = conn
		}
		buf := copyBuffers.Get().(*[4096]byte)
		defer copyBuffers.Put(buf)
		n, err := conn.Read(buf[:])
		if err == nil {
			_, err = out.Write(buf[:n])
		}
		if err == nil {
			err = lot.Park(conn, serve)
		}
		if err != nil {
			conn.Close()
			out.Close()
		}
	}
	return serve
}
