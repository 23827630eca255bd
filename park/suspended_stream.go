package park

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"

	"github.com/socknotify/socknotify/internal/serving/durations"
	"github.com/socknotify/socknotify/internal/serving/muxed"
)

// A suspendedStream is a request of HTTP/2 that waits without its goroutine. The lot of HTTP2 parks
// it for its timeout, and until it is woken because its stream or its wait has ended.
type suspendedStream struct {
	parking.Unbound
	parking.NoConn
	q      *Suspended
	in     *HTTPServer
	stream muxed.Suspended
	due    time.Duration // when the wait ends, since the lot's start, or 0
}

// suspendStream makes a request of HTTP/2 wait. It fails with http.ErrNotSupported or
// http.ErrServerClosed, and has done nothing then, if the request can wait only in its goroutine.
func (o *SuspendOptions) suspendStream(w muxed.Suspender, r *http.Request, body []byte,
	register func(*Suspended), then func(http.ResponseWriter, *http.Request, *Suspended)) error {
	server := serverOf(r)
	if server == nil {
		return http.ErrNotSupported
	}
	head := string(appendRequest(nil, r, body, nil))
	size := int64(len(head))
	since, err := server.claim(size, false)
	if err != nil {
		return err
	}
	q := &Suspended{heldRequest: heldRequest{then: then, head: head, forms: formsOf(r)}, size: size, since: since}
	x := &suspendedStream{q: q, in: server}
	if o.Timeout > 0 {
		x.due = durations.Add(server.lot2.engine.Now(), o.Timeout)
	}
	q.place = x
	if x.stream, err = w.SuspendStream(x); err != nil {
		server.release(undecided, size, since, false)
		if err == http.ErrHijacked {
			return err
		}
		return fmt.Errorf("park: suspend: %w", err)
	}
	if !server.waits.add(x) {
		q.decide(byServer)
	}
	x.wait()
	register(q)
	return nil
}

// wait parks the request, or ends its wait. It is called by one goroutine at a time: that of the
// handler, and then the lot's.
func (x *suspendedStream) wait() {
	q, lot := x.q, x.in.lot2
	for !q.decided() && x.stream.Err() == nil {
		idle := time.Duration(-1)
		if x.due > 0 {
			idle = max(x.due-lot.engine.Now(), 1)
		}
		again, err := lot.engine.ParkUnbound(&x.Unbound, x, waitSuspended, idle)
		switch {
		case err != nil:
			q.decide(byServer) // the lot is closed
		case !again:
			return
		}
	}
	q.decide(byClient) // unless it was decided otherwise
	x.in.waits.remove(x)
	x.stream.Resume(q.answer, q.drop)
}

func waitSuspended(conn net.Conn) { conn.(*suspendedStream).wait() }

func (x *suspendedStream) server() *HTTPServer         { return x.in }
func (x *suspendedStream) endWait(*Suspended)          { x.Wake() }
func (x *suspendedStream) kept(head string) textReader { return textReader{head} }

// Wake makes the lot call wait.
func (x *suspendedStream) Wake() { x.in.lot2.engine.WakeUnbound(&x.Unbound) }

// SetReadDeadline is called by the lot at the timeout.
func (x *suspendedStream) SetReadDeadline(time.Time) error {
	x.q.decide(byTimeout)
	return nil
}

// add adds a request of HTTP/2. It reports false if waits is closed.
func (c *waits) add(x *suspendedStream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams == nil {
		c.streams = make(map[*suspendedStream]struct{})
	}
	c.streams[x] = struct{}{}
	return !c.ending.HasBegun()
}

func (c *waits) remove(x *suspendedStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.streams, x)
}
