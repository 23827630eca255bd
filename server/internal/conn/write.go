package conn

import (
	"bytes"
	"net"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/sock"
)

func (c *Conn) Write(b []byte) (int, error) {
	if c.wrapped {
		return c.transport().Write(b)
	}
	n, err := 0, error(nil)
	c.mu.Lock()
	// output.shut need not be looked at, because it implies wOut.
	if c.word.Load()&(wOver|wShut|wOut|wGrace|wGather|wHeld) == 0 && !c.rated &&
		len(b) > 0 && len(b) <= maxHeld {
		c.sent()
		if n, err = c.sendSocket(b); n == len(b) && err == nil {
			c.mu.Unlock()
			return n, nil
		}
	}
	n, err = c.writeOn(n, err, len(b), b)
	c.mu.Unlock()
	return n, err
}

// send is Write for a transport.
func (c *Conn) send(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeOn(0, nil, len(b), b)
}

// sendSocket sends on the socket. The lock is held.
func (c *Conn) sendSocket(b []byte) (int, error) {
	n, err := c.held.Send(b)
	c.shared().traffic.sent(n)
	return n, err
}

const (
	// maxHeld bounds a write that is copied, to be sent together with others.
	maxHeld = 16 << 10
	// maxGathered bounds the bytes of several such writes.
	maxGathered = 64 << 10
)

func (c *Conn) Writev(bufs [][]byte) (total int, err error) {
	for _, b := range bufs {
		total += len(b)
	}
	if c.wrapped {
		return c.transport().Write(bytes.Join(bufs, nil))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeOn(0, nil, total, bufs...)
}

// writeOn continues a write of total bytes, of which n were sent, with the error of that send. If n
// is not 0, there is one buffer. The lock is held.
func (c *Conn) writeOn(n int, err error, total int, bufs ...[]byte) (int, error) {
	if c.join(total, bufs...) {
		return total, nil
	}
	refused := c.mayWrite()
	if c.wrapped && c.feeds() {
		refused = nil // the transport sends a source, after Close too
	}
	switch {
	case refused != nil:
		return n, refused
	case err != nil && err != sock.ErrWouldBlock:
		c.lost(err)
		return n, err
	case n == total:
		return n, nil
	case n == 0:
		if !c.wrapped { // a transport has been accepted, before it encrypted
			if err := c.accept(total, err); err != nil {
				return 0, err
			}
			if c.writeBehind(bufs...) {
				return total, nil
			}
		}
		if c.hold(total, bufs...) {
			return total, nil
		}
	}
	q := &c.ensureExtra().out
	q.vec = append(q.vec[:0], bufs...)
	q.vec[0] = q.vec[0][n:]
	return c.sendVec(q, total, n, err == nil)
}

// mayWrite returns an error if nothing can be written. The lock is held.
func (c *Conn) mayWrite() error {
	word := c.word.Load()
	if err := c.sendable(); err != nil {
		return err
	}
	if word&(wGrace|wReceived) == wGrace|wReceived {
		c.EndGrace() // this write answers the first request
	}
	c.sent()
	return nil
}

// accept returns an error if a write of n bytes is refused, of which nothing was sent. err is the
// error of an attempt to send. The lock is held.
//
// A small write to a connection with nothing queued is not refused because of MaxQueuedTotal,
// unless the system takes nothing of it. Otherwise peers that do not read could have those refused
// that do.
func (c *Conn) accept(n int, err error) error {
	s := c.shared()
	if c.word.Load()&wHeld != 0 && c.queuedBytes() >= s.MaxQueued {
		c.sendHeld()
	}
	switch {
	case n == 0:
	case c.queuedBytes() >= s.MaxQueued:
		return c.queueFull()
	case s.MaxQueuedTotal > 0 && (n > maxHeld || err != nil || c.word.Load()&wOut != 0) &&
		s.Counts.Queued.Load()+int64(n) > s.MaxQueuedTotal:
		s.Counts.Overloads.Add(1)
		return ErrOverload
	}
	return nil
}

// queueFull returns the error of a write for which the queue has no room. The lock is held.
func (c *Conn) queueFull() error {
	s := c.shared()
	if s.SlowPolicy == serving.SlowClose {
		s.Counts.Slow.Add(1)
		c.failLocked(ErrSlow)
		return ErrSlow
	}
	c.set(wWritable)
	return ErrQueueFull
}

// join adds a write to those that are held already, if there are any and it fits, and reports
// whether it has. The lock is held, so nothing of what is held is sent. All that hold and its
// callers look at was looked at for the first of these writes.
func (c *Conn) join(total int, bufs ...[]byte) bool {
	if c.word.Load()&(wHeld|wOver|wShut) != wHeld || total > maxHeld {
		return false
	}
	q := &c.extra.out
	if n := len(q.queue); n+total > maxGathered || n-q.head >= c.shared().MaxQueued {
		return false
	}
	for _, b := range bufs {
		q.push(&c.shared().buffers, b)
	}
	return true
}

// hold keeps a write of a handler's call until that returns, unless it is large, and reports
// whether it has. It must follow accept, which may send what was held before. The lock is held, so
// wOut does not change; a call that returns clears wGather without it.
func (c *Conn) hold(total int, bufs ...[]byte) bool {
	word := c.word.Load()
	if c.rated || word&wOut != 0 || word&(wGather|wHeld) == 0 || total > maxHeld {
		return false
	}
	q := &c.ensureExtra().out
	if len(q.queue)+total > maxGathered {
		return false
	}
	if word = c.word.Or(wHeld); word&(wGather|wHeld) == 0 { // the call has returned in this moment
		c.word.And(^uint32(wHeld))
		return false
	}
	for _, b := range bufs {
		q.push(&c.shared().buffers, b)
	}
	return true
}

// SendGathered sends what a handler's call has written that takes long.
func (c *Conn) SendGathered() {
	if c.word.Load()&wGather != 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sendHeld()
	}
}

// sendHeld sends what was held. The lock is held.
func (c *Conn) sendHeld() {
	if c.word.And(^uint32(wHeld|wGather))&wHeld == 0 {
		return
	}
	q := &c.extra.out
	n, err := c.sendSocket(q.queue[q.head:])
	if q.head += n; q.head == len(q.queue) {
		c.emptied(q)
		return
	}
	if n > 0 && err == nil {
		n, err = c.sendSocket(q.queue[q.head:])
		q.head += n
	}
	if err != nil && err != sock.ErrWouldBlock {
		q.drop(&c.shared().buffers)
		c.lost(err)
		return
	}
	c.queued(q, q.left())
}

// sendVec sends what was held and then the buffers of q.vec, unless bytes are queued before or
// trying is in vain, and queues what the system does not take. n bytes of the write's total were
// sent before. The lock is held.
func (c *Conn) sendVec(q *output, total, n int, try bool) (int, error) {
	held := 0 // bytes in front of the write
	if c.word.Load()&wHeld != 0 {
		c.word.And(^uint32(wHeld))
		held = q.left()
		q.vec = append(q.vec, nil)
		copy(q.vec[1:], q.vec)
		q.vec[0] = q.queue[q.head:]
	}
	vec := q.vec
	left := held + total - n
	for try && left > 0 && !c.rated && c.word.Load()&wOut == 0 {
		k, err := c.held.SendV(vec)
		c.shared().traffic.sent(k)
		left -= k
		if h := min(k, held); h > 0 {
			held -= h
			q.head += h
		}
		for k > 0 && len(vec) > 0 {
			j := min(k, len(vec[0]))
			k -= j
			if vec[0] = vec[0][j:]; len(vec[0]) == 0 {
				vec = vec[1:]
			}
		}
		if err == sock.ErrWouldBlock {
			break
		}
		if err != nil {
			sent := max(held+total-left, 0)
			clear(q.vec)
			q.drop(&c.shared().buffers)
			c.lost(err)
			return sent, err
		}
	}
	if left > 0 {
		for i, b := range vec {
			if i > 0 || held == 0 {
				q.push(&c.shared().buffers, b)
			}
		}
	}
	clear(q.vec) // the slices belong to the caller
	if left == 0 {
		if c.word.Load()&wOut == 0 {
			c.emptied(q)
		}
		return total, nil
	}
	c.queued(q, left)
	if c.rated {
		c.drain(q) // as much as is allowed
	}
	return total, nil
}

// queued notes that n more bytes are queued. The lock is held.
func (c *Conn) queued(q *output, n int) {
	s := c.shared()
	s.Counts.Queued.Add(int64(n))
	bits := uint32(wOut)
	if q.left() > s.MaxQueued/2 {
		bits |= wFull
	}
	if c.word.Load()&bits == bits {
		return
	}
	if was := c.set(bits); was&wOut == 0 {
		c.beginOut(q)
	}
}

// beginOut begins the time for WriteTimeout. The lock is held.
func (c *Conn) beginOut(q *output) {
	s := c.shared()
	q.since = s.Wheel.Now()
	if limit := c.writeLimit(); limit > 0 {
		s.Wheel.Hasten(c, limit)
	}
}

func (c *Conn) WantWritable() {
	if c.word.Load()&wNoOut != 0 {
		c.goOn()
	}
	c.set(wWritable)
}

// goOn has a reader asked again that had nothing.
func (c *Conn) goOn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.extra; x != nil && x.out.source != nil {
		x.out.since = c.shared().Wheel.Now()
		c.word.And(^uint32(wNoOut))
	}
}

// emptied is called when the last byte of the queue was sent. The lock is held.
func (c *Conn) emptied(q *output) {
	q.drop(&c.shared().buffers)
	c.dropExtra()
}

// drain sends queued bytes, and reports whether at most half of the write queue is still in use.
// The lock is held.
func (c *Conn) drain(q *output) bool {
	s := c.shared()
	for q.head < len(q.queue) {
		allowed := q.left()
		if c.rated {
			allowed = c.allow(&c.extra.rates.out, allowed)
		}
		if allowed == 0 {
			break
		}
		n, err := c.sendSocket(q.queue[q.head : q.head+allowed])
		if n > 0 {
			if c.rated {
				c.extra.rates.out.took(n)
			}
			q.head += n
			s.Counts.Queued.Add(-int64(n))
			q.since = s.Wheel.Now()
		}
		if err == sock.ErrWouldBlock {
			break
		}
		if err != nil {
			c.lost(err)
			return false
		}
	}
	left := q.left()
	if q.source != nil {
		if left == 0 {
			q.drop(&c.shared().buffers)
		}
		return false
	}
	if left > s.MaxQueued/2 {
		return false
	}
	c.word.And(^uint32(wFull))
	if left == 0 {
		c.word.And(^uint32(wOut))
		if q.shut {
			q.shut = false
			c.shutLocked()
		}
		c.emptied(q)
	}
	return true
}

func (c *Conn) CloseWrite() error {
	if c.wrapped {
		return c.transport().CloseWrite()
	}
	return c.shut()
}

func (c *Conn) shut() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.sendable(); err != nil {
		return err
	}
	if c.sendHeld(); c.word.Load()&wOut != 0 {
		c.extra.out.shut = true
		return nil
	}
	return c.shutLocked()
}

func (c *Conn) shutLocked() error {
	err := c.Socket().Shutdown(sock.ShutWrite)
	if err != nil {
		c.lost(err)
		return err
	}
	c.set(wShut)
	return nil
}

// sendable returns an error if nothing can be sent any more. The lock is held.
func (c *Conn) sendable() error {
	word := c.word.Load()
	switch {
	case word&wHijacked != 0:
		return errHijacked
	case word&(wOver|wShut) != 0, c.extra != nil && c.extra.out.shut:
		return net.ErrClosed
	}
	return nil
}

func (c *Conn) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queuedBytes()
}

// queuedBytes is Queued with the lock held.
func (c *Conn) queuedBytes() int {
	if c.extra == nil {
		return 0
	}
	return c.extra.out.total()
}

// admit decides about a write before it is encrypted: a record that is not sent would be missing at
// the peer. It returns an error if the write is refused, and true if it was appended to the sources.
// The lock is held.
func (c *Conn) admit(b []byte) (behind bool, err error) {
	if err = c.mayWrite(); err == nil {
		err = c.accept(len(b), nil)
	}
	return err == nil && c.writeBehind(b), err
}

// feeds reports whether a source is being sent, which goes on after Close and CloseWrite. The lock
// is held.
func (c *Conn) feeds() bool {
	return c.extra != nil && c.extra.out.source != nil && c.word.Load()&(wAborting|wDead|wShut) == 0
}

// writeBehind appends bytes to the sources, if there are any. The lock is held.
func (c *Conn) writeBehind(bufs ...[]byte) bool {
	if c.extra == nil || c.extra.out.source == nil {
		return false
	}
	q := &c.extra.out
	last := q.source
	for last.next != nil {
		last = last.next
	}
	if last.r != nil || last.f != nil {
		last.next = new(source)
		last = last.next
	}
	for _, b := range bufs {
		last.b = append(last.b, b...)
		q.behind += len(b)
		c.shared().Counts.Queued.Add(int64(len(b)))
	}
	return true
}

// notifyLater has the close_notify sent after the last source, if there are any, and reports
// whether it has. The lock is held.
func (c *Conn) notifyLater() (bool, error) {
	err := c.sendable()
	later := err == nil && c.feeds()
	if later {
		c.extra.out.notify = true
	}
	return later, err
}
