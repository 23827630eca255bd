package conn

import "github.com/socknotify/socknotify"

// Handle handles a notification. The connection is released, and the key becomes nil. If keep is
// set, the connection may stay the key and owned, until ReleaseKept releases it with others.
//
// This is the way of a request. If the handler reads and writes once, it costs one receive and one
// send, the connection's lock twice, and of its word eleven loads and six atomic operations that
// write it: Handle sets wOwned, beginCall wGather and hold wHeld; endCall clears wGather, sendHeld
// wHeld and release wOwned.
func (o *Owner) Handle(nt *socknotify.Notification[*Key], now uint32, keep bool) {
	c, read := (*Conn)(nt.Key), true
	if nt.Events == socknotify.EventIn { // the usual case
		word := c.word.Or(wOwned)
		if word&wOwned != 0 {
			nt.Key = nil // the owner enables the registration again
			return
		}
		c.touch(now)
		if word&(wNoRead|wHandshake|wInput) != 0 {
			read = o.events(c, socknotify.EventIn, word)
		}
	} else if c, read = o.handleOther(nt, now); c == nil {
		return
	}
	if read {
		o.call(c)
	}
	if keep && c.word.Load()&wSpecial == 0 {
		return // there is no other worker that could serve it now, and releasing many costs less
	}
	nt.Key = nil // an idle worker must not keep a connection alive
	o.release(c)
}

// handleOther handles any notification that is not just EventIn. If the notification leaves the
// worker the owner of a connection, handleOther returns that, which stays the key, and reports
// whether Data is to be called before releasing it.
func (o *Owner) handleOther(nt *socknotify.Notification[*Key], now uint32) (_ *Conn, read bool) {
	c := (*Conn)(nt.Key)
	nt.Key = nil // an idle worker must not keep a connection alive
	switch {
	case nt.Events&socknotify.EventRemove != 0:
		o.finish(c)
		return nil, false
	case nt.Kind() == socknotify.KindPosted:
		if nt.Data == started {
			o.Start(c)
			return nil, false
		}
		c.word.And(^uint32(wPosted))
	case c == &c.link.listener.key:
		a := *nt
		*nt = socknotify.Notification[*Key]{}
		c.link.listener.accepted(o, &a)
		return nil, false
	}
	word := c.word.Or(wOwned)
	if word&wOwned != 0 {
		return nil, false // the owner enables the registration again
	}
	nt.Key = c.Key()
	// A timer is no activity. With SilentIsIdle neither is room to write, unless nothing was received before.
	if nt.Kind() != socknotify.KindPosted &&
		(!o.shared.SilentIsIdle || nt.Events&socknotify.EventIn != 0 || word&wFull != 0) {
		c.touch(now)
	}
	return c, o.events(c, nt.Events, word)
}

// events does everything except calling Data for the events of a connection that the worker owns,
// and reports whether Data is to be called.
func (o *Owner) events(c *Conn, e socknotify.Events, word uint32) (read bool) {
	if e&socknotify.EventErr != 0 && c.failed(o.buf, e == socknotify.EventErr) {
		return false
	}
	if e&socknotify.EventOut != 0 {
		o.current = c // a reader of a Stream may panic
		goOn := c.flush()
		o.current = nil
		if goOn && c.word.Load()&wOver == 0 {
			o.beginCall(c)
			o.returned(c, o.shared.server.Writable(c))
		}
		word = c.word.Load()
	}
	if e&socknotify.EventIn == 0 || word&wNoRead != 0 {
		return false
	}
	if word&wHandshake != 0 {
		o.opening(c)
		return false
	}
	return c.word.Load()&(wInput|wAgain) != wInput || c.moreInput()
}
