package park

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/socknotify/socknotify/internal/wheel"
)

// A listener gives net/http its connections: those that are accepted, and those that were parked.
type listener struct {
	net.Listener
	server *HTTPServer
	lot    *Lot
	linger *wheel.Wheel[*session]
	config *serverTLS
	ctx    context.Context // with which net/http serves

	asked     chan struct{} // closed when net/http asks for the context
	given     chan struct{} // closed when it is there
	cleared   sync.Once
	accepting sync.WaitGroup
	rearing   sync.WaitGroup
	quiet     chan struct{} // closed when they are done

	mu     sync.Mutex
	queue  []arrival
	young  map[*link]struct{} // whose handshake, or first byte, a goroutine of ours waits for
	closed bool
	signal chan struct{} // something is in the queue
	ended  chan struct{} // closed when closed
}

// An arrival is a connection for net/http, or why there is none.
type arrival struct {
	conn net.Conn
	link *link
	err  error
}

func newListener(s *HTTPServer, in net.Listener, lot *Lot, config *serverTLS) *listener {
	return &listener{Listener: in, server: s, lot: lot, linger: newLinger(s.linger()), config: config,
		young: make(map[*link]struct{}), asked: make(chan struct{}), given: make(chan struct{}),
		signal: make(chan struct{}, 1), ended: make(chan struct{}), quiet: make(chan struct{})}
}

// serve has net/http serve what the listener accepts, and what returns from the lot. net/http does so on a
// goroutine of ours, so that it can be given a connection while the program's Accept waits. Accept, BaseContext,
// ConnContext and ConnState with StateNew belong to the program and are called on the goroutine that called
// Serve, as they are by net/http: a panic in them, and runtime.Goexit, has the same caller.
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
	case <-l.asked:
		l.setBase()
		if l.config != nil {
			l.config.offer(srv) // net/http has set the server up
		}
		l.accept()
	case <-done:
	}
	returned = true
	return nil // the deferred function sets it
}

// setBase asks the program for the context that BaseContext of the server waits for.
func (l *listener) setBase() {
	defer close(l.given)
	ctx := context.Background()
	if f := l.server.baseContext; f != nil {
		if ctx = f(l.Listener); ctx == nil {
			panic("BaseContext returned a nil context") // as net/http does
		}
	}
	l.ctx = context.WithValue(ctx, http.ServerContextKey, l.server.Server)
}

// base returns the context to net/http.
func (l *listener) base() context.Context {
	close(l.asked)
	<-l.given
	if l.ctx == nil { // the program panicked, and the listener is about to be closed
		return context.Background()
	}
	return l.ctx
}

// Accept returns the next connection.
func (l *listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			l.clear()
			return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: net.ErrClosed}
		}
		if len(l.queue) > 0 {
			a := l.queue[0]
			l.queue[0] = arrival{}
			l.queue = l.queue[1:]
			l.mu.Unlock()
			return a.conn, a.err
		}
		l.mu.Unlock()
		select {
		case <-l.signal:
		case <-l.ended:
		}
	}
}

// push queues for Accept. It reports false if the listener is closed.
func (l *listener) push(a arrival) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.young, a.link)
	if l.closed {
		return false
	}
	l.queue = append(l.queue, a)
	select {
	case l.signal <- struct{}{}:
	default:
	}
	return true
}

func (l *listener) drop(a arrival) {
	if a.link != nil {
		l.server.native.Delete(a.conn)
		a.link.finish()
	}
}

// accept accepts until that fails for good. It waits out temporary errors by itself, as net/http does, because
// net/http takes connections that were parked while it waits.
func (l *listener) accept() {
	var delay time.Duration
	for {
		conn, err := l.Listener.Accept()
		if err == nil {
			delay = 0
			l.admit(conn)
			continue
		}
		//lint:ignore SA1019 net/http goes by it
		if e, ok := err.(net.Error); !ok || !e.Temporary() {
			l.push(arrival{err: err})
			return
		}
		delay = min(max(2*delay, 5*time.Millisecond), time.Second)
		logf(l.server.Server, "http: Accept error: %v; retrying in %v", err, delay)
		select {
		case <-time.After(delay):
		case <-l.ended:
		}
	}
}

func (l *listener) admit(conn net.Conn) {
	if l.config != nil {
		conn = tls.Server(conn, l.config.config)
	}
	returned := false
	defer func() {
		if !returned {
			conn.Close()
		}
	}()
	k := newLink(l, conn)
	if f := l.server.connContext; f != nil {
		if k.ctx = f(l.ctx, conn); k.ctx == nil {
			panic("ConnContext returned nil") // as net/http does
		}
	}
	l.server.announce(conn, http.StateNew)
	returned = true
	var handed bool
	if t, ok := conn.(*tls.Conn); ok {
		handed = l.rear(k, func() bool { return k.handshake(t) })
	} else {
		handed = l.push(arrival{conn: k.newSession(nil, 0), link: k})
	}
	if !handed {
		k.finish()
	}
}

// rear tends a connection on a goroutine of its own. Close closes the connection until that has ended. rear
// reports false if the listener is closed.
func (l *listener) rear(k *link, f func() (handed bool)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.young[k] = struct{}{}
	l.rearing.Go(func() { k.tend(f) })
	return true
}

func (l *listener) grown(k *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.young, k)
}

// Close closes the listener, and connections that are waited for. net/http calls it with a lock held, so what
// may call the program's hooks is left to clear.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	for k := range l.young {
		conn := k.conn
		if t, ok := conn.(*tls.Conn); ok {
			conn = t.NetConn() // without waiting for the handshake
		}
		conn.Close()
	}
	close(l.ended)
	l.mu.Unlock()
	return l.Listener.Close()
}

// clear closes every connection that net/http does not have, of a listener that is closed. It waits for the
// goroutine that accepts, so that Shutdown is not followed by new connections.
func (l *listener) clear() {
	l.cleared.Do(func() {
		l.accepting.Wait()
		l.mu.Lock()
		left := l.queue
		l.queue = nil
		l.mu.Unlock()
		for _, a := range left {
			l.drop(a)
		}
		l.lot.Close()
		if l.linger != nil {
			l.linger.Close()
		}
		go func() {
			l.rearing.Wait()
			close(l.quiet)
		}()
	})
}

// wait waits until nothing of a listener that is closed is left but what net/http has.
func (l *listener) wait(ctx context.Context) error {
	select {
	case <-l.quiet:
		return l.lot.Shutdown(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
