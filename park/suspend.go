package park

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving/nethttp"

	"github.com/socknotify/socknotify"
	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/clock"
	"github.com/socknotify/socknotify/internal/serving/muxed"
)

// Suspend makes a request wait without a goroutine. A handler of an HTTPServer calls it before it
// has written anything, and returns. register is called before Suspend returns, and gives the
// request to the program, which calls [Suspended.Resume] when it has an answer. After that, then is
// called as a handler is, with the same Suspended, and answers.
//
//	func poll(w http.ResponseWriter, r *http.Request) {
//		err := park.Suspend(w, r, queue.add, func(w http.ResponseWriter, r *http.Request, s *park.Suspended) {
//			io.WriteString(w, queue.take(s))
//		})
//		if err != nil {
//			http.Error(w, err.Error(), http.StatusServiceUnavailable)
//		}
//	}
//
// If Suspend returns nil, the handler and what is around it must not use w or the body of r any
// more. then runs exactly once, with a context whose [context.Cause] says why: [ErrWaitTimeout],
// [ErrClientGone] when the client has closed or half-closed its connection, http.ErrServerClosed
// after Shutdown, when it can still answer, and after Close, when it cannot, and nil after Resume,
// unless the client has gone since. There is one exception: a handler that panics after Suspend
// ends the request.
//
// then gets the request as the handler had it: with the fields that middleware has set, Pattern,
// the path values, parsed forms and the body, which Suspend reads first. Its context has what the
// server has put there, such as the values of ConnContext, and no value of middleware, because some
// middleware uses its context for the next request. What then needs of that must be captured
// before. The answer gets the header fields that were set on w until the handler returned.
//
// A ResponseWriter that is not net/http's own must have an Unwrap method, as for an
// [http.ResponseController], and one that encodes the answer does not encode that of then. Suspend
// calls register, then waits in the handler's goroutine, and then calls then with w, if w has no
// such method or has a Content-Encoding; if something was written; if the connection cannot be
// parked; with net/http's HTTP/2; and with every other server, such as one of package httptest. Then the
// context is that of r, with its values. Stats.Blocked counts these requests.
//
// Suspend fails with [ErrTooLong] for a body beyond the limit, which can still be read; with the
// error of reading the body; with [ErrMaxSuspended]; with http.ErrHijacked if there was a call of it
// or of Hijack before; and with socknotify.ErrInvalid if an argument is nil. Neither register nor
// then is called in these cases, and the handler answers.
func Suspend(w http.ResponseWriter, r *http.Request, register func(*Suspended),
	then func(http.ResponseWriter, *http.Request, *Suspended)) error {
	return SuspendWith(w, r, SuspendOptions{}, register, then)
}

// SuspendOptions are the options of [SuspendWith].
type SuspendOptions struct {
	// Timeout ends the wait with ErrWaitTimeout. 0 means never. It is never early and at most 0.2
	// seconds late.
	Timeout time.Duration
	// MaxBody bounds the body of the request, in bytes. 0 means 64 KiB, and a negative value means
	// no limit.
	MaxBody int64
	// HalfClose lets a request wait whose client has ended its own side of the connection. It may
	// still read the answer, but most have gone. Only a reset ends the wait then, and the context of
	// then does not end with the client.
	HalfClose bool
}

const defaultMaxBody = 64 << 10

// SuspendWith is [Suspend] with options.
func SuspendWith(w http.ResponseWriter, r *http.Request, o SuspendOptions,
	register func(*Suspended), then func(http.ResponseWriter, *http.Request, *Suspended)) error {
	if w == nil || r == nil || register == nil || then == nil {
		return fmt.Errorf("park: suspend: %w: nil", socknotify.ErrInvalid)
	}
	inner := nethttp.Innermost(w)
	s, _ := r.Context().Value(sessionKey{}).(*session)
	if !nethttp.IsResponse(inner) {
		s = nil
	}
	if s != nil && s.hijacked {
		return http.ErrHijacked
	}
	body, err := takeBody(r, serving.Or(o.MaxBody, defaultMaxBody))
	if err != nil {
		return fmt.Errorf("park: suspend: %w", err)
	}
	if s != nil && s.canSuspend(inner) {
		if err := o.suspend(s, w, r, body, register, then); err != http.ErrServerClosed {
			return err
		}
	}
	if m, ok := inner.(muxed.Suspender); ok && inner.Header().Get("Content-Encoding") == "" {
		err := o.suspendStream(m, r, body, register, then)
		if err != http.ErrServerClosed && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
	}
	return o.block(w, r, body, register, then)
}

// suspend takes the connection from net/http. It fails with http.ErrServerClosed, and has done
// nothing then, if Shutdown has begun.
func (o *SuspendOptions) suspend(s *session, w http.ResponseWriter, r *http.Request, body []byte,
	register func(*Suspended), then func(http.ResponseWriter, *http.Request, *Suspended)) error {
	server := s.hc.in.server
	buf := headBuffers.Get().(*[]byte)
	defer headBuffers.Put(buf)
	head := appendRequest(appendServed((*buf)[:0], &s.served), r, body, s.hc.conn.RemoteAddr())
	if cap(head) <= 64<<10 {
		*buf = head
	}
	size := int64(len(head))
	since, err := server.claim(size, false)
	if err != nil {
		return err
	}
	q := &Suspended{place: s.hc, size: size, since: since, timeout: o.Timeout, halfClose: o.HalfClose}
	s.suspended = q
	next, err := s.take(w)
	if err != nil {
		s.suspended = nil
		server.release(undecided, size, since, false)
		return fmt.Errorf("park: suspend: %w", err)
	}
	q.then, q.head, q.forms = then, string(append(head, next...)), formsOf(r)
	register(q)
	return nil
}

// take takes the connection from net/http, and returns what was received after the request. It asks
// w and not net/http's ResponseWriter, so that the Hijack method of each one around that is called:
// gin's, for example, would otherwise write the header when the handler has returned. Such a method
// may fail, or expect that the ResponseWriter below has one too, and not only Unwrap. It is left out
// then.
func (s *session) take(w http.ResponseWriter) (next []byte, err error) {
	func() {
		defer func() {
			v := recover()
			if _, ok := v.(*runtime.TypeAssertionError); v != nil && (!ok || s.hijacked) {
				panic(v)
			}
		}()
		_, _, next, err = nethttp.Hijack(w)
	}()
	switch {
	case !s.hijacked:
		_, _, next, err = nethttp.Hijack(s.served.w)
	case err != nil:
		s.hc.finish() // it cannot be used any more
	}
	if err != nil {
		return nil, err
	}
	_, unread := s.Detach()
	return append(next, unread...), nil
}

// block waits in the handler's goroutine.
func (o *SuspendOptions) block(w http.ResponseWriter, r *http.Request, body []byte,
	register func(*Suspended), then func(http.ResponseWriter, *http.Request, *Suspended)) error {
	var closing <-chan struct{}
	q := &Suspended{blocked: make(chan struct{})}
	var since time.Duration
	server := serverOf(r)
	if server != nil {
		var err error
		switch since, err = server.claim(0, true); err {
		case nil:
			closing = server.waits.ending.Begun()
		case http.ErrServerClosed:
			server = nil
			q.decide(byServer)
		default:
			return err
		}
	}
	released := server == nil
	defer func() {
		if !released { // register has panicked
			server.release(undecided, 0, since, true)
		}
	}()
	register(q)
	q.await(o.Timeout, r.Context().Done(), closing, nil)
	if !released {
		released = true
		server.release(q.why, 0, since, true)
	}
	cause := endings[q.why]
	if c := context.Cause(r.Context()); q.why == byClient && c != context.Canceled {
		cause = c // the deadline of a middleware
	}
	r = r.WithContext(withCause(r.Context(), cause))
	r.Body = bodyOf(string(body))
	then(w, r, q)
	return nil
}

// serverOf returns the HTTPServer of a request, or nil.
func serverOf(r *http.Request) *HTTPServer {
	if srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		if h, ok := srv.Handler.(methodRecorder); ok {
			return h.server
		}
	}
	return nil
}

// withCause returns the context of then.
func withCause(parent context.Context, cause error) context.Context {
	if cause == nil {
		return parent
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	cancel(cause)
	return ctx
}

// canSuspend reports whether the request that the session serves can wait without a goroutine.
// inner is net/http's ResponseWriter. The state of the answer and of the body is not exported. If
// it cannot be found, because net/http has changed, the request waits with its goroutine.
func (s *session) canSuspend(inner http.ResponseWriter) bool {
	x := &s.served
	return x.w == inner && !s.hc.lasting && x.major == 1 && validToken(x.method) &&
		!nethttp.FieldIs(nethttp.Pointed(reflect.ValueOf(inner)), "wroteHeader", true) &&
		x.w.Header().Get("Content-Encoding") == "" && x.consumed()
}

// consumed reports whether nothing is left of the body that net/http reads from the connection. If
// middleware decodes the body, the end may not have been read yet.
func (x *served) consumed() bool {
	if x.body == nil || x.body == http.NoBody {
		return true
	}
	v := nethttp.Pointed(reflect.ValueOf(x.body))
	if below := v.FieldByName("readCloser"); below.Kind() == reflect.Interface {
		v = nethttp.Pointed(below.Elem()) // Expect: 100-continue
	}
	if nethttp.FieldIs(v, "sawEOF", false) {
		x.body.Read(make([]byte, 1))
	}
	return !nethttp.FieldIs(v, "sawEOF", false)
}

// validToken reports whether a method can be written as it is.
func validToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// takeBody reads the body of a request. If it is too long, it can still be read.
func takeBody(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	limit = cmp.Or(limit, math.MaxInt64-1)
	b, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case errors.Is(err, http.ErrBodyReadAfterClose):
		return nil, nil // the handler has read what it wanted
	case err != nil:
		return nil, err
	case int64(len(b)) <= limit:
		return b, nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(b), r.Body), r.Body}
	return nil, ErrTooLong
}

// bodyOf returns the body of a request that has been read.
func bodyOf(text string) io.ReadCloser {
	if text == "" {
		return http.NoBody
	}
	return io.NopCloser(strings.NewReader(text))
}

// await waits until the end of the wait is decided, in a goroutine of its own.
func (q *Suspended) await(timeout time.Duration, gone, closing, ended <-chan struct{}) {
	if timeout > 0 {
		timer := clock.Current().AfterFunc(timeout, func() { q.decide(byTimeout) })
		defer timer.Stop()
	}
	select {
	case <-q.blocked:
	case <-gone:
		q.decide(byClient)
	case <-closing:
		q.decide(byServer)
	case <-ended:
		q.decide(byServer)
	}
}

var headBuffers = sync.Pool{New: func() any { return new([]byte) }}
