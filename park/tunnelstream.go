package park

import (
	"net"
	"sync/atomic"
	"time"
)

// A tunnelStream is a stream of HTTP/2 as the connection of a tunnel's side.
//
// A stream says once that something has changed, and not what, where a socket says for what it is
// ready as often as the lot asks. So a tunnelStream remembers for what a change was not used yet:
// Read and Write clear that before they find out what there is.
type tunnelStream struct {
	muxedConn
	side    *tunnelSide
	changed atomic.Uint32 // an awaited
}

// stream returns the connection of a side that is a stream of HTTP/2, or nil.
func (s *tunnelSide) stream() *tunnelStream {
	c, _ := s.conn.(*tunnelStream)
	return c
}

// wake makes the function of a parked side run.
func (s *tunnelSide) wake() {
	if c := s.stream(); c != nil {
		c.wake(s.of.in.lot)
	} else {
		s.of.in.lot.Wake(s.conn)
	}
}

// Wake is called by the stream, which is locked.
func (c *tunnelStream) Wake() {
	c.changed.Or(uint32(awaitRead | awaitWrite | awaitReset))
	c.wake(c.side.of.in.lot)
}

// Read returns 0 and no error if there is nothing.
func (c *tunnelStream) Read(b []byte) (int, error) {
	c.changed.And(^uint32(awaitRead))
	n, err := c.stream.Read(b)
	if n == len(b) {
		c.changed.Or(uint32(awaitRead)) // there may be more
	}
	return n, err
}

// Write writes what the client's windows permit.
func (c *tunnelStream) Write(b []byte) (n int, err error) {
	c.changed.And(^uint32(awaitWrite))
	if n = c.stream.Write(b); n < len(b) {
		err = c.stream.Err()
	}
	return n, err
}

// failure returns the error with which the stream has ended, or nil.
func (c *tunnelStream) failure() error {
	c.changed.And(^uint32(awaitReset))
	return c.stream.Err()
}

// park parks the side, for at most the time left unless that is negative.
func (c *tunnelStream) park(lot *Lot, want awaited, left time.Duration) error {
	again, err := true, error(nil)
	for again && err == nil { // it has changed, which await finds
		again, err = lot.parkUnbound(&c.unbound, c, runTunnelStream, left)
	}
	if err == nil {
		c.await(want)
	}
	return err
}

// await makes the function of the parked side run if there is already what the side waits for.
func (c *tunnelStream) await(want awaited) {
	if c.changed.Load()&uint32(want) != 0 {
		c.wake(c.side.of.in.lot)
	}
}

func runTunnelStream(conn net.Conn) { conn.(*tunnelStream).side.run() }

// end ends the stream, and the parking of the side.
func (c *tunnelStream) end(reset bool) {
	if reset {
		c.stream.Reset()
	} else {
		c.stream.Close()
	}
	c.wake(c.side.of.in.lot)
}
