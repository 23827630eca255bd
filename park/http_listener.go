package park

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/serving"
	"github.com/socknotify/socknotify/internal/unwrap"
	"github.com/socknotify/socknotify/internal/wheel"
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

	mu       sync.Mutex
	queue    []arrival
	starting map[*httpConn]struct{} // connections run by goroutines
	closed   bool
	changed  sync.Cond     // queue or closed has changed
	ended    chan struct{} // closed when closed
}

// An arrival is a result of Accept: a connection or an error.
type arrival struct {
	conn net.Conn
	hc   *httpConn
	err  error
}

func newListener(s *HTTPServer, in net.Listener, lot *Lot, config *tls.Config) *listener {
	l := &listener{Listener: in, server: s, lot: lot, linger: newLinger(serving.Or(s.Linger, serving.DefaultLinger)), config: config,
		starting: make(map[*httpConn]struct{}), ctxWanted: make(chan struct{}), ctxReady: make(chan struct{}),
		ended: make(chan struct{}), quiesced: make(chan struct{})}
	l.changed.L = &l.mu
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
	defer func() {
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

// Accept returns the next connection or error in the queue. It fails with net.ErrClosed after Close.
func (l *listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	for len(l.queue) == 0 && !l.closed {
		l.changed.Wait()
	}
	if l.closed {
		l.mu.Unlock()
		l.clear()
		return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: net.ErrClosed}
	}
	defer l.mu.Unlock()
	a := l.queue[0]
	l.queue[0] = arrival{}
	l.queue = l.queue[1:]
	return a.conn, a.err
}

// push queues a for Accept. It reports whether the listener was open.
func (l *listener) push(a arrival) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.starting, a.hc)
	if l.closed {
		return false
	}
	l.queue = append(l.queue, a)
	l.changed.Signal()
	return true
}

// discard finishes a connection that net/http has not accepted.
func (l *listener) discard(a arrival) {
	if a.hc != nil {
		l.server.unwrapped.Delete(a.conn)
		a.hc.finish()
		if in, ok := a.conn.(inSession); ok && in.self().answers != nil {
			l.goroutines.Go(in.self().answers.abandon)
		}
	}
}

// accept accepts connections until a permanent error, which it passes to net/http. It does not pass temporary errors:
// net/http would then wait instead of serving connections from the lot.
func (l *listener) accept() {
	err := accept(l.Listener, l.ended, l.admit, func(err error, wait time.Duration) {
		logf(l.server.Server, "http: Accept error: %v; retrying in %v", err, wait)
	})
	l.push(arrival{err: err})
}

// admit passes a new connection to net/http, with TLS after the handshake.
func (l *listener) admit(conn net.Conn) {
	if l.config != nil {
		conn = l.server.tls.server(conn, l.config)
	}
	returned := false
	defer func() {
		if !returned {
			conn.Close()
		}
	}()
	hc := newHTTPConn(l, conn)
	if f := l.server.connContext; f != nil {
		if hc.ctx = f(l.ctx, conn); hc.ctx == nil {
			panic("ConnContext returned nil") // as net/http does
		}
	}
	l.server.announce(conn, http.StateNew)
	returned = true
	var handed bool
	_, secure := conn.(connectionStater)
	if t, ok := unwrap.AsTLS(conn); ok {
		handed = l.start(hc, func() bool { return hc.handshake(t) })
	} else if l.server.prior && !secure {
		handed = l.start(hc, hc.findPreface)
	} else {
		handed = l.push(arrival{conn: hc.newSession(nil, 0), hc: hc})
	}
	if !handed {
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
	l.starting[hc] = struct{}{}
	l.goroutines.Go(func() { hc.run(f) })
	return true
}

// removeStarting removes a connection from those that Close closes.
func (l *listener) removeStarting(hc *httpConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.starting, hc)
}

// Close closes the listener and the connections in l.starting. net/http calls Close with a lock held, so Close must not
// call the program's hooks. clear closes the other connections and calls the hooks.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	for hc := range l.starting {
		conn := hc.conn
		if t, ok := unwrap.AsTLS(conn); ok {
			conn = t.NetConn() // without waiting for the handshake
		}
		conn.Close()
	}
	close(l.ended)
	l.changed.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
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
