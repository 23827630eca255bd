package park

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/serving/wheel"
)

// A listener is the listener that net/http serves. Its Accept returns connections that were just accepted and
// connections that leave the lot.
type listener struct {
	net.Listener
	server *HTTPServer
	lot    *Lot
	linger *wheel.Wheel[*session]
	config *tls.Config
	ctx    context.Context // the base context, set before ctxReady is closed

	ctxWanted  chan struct{} // closed when net/http asks for the context
	ctxReady   chan struct{} // closed when ctx is set
	cleared    sync.Once
	accepting  sync.WaitGroup
	goroutines sync.WaitGroup
	quiesced   chan struct{} // closed when accepting and goroutines are done

	closeIn func() error // closes the program's listener

	mu       sync.Mutex
	queue    []arrival
	room     [batch]arrival       // for a short queue
	held     map[*httpConn]holder // connections that are fresh or held by a goroutine
	drained  serving.Ending       // begun when accept has returned; over when held is empty too
	draining bool                 // Shutdown has closed the program's listener
	closed   bool
	changed  sync.Cond     // queue, held or closed has changed
	ended    chan struct{} // closed when closed
}

// batch is how many connections the lot's worker hands over at once.
const batch = 16

// A holder says who has a connection of listener.held.
type holder uint8

const (
	byNetHTTP   holder = iota // net/http or HTTP2, whose Close closes it
	byGoroutine               // a goroutine of start
	byLot                     // the lot, until its first byte
)

// An arrival is a result of Accept: a connection or an error.
type arrival struct {
	conn net.Conn
	hc   *httpConn
	err  error
}

func newListener(s *HTTPServer, in net.Listener, lot *Lot, config *tls.Config) *listener {
	l := &listener{Listener: in, server: s, lot: lot, config: config,
		held: make(map[*httpConn]holder), ctxWanted: make(chan struct{}), ctxReady: make(chan struct{}),
		ended: make(chan struct{}), quiesced: make(chan struct{}), closeIn: sync.OnceValue(in.Close)}
	l.changed.L = &l.mu
	l.linger = newLinger(l.lingerTime())
	l.queue = l.room[:0]
	return l
}

// serve accepts connections and has net/http serve them, as well as those that leave the lot.
//
// http.Server.Serve runs on a new goroutine, so that it can receive a connection from the lot while the program's
// Accept blocks. The program's Accept, BaseContext, ConnContext, and ConnState with StateNew run on the goroutine that
// called serve, as they do with net/http. So a panic or runtime.Goexit in them reaches the caller of Serve.
func (l *listener) serve() (err error) {
	srv := l.server.Server
	var result error
	done := make(chan struct{})
	l.accepting.Add(1)
	go func() {
		defer close(done)
		result = srv.Serve(l)
	}()
	returned := false
	defer func() { // also after a panic or runtime.Goexit of the program's code
		l.mu.Lock()
		l.drained.Begin(len(l.held))
		l.mu.Unlock()
		l.accepting.Done()
		if !returned {
			l.Close()
		}
		<-done
		err = result
	}()
	select {
	case <-l.ctxWanted:
		l.setBase()
		if l.config != nil {
			offer(l.config, srv) // net/http has initialized srv
		}
		l.accept()
	case <-done:
	}
	returned = true
	return nil // the deferred function sets err
}

// setBase calls the program's BaseContext and passes the result to base.
func (l *listener) setBase() {
	defer close(l.ctxReady)
	ctx := context.Background()
	if f := l.server.baseContext; f != nil {
		if ctx = f(l.Listener); ctx == nil {
			panic("BaseContext returned a nil context") // as net/http does
		}
	}
	l.ctx = context.WithValue(ctx, http.ServerContextKey, l.server.Server)
}

// base is called by net/http for the base context. It waits for setBase.
func (l *listener) base() context.Context {
	close(l.ctxWanted)
	<-l.ctxReady
	if l.ctx == nil { // the program's hook panicked, and the listener is about to be closed
		return context.Background()
	}
	return l.ctx
}

// Accept returns the next connection or error in the queue. After Close it returns what the queue holds, and then fails
// with net.ErrClosed: net/http closes a connection whose request it has read without a reset.
func (l *listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	for len(l.queue) == 0 && !l.closed {
		l.changed.Wait()
	}
	if len(l.queue) == 0 {
		l.mu.Unlock()
		l.clear()
		return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: net.ErrClosed}
	}
	defer l.mu.Unlock()
	a := l.queue[0]
	l.queue[0] = arrival{}
	if l.queue = l.queue[1:]; len(l.queue) == 0 {
		l.queue = l.room[:0]
	}
	return a.conn, a.err
}

// push queues a for Accept. It reports whether the listener was open.
func (l *listener) push(a arrival) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if a.hc != nil && a.hc.fresh {
		l.held[a.hc] = byNetHTTP
	} else {
		delete(l.held, a.hc)
	}
	l.queue = append(l.queue, a)
	l.changed.Broadcast()
	return true
}

// discard finishes a connection that net/http has not accepted.
func (l *listener) discard(a arrival) {
	if a.hc != nil {
		l.server.unwrapped.Delete(a.conn)
		a.hc.finish()
		if in, ok := a.conn.(inSession); ok {
			if q := in.self().answers; q != nil {
				l.goroutines.Go(func() { a.hc.abandon(q) })
			}
		}
	}
}

// accept accepts connections until a permanent error, which it passes to net/http. It does not pass temporary errors:
// net/http would then wait instead of serving connections from the lot.
func (l *listener) accept() {
	err := accept(l.Listener, l.ended, l.admit, func(err error, wait time.Duration) {
		logf(l.server.Server, "http: Accept error: %v; retrying in %v", err, wait)
	})
	l.endSilences()
	if l.handOver() {
		l.push(arrival{err: err})
	}
}

// handOver waits until the connections that were accepted have been handed over, and reports whether net/http must then
// receive the error of accept: during Shutdown it must not, because Serve serves the connections that are left.
func (l *listener) handOver() bool {
	clock := l.lot.engine.Clock()
	until := clock.Now().Add(serving.FirstRequestTime)
	timer := clock.AfterFunc(serving.FirstRequestTime, l.changed.Broadcast)
	defer timer.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.draining && !l.closed && l.starting() && clock.Now().Before(until) {
		l.changed.Wait()
	}
	return !l.draining
}

// starting reports whether a goroutine or the lot holds a fresh connection. The caller holds l.mu.
func (l *listener) starting() bool {
	for hc, by := range l.held {
		if by != byNetHTTP && hc.fresh {
			return true
		}
	}
	return false
}

// admit passes a new connection to net/http, with TLS after the handshake.
func (l *listener) admit(conn net.Conn) {
	if l.config != nil {
		conn = l.server.tls.server(conn, l.config)
	}
	counted, returned := false, false
	defer func() {
		if !returned {
			conn.Close()
			if counted { // no other state follows, as with net/http
				l.server.left.Add(1)
			}
		}
	}()
	hc := newHTTPConn(l, conn)
	if hc == nil {
		return
	}
	hc.fresh, hc.until = true, l.lot.engine.Now()+serving.FirstRequestTime
	if f := l.server.connContext; f != nil {
		if hc.ctx = f(l.ctx, conn); hc.ctx == nil {
			panic("ConnContext returned nil") // as net/http does
		}
	}
	counted = true
	l.server.announce(conn, http.StateNew)
	returned = true
	if !hc.parkSilent() && !hc.begin() {
		hc.finish()
	}
}

// start calls hc.run(f) on a new goroutine. Until that has handed the connection over, Close closes the connection.
// start reports whether the listener was open.
func (l *listener) start(hc *httpConn, f func() (handed bool)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.held[hc] = byGoroutine
	l.goroutines.Go(func() { hc.run(f) })
	return true
}

// hold notes that the lot is to have a fresh connection. It reports whether the listener was open.
func (l *listener) hold(hc *httpConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.held[hc] = byLot
	}
	return !l.closed
}

func (l *listener) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

// release removes a connection from those that goroutines hold, because HTTP2 will close it.
func (l *listener) release(hc *httpConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[hc] = byNetHTTP
}

// forget removes a connection from l.held. It is not fresh any more.
func (l *listener) forget(hc *httpConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hc.fresh = false
	delete(l.held, hc)
	l.changed.Broadcast()
	l.drained.Left(len(l.held))
}

// stopAccepting closes the program's listener for Shutdown. What was accepted is served.
func (l *listener) stopAccepting() {
	l.mu.Lock()
	l.draining = true
	l.changed.Broadcast()
	l.mu.Unlock()
	l.endSilences()
	if f, ok := l.Listener.(*FirstByteListener); ok {
		f.stopAccepting() // and Close closes it
	} else {
		l.closeIn()
	}
}

// closeSilent ends the wait for connections in l.held whose time for the first request is over, and for those that wait for
// another request. It closes them, unless net/http or HTTP2 does. It returns when the next time is over, or zero if no
// connection is left.
func (l *listener) closeSilent() (next time.Time) {
	var silent []*httpConn
	var least time.Duration
	now := l.lot.engine.Now()
	l.mu.Lock()
	for hc, by := range l.held {
		switch {
		case !hc.fresh || now >= hc.until:
			delete(l.held, hc)
			if by == byGoroutine {
				silent = append(silent, hc)
			}
		case least == 0 || hc.until < least:
			least = hc.until
		}
	}
	if least > 0 {
		next = l.lot.engine.Time(least)
	}
	l.drained.Left(len(l.held))
	l.mu.Unlock()
	for _, hc := range silent {
		hc.try(hc.cut)
	}
	return next
}

// Close closes the listener and the connections that goroutines hold. net/http calls Close with a lock held, so Close must
// not call the program's hooks. clear closes the other connections and calls the hooks.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	for hc, by := range l.held {
		if by == byGoroutine {
			hc.cut()
		}
	}
	close(l.ended)
	l.changed.Broadcast()
	l.mu.Unlock()
	return l.closeIn()
}

// clear closes the queued and the parked connections of a closed listener. It waits until accept has returned, so that
// no new connection appears after Shutdown.
func (l *listener) clear() {
	l.cleared.Do(func() {
		l.accepting.Wait()
		l.mu.Lock()
		left := l.queue
		l.queue = nil
		l.mu.Unlock()
		for _, a := range left {
			l.discard(a)
		}
		l.lot.Close()
		if l.linger != nil {
			l.linger.Close()
		}
		go func() {
			l.goroutines.Wait()
			close(l.quiesced)
		}()
	})
}

// wait waits until only connections that net/http serves are left of a closed listener.
func (l *listener) wait(ctx context.Context) error {
	select {
	case <-l.quiesced:
		return l.lot.Shutdown(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
