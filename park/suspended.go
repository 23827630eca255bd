package park

import (
	"cmp"
	"context"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving/parking"
)

// A Suspended is a request that waits. See [Suspend]. Its methods may be called concurrently.
type Suspended struct {
	// The goroutine of the handler owns the request until the outermost handler has returned, which
	// parks the connection in wait. The lot has it then, until it calls endSuspended, once. It does so
	// because of the socket, its wheel, its end, or a goroutine that has decided to end the wait. The
	// first of them to set why has decided. If the connection is not parked yet, wait finds it set.

	heldRequest

	mu        sync.Mutex
	why       ending
	halfClose bool
	place     waitingPlace  // nil if the request has its goroutine, and after the end
	blocked   chan struct{} // nil, or closed when why is set, for a goroutine that waits
	timeout   time.Duration
	since     time.Duration // as claim has returned it
	size      int64         // as counted
}

// A waitingPlace is where a request waits without a goroutine: its *httpConn, or a *suspendedStream
// of HTTP/2.
type waitingPlace interface {
	server() *HTTPServer
	// endWait makes the lot end the wait of q, which was decided, if the lot has it.
	endWait(q *Suspended)
	// kept returns a reader of what was kept of the request besides what the server has parsed again.
	kept(head string) textReader
}

// An ending says why a request no longer waits.
type ending uint8

const (
	undecided ending = iota
	byResume
	byTimeout
	byClient
	byServer
	byPanic // of the handler: then is not called
	endingsCount
)

// endings has what context.Cause returns in then.
var endings = [endingsCount]error{
	byTimeout: ErrWaitTimeout, byClient: ErrClientGone, byServer: http.ErrServerClosed,
}

// Resume ends the wait: then is called, in another goroutine. Resume never waits, and may be called
// from any goroutine at any time, also by register. It reports whether this call has ended the
// wait; if not, then was called, or is about to be, for another reason.
func (q *Suspended) Resume() bool {
	if !q.decide(byResume) {
		return false
	}
	q.wake()
	return true
}

// decide sets why, unless that was done before.
func (q *Suspended) decide(why ending) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.why != undecided {
		return false
	}
	q.why = why
	if q.blocked != nil {
		close(q.blocked)
	}
	return true
}

func (q *Suspended) decided() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.why != undecided
}

// wake ends the wait, which was decided.
func (q *Suspended) wake() {
	q.mu.Lock()
	place := q.place
	q.mu.Unlock()
	if place != nil {
		place.endWait(q)
	}
}

func (hc *httpConn) server() *HTTPServer  { return hc.in.server }
func (hc *httpConn) endWait(q *Suspended) { hc.wakeParked(q) }

func (hc *httpConn) kept(head string) textReader {
	in := textReader{head}
	in.skipServed()
	return in
}

// suspend parks the connection of a request whose handler has returned. The request may have ended,
// and the connection may be used otherwise, when the lot has it.
func (hc *httpConn) suspend(q *Suspended) {
	server := hc.in.server
	if q.decided() {
		hc.answer(q)
		return
	}
	err := hc.in.lot.engine.ParkSocket(&parking.Request{Base: hc.base, Raw: hc.raw, Conn: suspendedConn{q: q},
		F: endSuspended, Idle: q.timeout, Await: q.awaits()})
	if err == nil {
		if server.waits.ending.HasBegun() {
			q.decide(byServer) // Shutdown may not have found the connection in the lot
		}
		if q.decided() {
			hc.wakeParked(q)
		}
		return
	}
	// The lot is closed, or the connection cannot be registered.
	q.mu.Lock()
	q.blocked = make(chan struct{})
	if q.why != undecided {
		close(q.blocked)
	}
	q.mu.Unlock()
	q.await(q.timeout, nil, server.waits.ending.Begun(), hc.in.ended)
	hc.answer(q)
}

// awaits returns what the client can do to end the wait. A next request stays in the socket.
func (q *Suspended) awaits() parking.Awaited {
	if q.halfClose {
		return parking.AwaitReset
	}
	return parking.AwaitEnd
}

// A suspendedConn is what the lot has of a waiting request. It learns from its methods why the lot
// calls the function. The lot enables such a connection for the end of the client's side alone, so
// that a next request stays in the socket.
type suspendedConn struct {
	parking.NoConn
	q *Suspended
}

func (c suspendedConn) Close() error {
	c.q.decide(byServer)
	return nil
}

func (c suspendedConn) SetReadDeadline(time.Time) error {
	c.q.decide(byTimeout)
	return nil
}

// endSuspended is the function of the lot for all waiting requests.
func endSuspended(conn net.Conn) {
	q := conn.(suspendedConn).q
	q.decide(byClient) // unless it was decided otherwise
	q.place.(*httpConn).answer(q)
}

// answer has net/http call then: it begins a session as for a new connection. What the session reads
// is a head that net/http parses, and what the client has sent after its request. Nothing in that
// head comes from the program, and it has no body, so it cannot take a byte of the next request.
func (hc *httpConn) answer(q *Suspended) {
	conn := hc.newSession()
	s := conn.(inSession).self()
	s.answers, s.next = q, q.wireHead()
	if !hc.in.push(arrival{conn: conn, hc: hc}) {
		hc.in.lot.engine.Relieve() // then may wait
		hc.finish()
		hc.abandon(q)
	}
}

// A heldRequest is what then needs.
type heldRequest struct {
	then  func(http.ResponseWriter, *http.Request, *Suspended)
	head  string // see suspended_request.go
	out   string // the header of the answer, as the handler has left it
	forms *forms
}

// take ends the wait. The Suspended, which the program may keep, then holds nothing.
func (q *Suspended) take() (t heldRequest, why ending) {
	server := q.place.server()
	q.mu.Lock()
	t, why = q.heldRequest, q.why
	q.heldRequest, q.place = heldRequest{}, nil
	q.mu.Unlock()
	server.release(why, q.size, q.since, false)
	return t, why
}

// answer calls then. base is the request that net/http has parsed from the head of httpConn.answer, or that
// the server of HTTP/2 has made again.
func (q *Suspended) answer(w http.ResponseWriter, base *http.Request) {
	place := q.place
	t, why := q.take()
	defer t.forms.remove()
	ctx := base.Context()
	if q.halfClose {
		ctx = context.WithoutCancel(ctx) // it would end with the client's side
	}
	r := base.WithContext(withCause(ctx, endings[why]))
	in := place.kept(t.head)
	in.request(r)
	in = textReader{t.out}
	in.header(w.Header())
	t.forms.restore(r)
	t.then(w, r, q)
}

// abandon calls then without net/http, after the connection was closed because its server has
// ended.
func (hc *httpConn) abandon(q *Suspended) {
	q.decide(byServer)
	hc.try(func() {
		base := q.wireRequest()
		base.RemoteAddr = hc.conn.RemoteAddr().String()
		ctx := context.WithValue(cmp.Or(hc.ctx, hc.in.ctx), http.LocalAddrContextKey, hc.conn.LocalAddr())
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(http.ErrServerClosed)
		if c, ok := hc.conn.(connectionStater); ok {
			state := c.ConnectionState()
			base.TLS = &state
		}
		q.answer(closedWriter{}, base.WithContext(ctx))
	})
}

// handled is called when the outermost handler has ended. It parks the connection of a request that
// waits. If the handler has panicked, it closes the connection.
func (s *session) handled(returned bool) {
	q, w := s.suspended, s.served.w
	s.served, s.suspended = served{}, nil
	switch {
	case q == nil:
	case returned:
		if h := w.Header(); len(h) > 0 {
			q.out = string(appendHeader(nil, h))
		}
		s.hc.suspend(q)
	default:
		q.drop()
		if s.hijacked { // otherwise net/http closes it
			s.hc.finish()
		}
	}
}

// drop ends the request of a handler that has panicked.
func (q *Suspended) drop() {
	q.decide(byPanic)
	t, _ := q.take()
	t.forms.remove()
}

// A closedWriter is the ResponseWriter of a connection that was closed.
type closedWriter map[string][]string

func (w closedWriter) Header() http.Header     { return http.Header(w) }
func (closedWriter) Write([]byte) (int, error) { return 0, http.ErrServerClosed }
func (closedWriter) WriteHeader(int)           {}
func (closedWriter) FlushError() error         { return http.ErrServerClosed }

// forms holds what was parsed of a request before it waited.
type forms struct {
	form, post url.Values
	multipart  *multipart.Form
}

func formsOf(r *http.Request) *forms {
	if r.Form == nil && r.PostForm == nil && r.MultipartForm == nil {
		return nil
	}
	return &forms{r.Form, r.PostForm, r.MultipartForm}
}

// restore gives the forms back to the request.
func (f *forms) restore(r *http.Request) {
	if f != nil {
		r.Form, r.PostForm, r.MultipartForm = f.form, f.post, f.multipart
	}
}

// remove removes the files of a form, as net/http does after a request.
func (f *forms) remove() {
	if f != nil && f.multipart != nil {
		f.multipart.RemoveAll()
	}
}
