package conn

import "time"

// Late prepares a connection that was accepted before Shutdown, and is added after it began. over
// says that the time for first requests is over. The connection is not started.
func (c *Conn) Late(over bool) {
	if over {
		c.word.Or(wLast | wResumed)
	} else {
		c.word.Or(wGrace)
	}
}

// LastRequest ends a connection's stream because of Shutdown, or leaves it open for
// the first request, if it was accepted within the grace.
func (c *Conn) LastRequest(grace time.Duration) {
	s := c.shared()
	young := int64(int32(uint32(s.Wheel.Now())-c.active.Load())) <= int64(s.Wheel.Ticks(grace))
	if young && c.word.Load()&wReceived == 0 {
		// If the handler has received nothing when the bit is set, the answer is still to come, and
		// finds the bit. If it has received something, the answer may have been sent already.
		if c.word.Or(wGrace)&wReceived == 0 {
			return
		}
		c.word.And(^uint32(wGrace))
	}
	c.set(wLast | wResumed)
}

// EndGrace ends the stream of a connection whose first request was answered, or whose time is over.
func (c *Conn) EndGrace() {
	if c.word.And(^uint32(wGrace))&wGrace != 0 {
		c.set(wLast | wResumed)
	}
}
