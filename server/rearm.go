package server

import (
	"log/slog"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// filter returns the events that a connection with a word waits for. The end of the stream is EventIn.
func filter(word uint32) (f socknotify.Events) {
	if word&wNoRead == 0 {
		f = socknotify.EventIn
	}
	if word&(wOut|wWritable) != 0 && word&wNoOut == 0 {
		f |= socknotify.EventOut
	}
	return f
}

// wake posts a connection that has no owner, so that a worker acquires it and acts on its word.
func (c *conn) wake() {
	if c.word.Or(wPosted)&wPosted == 0 {
		s := c.server()
		s.shards[c.shard].Post(c.key(), 0)
	}
}

// set sets bits of the word. If the connection has an owner, that acts on them when it releases the connection;
// otherwise a worker is woken.
func (c *conn) set(bits uint32) (was uint32) {
	was = c.word.Or(bits)
	if was&wOwned == 0 {
		c.wake()
	}
	return was
}

const oneShot = socknotify.TriggerLevel | socknotify.TriggerOneShot

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
func (w *worker) release(c *conn) {
	for {
		word := c.word.Load()
		if word&wSpecial != 0 {
			switch w.attend(c, word) {
			case stepAgain:
				continue
			case stepLeave:
				return
			}
		}
		s := c.socket() // while the connection is owned
		if !c.word.CompareAndSwap(word, word&^wOwned) {
			continue
		}
		if w.enable(c, s, filter(word)); !c.reacquire(filter(word)) {
			return
		}
	}
}

// attend does what a connection needs before its release, other than enabling. The worker owns it.
func (w *worker) attend(c *conn, word uint32) step {
	switch {
	case word&(wResumed|wFull) == wResumed: // otherwise when the queue is drained
		// A Resume in between counts too: its bits are in the word that And returns.
		if word = c.word.And(^uint32(wResumed | wAgain)); word&(wOver|wPaused) == 0 {
			w.data(c, word&(wAgain|wBack) != 0)
		}
		return stepAgain
	case word&(wHijacked|wDead) == wHijacked:
		return c.attendHijacked(word)
	case w.ends(c, word):
		return stepLeave
	case word&wDue != 0:
		w.fire(c)
		return stepAgain
	case word&wAgain != 0 && word&(wOver|wFull|wPaused) == 0,
		word&(wMore|wLast) != 0 && word&wNoRead == 0:
		return w.callLater(c, word)
	}
	return stepEnable
}

// attendHijacked hands the socket of a connection to its hijacker once no bytes are queued. If the
// hijacker has it, the connection keeps its owner bit without an owner (see wReleased).
func (c *conn) attendHijacked(word uint32) step {
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
func (w *worker) callLater(c *conn, word uint32) step {
	s := c.socket()
	if !c.word.CompareAndSwap(word, word&^wOwned|wResumed) {
		return stepAgain
	}
	if f := filter(word) &^ socknotify.EventIn; f != 0 {
		w.enable(c, s, f)
	}
	c.wake()
	return stepLeave
}

// releaseKept is release for the connections of several notifications, with one call of the port. No handler is called: a
// connection whose word needs more than enabling is posted.
func (w *worker) releaseKept(kept []socknotify.Notification[*Key]) {
	for i := range kept {
		if c := (*conn)(kept[i].Key); c != nil {
			kept[i].Key = nil
			w.queueEnable(c)
		}
	}
	for w.nregs > 0 {
		regs := w.regs[:w.nregs]
		w.nregs = 0
		w.port.Process(regs, nil, 0)
		for i := range regs {
			r := &regs[i]
			c, f := (*conn)(r.Key), r.Filter
			s := r.Conn.(*sock.Socket)
			r.Key, r.Conn = nil, nil // an idle worker must not keep a connection alive
			if r.Result != nil {
				c.refused(s, r.Result)
			}
			if c.reacquire(f) {
				w.queueEnable(c) // at an index of regs that the loop has passed
			}
		}
	}
}

// queueEnable gives up the ownership of a connection and adds its registration to regs.
func (w *worker) queueEnable(c *conn) {
	for {
		s, word := c.socket(), c.word.Load()
		if !c.word.CompareAndSwap(word, word&^wOwned) {
			continue
		}
		if word&wSpecial != 0 {
			c.wake()
			return
		}
		r := &w.regs[w.nregs]
		w.nregs++
		r.Conn, r.Key, r.Filter = s, c.key(), filter(word)
		return
	}
}

// reacquire acquires a connection that was released and enabled for a filter, if that is no longer the filter to wait
// for. In between, another owner may have enabled it for more events, and this enable may have come after that.
func (c *conn) reacquire(f socknotify.Events) bool {
	word := c.word.Load()
	return word&wOwned == 0 && filter(word) != f && c.word.Or(wOwned)&wOwned == 0
}

// enable enables the registration of a connection that was released.
func (w *worker) enable(c *conn, s *sock.Socket, f socknotify.Events) {
	r := &w.reg[0]
	r.Conn, r.Key, r.Filter, r.Op = s, c.key(), f, socknotify.OpEnable
	w.server.shards[c.shard].Process(w.reg[:], nil, 0)
	r.Conn, r.Key = nil, nil // an idle worker must not keep a connection alive
	if r.Result != nil {
		c.refused(s, r.Result)
	}
}

// refused closes a connection that could not be enabled, unless it has another owner by now.
func (c *conn) refused(s *sock.Socket, err error) {
	c.mu.Lock()
	is := c.socket() == s && c.word.Load()&(wOwned|wAborting) == 0
	if is {
		c.failLocked(err)
	}
	c.mu.Unlock()
	if srv := c.server(); is && refusedBySystem(err) {
		srv.log(slog.LevelWarn, "cannot watch a connection, closing it", "err", err)
	}
}
