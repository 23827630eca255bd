package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/sock"
)

// Errors of a connection, besides those of the system.
var (
	errEnd     = errors.New("end of stream")
	errSurplus = errors.New("more came back than was sent")
)

// A conn is one connection. Only its worker uses it.
type conn struct {
	sock  *sock.Socket // nil before it is made and after it has failed
	tls   *secure      // nil without
	index int64
	phase int64 // in the pattern
	place int64 // in the schedule
	addr  int   // of job.addrs, while connecting

	connected bool
	listed    bool              // in worker.rearm
	waits     bool              // in worker.due
	filter    socknotify.Events // of the enabled registration; 0 after its notification
	due       int64             // where waits

	// Requests are numbered from 0: done <= begun <= issued <= done + Depth.
	issued int64 // to be sent
	begun  int64 // first byte sent
	done   int64 // answered
	sent   int64 // bytes
	got    int64 // bytes
	before int64 // got when draining began

	// slots[n%Depth] is when request n started. After its answer it is when the next request in this slot may start,
	// which Think delays.
	slots []int64
}

// busy reports whether there are requests without an answer.
func (c *conn) busy() bool { return c.done < c.issued }

// wants returns the filter that the connection needs now. An end of stream is EventIn.
func (w *worker) wants(c *conn) socknotify.Events {
	switch {
	case !c.connected:
		return socknotify.EventOut
	case c.sent < c.issued*w.size, c.tls != nil && len(c.tls.out) > 0:
		return socknotify.EventIn | socknotify.EventOut
	}
	return socknotify.EventIn
}

// registration enables the connection. Because a receive of fewer bytes than fit has drained the socket, this is
// nearly always a fast enable, without a system call.
func (w *worker) registration(c *conn) socknotify.Registration[*conn] {
	c.filter = w.wants(c)
	return socknotify.Enable(c.sock, c, c.filter, socknotify.TriggerLevel|socknotify.TriggerOneShot)
}

// handle handles a notification.
func (w *worker) handle(c *conn, events socknotify.Events) {
	c.filter = 0
	if !c.connected {
		if w.established(c); c.connected {
			w.pump(c, w.now())
		}
		return
	}
	if w.draining && !c.busy() {
		return
	}
	now := w.now()
	if events != socknotify.EventOut {
		var err error
		if now, err = w.receive(c, events); err != nil {
			w.fail(c, err)
			return
		}
	}
	if w.draining && !c.busy() {
		w.waiting--
		return
	}
	if w.Reconnect && c.done > 0 {
		w.reconnect(c)
		return
	}
	w.pump(c, now)
}

// receive receives answers and returns the time. It receives one chunk, because the level notifies again if there is
// more. With TLS it receives all, because crypto/tls may have buffered more.
func (w *worker) receive(c *conn, events socknotify.Events) (now int64, err error) {
	if c.tls == nil {
		n, err := c.sock.Recv(w.buf)
		return w.received(c, events, n, err)
	}
	for full := true; full && err == nil; {
		var n int
		n, err = c.tls.recv(w.buf)
		full = n == len(w.buf)
		now, err = w.received(c, events, n, err)
	}
	return now, err
}

// received checks and counts n received bytes, and returns the error that followed them, if any.
func (w *worker) received(c *conn, events socknotify.Events, n int, err error) (now int64, _ error) {
	now = w.now()
	if int64(n) > c.sent-c.got {
		return now, errSurplus
	}
	if want := w.table.at(c.phase, c.got, n); !bytes.Equal(w.buf[:n], want) {
		return now, wrong(c.got, w.buf[:n], want)
	}
	c.got += int64(n)
	for c.done < c.begun && c.got >= (c.done+1)*w.size {
		slot := &c.slots[c.done%w.depth]
		w.latency.add(now - *slot)
		w.end, *slot = now, now+int64(w.Think)
		c.done++
	}
	switch {
	case err == sock.ErrWouldBlock && events&socknotify.EventErr != 0:
		err = c.sock.Err()
	case err == sock.ErrWouldBlock:
		err = nil
	case err == io.EOF:
		err = errEnd
	}
	return now, err
}

// wrong names the first byte that is not what was sent.
func wrong(pos int64, got, want []byte) error {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("wrong answer: byte %d is %#02x, not %#02x", pos+int64(i), got[i], want[i])
		}
	}
	return nil
}

// pump issues the requests that are due and sends as much as the system takes. Afterwards the connection is enabled,
// or listed for when its next request is due.
func (w *worker) pump(c *conn, now int64) {
	for !w.draining && c.issued-c.done < w.depth && (w.Requests == 0 || c.issued < int64(w.Requests)) {
		slot := &c.slots[c.issued%w.depth]
		due := *slot
		if w.interval > 0 {
			start := w.scheduled(c, c.issued)
			if due = max(due, start); due <= now {
				*slot = start
			}
		}
		if due > now {
			w.later(c, due)
			break
		}
		c.issued++
	}
	if err := w.send(c, now); err != nil {
		w.fail(c, err)
		return
	}
	if c.filter != w.wants(c) {
		w.arm(c)
	}
}

// sendsAtOnce bounds the sends of one connection before other connections are served.
const sendsAtOnce = 4

// send sends the issued requests in as few calls as possible. It stops when the system took only a part; EventOut
// continues it.
func (w *worker) send(c *conn, now int64) error {
	send := c.sock.Send
	if c.tls != nil {
		send = c.tls.send
		if err := c.tls.flush(); err != nil && err != sock.ErrWouldBlock {
			return err
		}
	}
	all := c.issued * w.size
	for i := 0; c.sent < all && i < sendsAtOnce; i++ {
		if i > 0 {
			now = w.now()
		}
		b := w.table.at(c.phase, c.sent, int(min(all-c.sent, chunk)))
		n, err := send(b)
		if err == sock.ErrWouldBlock {
			return nil
		}
		if err != nil {
			return err
		}
		c.sent += int64(n)
		for ; c.begun*w.size < c.sent; c.begun++ {
			if w.interval == 0 {
				c.slots[c.begun%w.depth] = now
			}
		}
		if n < len(b) {
			return nil
		}
	}
	return nil
}
