package server

import (
	"net"

	"github.com/socknotify/socknotify/sock"
)

func (c *conn) Write(b []byte) (int, error) { return c.write(b, c.wrapped) }

// send is Write without the transport.
func (c *conn) send(b []byte) (int, error) { return c.write(b, false) }

// write is Write, which is small enough to be inlined.
func (c *conn) write(b []byte, wrapped bool) (int, error) {
	if wrapped {
		return c.extra.transport.Write(b)
	}
	n, err := 0, error(nil)
	c.mu.Lock()
	// extra.shut need not be looked at, because it implies wOut.
	if c.word.Load()&(wOver|wShut|wOut|wGrace) == 0 && len(b) > 0 {
		c.touch(uint32(c.server().wheel.Now()))
		if n, err = c.held.Send(b); n == len(b) && err == nil {
			c.mu.Unlock()
			return n, nil
		}
	}
	n, err = c.writeOn(b, n, err)
	c.mu.Unlock()
	return n, err
}

// writeOn continues a write of which n bytes were sent, with the error of that send. The lock is held.
func (c *conn) writeOn(b []byte, n int, err error) (int, error) {
	word := c.word.Load()
	switch {
	case word&wHijacked != 0:
		return n, errHijacked
	case word&(wOver|wShut) != 0, c.extra != nil && c.extra.shut:
		return n, net.ErrClosed
	}
	if word&(wGrace|wReceived) == wGrace|wReceived {
		c.endGrace() // this write answers the first request
	}
	c.touch(uint32(c.server().wheel.Now()))
	for word&wOut == 0 && err != sock.ErrWouldBlock {
		if err != nil {
			c.lost(err)
			return n, err
		}
		if n == len(b) {
			return n, nil
		}
		var k int
		k, err = c.held.Send(b[n:])
		n += k
	}
	return c.enqueue(b, n)
}

// enqueue queues b[n:], as far as the queue has room. The lock is held.
func (c *conn) enqueue(b []byte, n int) (int, error) {
	s := c.server()
	x := c.ensureExtra()
	most := s.writeQueue()
	k := len(b) - n
	if !c.wrapped { // a transport has checked the room before it encrypted
		k = min(k, most-len(x.queue)+x.head)
	}
	if k > 0 {
		if total := s.counts.queued.Add(int64(k)); s.MaxQueued > 0 && total > s.MaxQueued {
			s.counts.queued.Add(-int64(k))
			s.counts.overloads.Add(1)
			c.failLocked(ErrOverload, wAborting)
			return n, ErrOverload
		}
		x.push(b[n : n+k])
		n += k
	}
	bits := uint32(wOut)
	if len(x.queue)-x.head > most/2 {
		bits |= wFull
	}
	if n < len(b) {
		bits |= wWritable
	}
	if c.word.Load()&bits != bits {
		was := c.set(bits)
		if was&wOut == 0 {
			x.since = s.wheel.Now()
			if limit := c.writeLimit(); limit > 0 {
				s.wheel.Hasten(c, limit)
			}
		}
	}
	if n < len(b) {
		return n, ErrQueueFull
	}
	return n, nil
}

func (c *conn) WantWritable() { c.set(wWritable) }

func (x *extra) push(b []byte) {
	if x.head > 0 && len(x.queue)+len(b) > cap(x.queue) {
		x.queue = x.queue[:copy(x.queue, x.queue[x.head:])]
		x.head = 0
	}
	x.queue = append(x.queue, b...)
}

// flush sends queued bytes, and reports whether Writable is to be called. The caller owns the connection.
func (c *conn) flush() (goOn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	word := c.word.Load()
	if word&wAborting != 0 {
		return false
	}
	if word&wOut != 0 && !c.drain(c.extra) || word&wHijacked != 0 {
		return false
	}
	return c.word.And(^uint32(wWritable))&wWritable != 0
}

// drain sends queued bytes, and reports whether at most half of the write queue is still in use. The lock is held.
func (c *conn) drain(x *extra) bool {
	s := c.server()
	for x.head < len(x.queue) {
		n, err := c.held.Send(x.queue[x.head:])
		if n > 0 {
			x.head += n
			s.counts.queued.Add(-int64(n))
			x.since = s.wheel.Now()
		}
		if err == sock.ErrWouldBlock {
			break
		}
		if err != nil {
			c.lost(err)
			return false
		}
	}
	left := len(x.queue) - x.head
	if left > s.writeQueue()/2 {
		return false
	}
	c.word.And(^uint32(wFull))
	if left == 0 {
		c.word.And(^uint32(wOut))
		x.queue, x.head = x.queue[:0], 0
		if x.shut {
			x.shut = false
			c.shutLocked()
		}
		c.dropExtra()
	}
	return true
}

func (c *conn) CloseWrite() error {
	if c.wrapped {
		return c.extra.transport.CloseWrite()
	}
	return c.shut()
}

func (c *conn) shut() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	word := c.word.Load()
	switch {
	case word&wHijacked != 0:
		return errHijacked
	case word&(wOver|wShut) != 0, c.extra != nil && c.extra.shut:
		return net.ErrClosed
	case word&wOut != 0:
		c.extra.shut = true
		return nil
	}
	return c.shutLocked()
}

func (c *conn) shutLocked() error {
	err := c.socket().Shutdown(sock.ShutWrite)
	if err != nil {
		c.lost(err)
		return err
	}
	c.set(wShut)
	return nil
}

// ensureExtra returns the extra, and makes it if there is none. The lock is held.
func (c *conn) ensureExtra() *extra {
	if c.extra == nil {
		c.extra = c.server().extras.Get().(*extra)
	}
	return c.extra
}

// maxKeptQueue bounds the capacity of a queue that is reused for another connection.
const maxKeptQueue = 64 << 10

// dropExtra gives the extra back to the pool if nothing is in it. The lock is held.
func (c *conn) dropExtra() {
	x := c.extra
	if x == nil || len(x.queue) > 0 || x.shut || x.failed || x.idle != 0 || x.slow != 0 || x.transport != nil || x.hijacked != nil || x.in != nil || x.back != nil {
		return
	}
	c.extra = nil
	if cap(x.queue) <= maxKeptQueue {
		x.since = 0
		c.server().extras.Put(x)
	}
}

func (c *conn) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.extra == nil {
		return 0
	}
	return len(c.extra.queue) - c.extra.head
}
