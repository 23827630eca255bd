package conn

import (
	"log/slog"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/server/internal/engine"
	"github.com/socknotify/socknotify/sock"
)

// filter returns the events that a connection with a word waits for. The end of the stream is
// EventIn.
func filter(word uint32) (f socknotify.Events) {
	if word&wNoRead == 0 {
		f = socknotify.EventIn
	}
	if word&(wOut|wWritable) != 0 && word&wNoOut == 0 {
		f |= socknotify.EventOut
	}
	return f
}

// A step is what release does with a connection next.
type step int

const (
	stepEnable step = iota // give it up and enable its registration
	stepAgain              // read its word again
	stepLeave              // nothing: it ends, has another owner, or will be posted
)

// release gives up the ownership of a connection and enables its registration, so that the next
// notification may go to any worker. If the word says so, it ends the connection instead, or calls
// Data.
func (o *Owner) release(c *Conn) {
	for {
		word := c.word.Load()
		if word&wSpecial != 0 {
			switch o.attend(c, word) {
			case stepAgain:
				continue
			case stepLeave:
				return
			}
		}
		s := c.Socket() // while the connection is owned
		if !c.word.CompareAndSwap(word, word&^wOwned) {
			continue
		}
		if o.enable(c, s, filter(word)); !c.reacquire(filter(word)) {
			return
		}
	}
}

// attend does what a connection needs before its release, other than enabling. The worker owns it.
func (o *Owner) attend(c *Conn, word uint32) step {
	switch {
	case word&(wResumed|wFull) == wResumed: // otherwise when the queue is drained
		// A Resume in between counts too: its bits are in the word that And returns.
		if word = c.word.And(^uint32(wResumed | wAgain)); word&(wOver|wPaused) == 0 {
			o.data(c, word&(wAgain|wBack) != 0)
		}
		return stepAgain
	case word&(wHijacked|wDead) == wHijacked:
		return c.attendHijacked(word)
	case o.ends(c, word):
		return stepLeave
	case word&wDue != 0:
		o.fire(c)
		return stepAgain
	case word&wAgain != 0 && word&(wOver|wFull|wPaused) == 0,
		word&(wMore|wLast) != 0 && word&wNoRead == 0:
		return o.callLater(c, word)
	}
	return stepEnable
}

// attendHijacked hands the socket of a connection to its hijacker once no bytes are queued. If the
// hijacker has it, the connection keeps its owner bit without an owner (see wReleased).
func (c *Conn) attendHijacked(word uint32) step {
	switch {
	case word&wDetached != 0:
		if c.word.CompareAndSwap(word, word|wReleased) {
			return stepLeave
		}
		return stepAgain
	case word&wOut != 0:
		return stepEnable // the queued bytes are sent first
	}
	c.handOver()
	return stepAgain
}

// callLater has Data called after the notifications that are queued already, so that other
// connections are served in between. It enables the registration for room alone.
func (o *Owner) callLater(c *Conn, word uint32) step {
	s := c.Socket()
	if !c.word.CompareAndSwap(word, word&^wOwned|wResumed) {
		return stepAgain
	}
	if f := filter(word) &^ socknotify.EventIn; f != 0 {
		o.enable(c, s, f)
	}
	c.wake()
	return stepLeave
}

// ReleaseKept is release for the connections of several notifications, with one call of the port.
// No handler is called: a connection whose word needs more than enabling is posted.
func (o *Owner) ReleaseKept(kept []socknotify.Notification[*Key]) {
	for i := range kept {
		if c := (*Conn)(kept[i].Key); c != nil {
			kept[i].Key = nil
			o.queueEnable(c)
		}
	}
	for o.nregs > 0 {
		regs := o.regs[:o.nregs]
		o.nregs = 0
		o.port.Process(regs, nil, 0)
		for i := range regs {
			r := &regs[i]
			c, f := (*Conn)(r.Key), r.Filter
			s := r.Conn.(*sock.Socket)
			r.Key, r.Conn = nil, nil // an idle worker must not keep a connection alive
			if r.Result != nil {
				c.refused(s, r.Result)
			}
			if c.reacquire(f) {
				o.queueEnable(c) // at an index of regs that the loop has passed
			}
		}
	}
}

// queueEnable gives up the ownership of a connection and adds its registration to regs.
func (o *Owner) queueEnable(c *Conn) {
	for {
		s, word := c.Socket(), c.word.Load()
		if !c.word.CompareAndSwap(word, word&^wOwned) {
			continue
		}
		if word&wSpecial != 0 {
			c.wake()
			return
		}
		r := &o.regs[o.nregs]
		o.nregs++
		r.Conn, r.Key, r.Filter = s, c.Key(), filter(word)
		return
	}
}

// reacquire acquires a connection that was released and enabled for a filter, if that is no longer
// the filter to wait for. In between, another owner may have enabled it for more events, and this
// enable may have come after that.
func (c *Conn) reacquire(f socknotify.Events) bool {
	word := c.word.Load()
	return word&wOwned == 0 && filter(word) != f && c.word.Or(wOwned)&wOwned == 0
}

// enable enables the registration of a connection that was released.
func (o *Owner) enable(c *Conn, s *sock.Socket, f socknotify.Events) {
	r := &o.reg[0]
	r.Conn, r.Key, r.Filter, r.Op = s, c.Key(), f, socknotify.OpEnable
	o.shared.Ports[c.Shard].Process(o.reg[:], nil, 0)
	r.Conn, r.Key = nil, nil // an idle worker must not keep a connection alive
	if r.Result != nil {
		c.refused(s, r.Result)
	}
}

// refused closes a connection that could not be enabled, unless it has another owner by now.
func (c *Conn) refused(s *sock.Socket, err error) {
	c.mu.Lock()
	is := c.Socket() == s && c.word.Load()&(wOwned|wAborting) == 0
	if is {
		c.failLocked(err)
	}
	c.mu.Unlock()
	if srv := c.shared(); is && engine.RefusedBySystem(err) {
		srv.Log(slog.LevelWarn, "cannot watch a connection, closing it", "err", err)
	}
}

// data calls Data. Unless it must be called, an input is asked first whether what it waits for has
// arrived.
func (o *Owner) data(c *Conn, must bool) {
	if c.word.Load()&wHandshake != 0 {
		o.opening(c)
		return
	}
	if !must && c.word.Load()&wInput != 0 && !c.moreInput() {
		return
	}
	o.call(c)
}
